"""Tables as sources: files of rows, or any Arrow stream."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from tfshards.prep.imaging.formats import METADATA_NAMES
from tfshards.prep.sources.features import classes_in
from tfshards.prep.sources.row_columns import TableRows
from tfshards.prep.sources.table_files import find_files, read_files
from tfshards.prep.sources.table_rows import RowSource
from tfshards.schemas import OptionsError
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.any_path import real_name


@dataclass(frozen=True)
class Table(RowSource):
    """The rows of CSV, TSV, JSON Lines or Parquet files, or of any Arrow stream in memory.

    Attributes are also those of ``RowSource``.

    Attributes:
        source: CSV, TSV, JSON Lines or Parquet file; a folder with metadata.csv, metadata.jsonl or
            metadata.parquet; or a folder or pattern of files of one suffix, whose names may give splits. In
            Python also a pandas or polars DataFrame, a relation of DuckDB, or anything else with
            ``__arrow_c_stream__``.
        label_separator: what separates the classes in a text of the label column, such as "|". An empty text
            is no class. An empty string states that each text is one class.
    """

    label_separator: str | None = None

    RECORDED: ClassVar[tuple[str, ...]] = (*RowSource.RECORDED, "label_separator")
    kind = "table"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.source, (str, os.PathLike)) and not hasattr(self.source, "__arrow_c_stream__"):
            kind = type(self.source).__name__
            raise OptionsError(
                f"the source of a table is a path, or has __arrow_c_stream__, not {kind}; several files are "
                "a folder or a pattern, such as 'rows/*.csv', and a LazyFrame of polars has collect()"
            )

    def rows(self, root: AnyPath | None, needed: Collection[str | None]) -> TableRows:
        """Return the rows of the files or the stream; ``needed`` names columns to read even if dropped."""
        if isinstance(self.source, (str, os.PathLike)):
            files = find_files(self.source, follow_links=self.follow_links)
            dropped = {name for name, role in self.roles.items() if role == "drop"}.difference(needed)
            read = read_files(files, dropped)
            folder = files.where if files.where.is_dir() else files.paths[0].parent
            is_metadata = files.where.name in METADATA_NAMES
        else:
            stream = pa.RecordBatchReader.from_stream(self.source)
            read = TableRows(
                stream,
                where=f"this {type(self.source).__name__}",
                class_names=classes_in(stream.schema.metadata),
            )
            folder, is_metadata = Path(), False
        base = root or folder
        return replace(
            read,
            root=os.fsencode(real_name(base)),
            # by convention the folder belongs to its metadata
            owns_root=is_metadata and root is None,
            separator=self.label_separator,
        )
