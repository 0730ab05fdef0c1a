"""Assign examples to splits and shards: pure functions of a listing and the options."""
