"""Check a dataset against its manifest, report every fault, and repair damaged files."""
