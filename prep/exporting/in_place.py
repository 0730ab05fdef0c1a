"""Descriptions that are written into the dataset itself, for tools that read its shards or its metadata."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tfshards.prep.views.requested import REQUESTED, write_requested
from tfshards.schemas import read_manifest
from tfshards.schemas.storage import any_path

# Names of these descriptions, as ``to=`` takes them.
IN_PLACE = tuple(REQUESTED)


def describe_in_place(dataset: str | os.PathLike[str], to: str) -> Mapping[str, int]:
    """Write a description into a dataset, and return the size in bytes of its file by path.

    Raises:
        InputError: ``dataset`` is not a dataset, or has a file of that name that tfshards did not write.
    """
    view = REQUESTED[to]
    return {view.path: write_requested(read_manifest(dataset), any_path(dataset), view)}
