"""Names of files: the suffixes of images by their content, and paths that two examples share."""

from __future__ import annotations

from tfshards.prep.imaging.formats import HEAD_BYTES, format_of, is_tiff


def suffix_of(data: bytes) -> str:
    """Return the suffix of the format of an encoded image, without a dot, such as ``jpg``; else ``bin``."""
    head = data[:HEAD_BYTES]
    found = format_of(head)
    if found is not None:
        return found.suffixes[0].decode("ascii").lstrip(".")
    if is_tiff(head):
        return "tif"
    return "bmp" if head.startswith(b"BM") else "bin"
