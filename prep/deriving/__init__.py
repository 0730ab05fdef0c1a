"""Datasets as sources: reshard, merge, append, remove and relabel are builds from records of datasets."""
