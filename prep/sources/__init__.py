"""The sources that a dataset can be built from, which list and read examples."""
