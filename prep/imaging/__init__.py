"""Decode and normalize images, and decide which are accepted."""
