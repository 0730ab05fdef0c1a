"""The table of formats: a new format is one new file here, and one row in this table."""

from __future__ import annotations

from tfshards.prep.exporting.format import Format
from tfshards.prep.exporting.parquet import PARQUET
from tfshards.prep.exporting.webdataset import WEBDATASET

# in the order of the help
FORMATS: dict[str, Format] = {chosen.name: chosen for chosen in (WEBDATASET, PARQUET)}
