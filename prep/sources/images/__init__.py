"""Folders of image files."""
