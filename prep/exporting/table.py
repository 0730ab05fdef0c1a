"""The table of formats: a new format is one new file here, and one row in this table."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tfshards.prep.exporting.array_record import ARRAY_RECORD
from tfshards.prep.exporting.folder import FOLDER
from tfshards.prep.exporting.format import Format
from tfshards.prep.exporting.parquet import PARQUET
from tfshards.prep.exporting.webdataset import WEBDATASET
from tfshards.prep.views.table import REQUESTED, write_requested
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


# in the order of the help
FORMATS: dict[str, Format] = {chosen.name: chosen for chosen in (ARRAY_RECORD, WEBDATASET, PARQUET, FOLDER)}
