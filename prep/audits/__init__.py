"""Looking for what deserves a look in a dataset: leaks, repeats, rare classes."""
