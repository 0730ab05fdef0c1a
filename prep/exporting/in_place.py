"""The table of descriptions that are written into the dataset itself, for tools that read its shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

# Each writes files into a dataset, and returns their sizes in bytes by path.
IN_PLACE: dict[str, Callable[[str | os.PathLike[str]], Mapping[str, int]]] = {}
