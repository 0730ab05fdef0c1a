"""Tables as a source kind.

Only the functions that need Arrow import it, because builds from other sources do not need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.progress.lines import report_line
from tfshards.prep.sources.kind import Recorded, SourceKind, check_num_inputs
from tfshards.schemas.option import recorded_values

if TYPE_CHECKING:
    from tfshards.prep.sources.tables.column_roles import ColumnRoles
    from tfshards.prep.sources.tables.row_options import RowOptions
    from tfshards.prep.sources.tables.source import Table


def _classes() -> tuple[type[Table], type[ColumnRoles], type[RowOptions]]:
    from tfshards.prep.sources.tables.column_roles import ColumnRoles
    from tfshards.prep.sources.tables.row_options import RowOptions
    from tfshards.prep.sources.tables.source import Table

    return Table, ColumnRoles, RowOptions


def _make(
    source: str,
    class_names: Sequence[str] | None,
    of_table: Mapping[str, Any],
    of_columns: Mapping[str, Any],
    of_rows: Mapping[str, Any],
    of_images: Mapping[str, Any],
) -> Table:
    table, columns, rows = _classes()
    images, roles, of_text = ImageOptions(**of_images), columns(**of_columns), rows(**of_rows)
    return table(source, images, roles, rows=of_text, class_names=class_names, **of_table)


def _restore(recorded: Recorded, inputs: Sequence[str]) -> Table:
    from tfshards.prep.sources.tables.assigned_columns import listed_columns

    make, columns, rows = _classes()
    options: Mapping[str, Any] = recorded.options
    has_images = bool(options.get("image_columns"))
    allowed = "and at most one folder of images" if has_images else "since the dataset has no images"
    check_num_inputs(inputs, 2 if has_images else 1, f"one table, {allowed}")
    roles = _roles(recorded)
    table = make(
        inputs[0],
        ImageOptions(**recorded_values(ImageOptions, recorded.options)),
        columns(**roles),
        rows=rows(**recorded_values(rows, recorded.options)),
        root=inputs[1] if len(inputs) == 2 else None,
        class_names=recorded.class_names,
        follow_links=recorded.follow_links,
        form=options.get("form", "table"),
        split_list=options.get("split_list", {}),
    )
    stored = {*roles["images"], *roles["masks"], *recorded.schema.names, options["split_column"]}
    stored |= {part for name in (*roles["boxes"], *roles["keypoints"]) for part in (name, *name.split(","))}
    drop = tuple(name for name in table.column_names() if name not in stored)
    if drop and recorded.is_grown:
        report_line(f"columns left out because the dataset does not have them: {listed_columns(drop)}")
    return replace(table, columns=replace(table.columns, drop=drop))


def _roles(recorded: Recorded) -> dict[str, Any]:
    """Return the fields of ``ColumnRoles`` that give the columns of a build, except ``drop``."""
    options: Mapping[str, Any] = recorded.options
    columns, masks = options.get("image_columns", {}), options.get("masks", ())
    return {
        "images": tuple(column for feature, column in columns.items() if feature not in masks),
        "masks": tuple(column for feature, column in columns.items() if feature in masks),
        # a column of that name need not hold classes
        "label": recorded.label or ("" if "label" in recorded.schema.names else None),
        "label_separator": options.get("label_separator", ""),
        "missing": options.get("missing", {}),
        # not by the names of columns or folders that the build did not have
        "split": options["split_column"] or "",
        "no_images": True,
        "boxes": options.get("boxes", {}),
        "keypoints": options.get("keypoints", {}),
        **{name: options[name] for name in ("outside_boxes", "boxes_in", "segmentations") if name in options},
    }


TABLE = SourceKind(
    name="table",
    help="rows of a CSV, TSV, JSON Lines or Parquet file, with the images that they name",
    source_help=(
        "CSV, TSV, JSON Lines or Parquet file, a folder with metadata.csv, .jsonl or .parquet, or a folder "
        "or pattern of Parquet files"
    ),
    group_help="keep rows with equal values in this column in one split",
    records=lambda: (*_classes(), ImageOptions),
    make=_make,
    restore=_restore,
)
