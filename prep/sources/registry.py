"""The table of source kinds: a new kind needs one file or folder here, and one row in this table."""

from __future__ import annotations

from tfshards.prep.sources.arrays.kind import ARRAYS
from tfshards.prep.sources.images.kind import IMAGES
from tfshards.prep.sources.kind import SourceKind
from tfshards.prep.sources.tables.kind import TABLE

KINDS: dict[str, SourceKind] = {kind.name: kind for kind in (IMAGES, ARRAYS, TABLE)}
