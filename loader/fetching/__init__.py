"""Blocks of a dataset in an object store, fetched into a local folder before the order needs them."""
