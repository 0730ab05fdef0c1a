"""The table of source kinds: a new kind needs one file or folder here, and one row in this table."""

from __future__ import annotations

from collections.abc import Callable

from tfshards.prep.sources.kind import SourceKind

# Kinds are imported when they are used: they need Pillow and Arrow, which an installation that only reads
# datasets does not have.


def _images() -> SourceKind:
    from tfshards.prep.sources.images.kind import IMAGES

    return IMAGES


def _arrays() -> SourceKind:
    from tfshards.prep.sources.arrays.kind import ARRAYS

    return ARRAYS


def _table() -> SourceKind:
    from tfshards.prep.sources.tables.kind import TABLE

    return TABLE


KINDS: dict[str, Callable[[], SourceKind]] = {"images": _images, "arrays": _arrays, "table": _table}
