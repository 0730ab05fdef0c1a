"""Examples of any Python iterable: how they are read, what their values are, and the source."""
