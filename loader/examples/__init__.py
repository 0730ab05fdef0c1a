"""Describe what an example is delivered as, for the graph and for NumPy alike."""
