"""Compute which example comes at which position of an epoch."""
