"""Save and resume the position of a training run."""
