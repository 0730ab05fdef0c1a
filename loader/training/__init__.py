"""Save and resume the position of a training run, and measure how long it waits for input."""
