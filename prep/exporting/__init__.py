"""Datasets in the formats of other tools, which are read without tfshards: one file per format."""
