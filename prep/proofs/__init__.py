"""Proving that a dataset is what its manifest says, and mending what is not."""
