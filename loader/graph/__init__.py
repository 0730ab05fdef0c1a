"""Wrap TensorFlow's raw operations and calls of Python in the graph."""
