"""Build a dataset: from a source to the committed manifest."""
