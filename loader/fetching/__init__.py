"""Blocks of a dataset in an object store, fetched before the order needs them."""
