"""Build a dataset, step by step from a source to the commit; manage its generations."""
