"""Derive datasets from datasets: reshard, merge and append copy records without decoding them."""
