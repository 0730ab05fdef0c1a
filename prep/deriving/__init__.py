"""Build datasets from records of datasets: reshard, merge, append, remove, relabel; compare datasets."""
