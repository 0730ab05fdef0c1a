"""Tables as a source kind.

Only the functions that need Arrow import it, because builds from other sources do not need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfshards.prep.imaging.options import ImageOptions, changed_images
from tfshards.prep.progress.lines import report_line
from tfshards.prep.sources.kind import Recorded, SourceKind, check_num_inputs
from tfshards.schemas.option import Record, recorded_values

if TYPE_CHECKING:
    from tfshards.prep.sources.tables.source import Table


def _records() -> tuple[type[Record], ...]:
    from tfshards.prep.sources.tables.column_roles import ColumnRoles
    from tfshards.prep.sources.tables.source import Table

    return Table, ColumnRoles, ImageOptions


def _make(
    source: str,
    class_names: Sequence[str] | None,
    of_table: Mapping[str, Any],
    of_columns: Mapping[str, Any],
    of_images: Mapping[str, Any],
) -> Table:
    from tfshards.prep.sources.tables.column_roles import ColumnRoles
    from tfshards.prep.sources.tables.source import Table

    images, columns = ImageOptions(**of_images), ColumnRoles(**of_columns)
    return Table(source, images, columns, class_names=class_names, **of_table)


def _restore(recorded: Recorded, inputs: Sequence[str]) -> Table:
    from tfshards.prep.sources.tables.column_roles import ColumnRoles, listed_columns
    from tfshards.prep.sources.tables.source import Table

    options: Mapping[str, Any] = recorded.options
    has_images = bool(options.get("image_columns"))
    allowed = "and at most one folder of images" if has_images else "since the dataset has no images"
    check_num_inputs(inputs, 2 if has_images else 1, f"one table, {allowed}")
    roles = _roles(recorded)
    table = Table(
        inputs[0],
        ImageOptions(**recorded_values(ImageOptions, recorded.options)),
        ColumnRoles(**roles),
        root=inputs[1] if len(inputs) == 2 else None,
        class_names=recorded.class_names,
        follow_links=recorded.follow_links,
        form=options.get("form", "table"),
    )
    stored = {*roles["images"], *roles["masks"], *recorded.schema.names, options["split_column"]}
    drop = tuple(name for name in table.column_names() if name not in stored)
    if drop and recorded.is_grown:
        report_line(f"columns left out because the dataset does not have them: {listed_columns(drop)}")
    return replace(table, columns=replace(table.columns, drop=drop))


def _recorded(recorded: Recorded, inputs: Sequence[str]) -> dict[str, Any]:
    # without SOURCE, which is missing on the command line, nothing can be read
    drop = _restore(recorded, inputs).columns.drop if inputs else ()
    form = {"form": recorded.options.get("form")}
    return {**changed_images(recorded.options), **form, **_roles(recorded), "drop": drop}


def _roles(recorded: Recorded) -> dict[str, Any]:
    """Return the fields of ``ColumnRoles`` that give the columns of a build, except ``drop``."""
    options: Mapping[str, Any] = recorded.options
    columns, masks = options.get("image_columns", {}), options.get("masks", ())
    return {
        "images": tuple(column for feature, column in columns.items() if feature not in masks),
        "masks": tuple(column for feature, column in columns.items() if feature in masks),
        "label": recorded.label,
        # not by the names of columns or folders that the build did not have
        "split": options["split_column"] or "",
        "no_images": True,
    }


TABLE = SourceKind(
    name="table",
    help="rows of a CSV, TSV, JSON Lines or Parquet file, with the images that they name",
    source_help=(
        "CSV, TSV, JSON Lines or Parquet file, a folder with metadata.csv, .jsonl or .parquet, or a folder "
        "or pattern of Parquet files"
    ),
    group_help="keep rows with equal values in this column in one split",
    records=_records,
    make=_make,
    restore=_restore,
    recorded=_recorded,
)
