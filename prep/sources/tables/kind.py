"""Tables as a source kind.

Only the functions that need Arrow import it, because builds from other sources do not need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfshards.prep.imaging.options import ImageOptions, changed_images
from tfshards.prep.sources.kind import Recorded, SourceKind, check_num_inputs
from tfshards.schemas.option import Record, recorded_values

if TYPE_CHECKING:
    from tfshards.prep.sources.tables.source import Form, Table


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
    from tfshards.prep.sources.tables.source import RestoredTable

    if _image_columns(recorded):
        check_num_inputs(inputs, 2, "one table, with at most one folder of images")
    else:
        check_num_inputs(inputs, 1, "one table, since the dataset has no images")
    roles = _roles(recorded, inputs)
    if roles["drop"] and recorded.is_grown:
        dropped = listed_columns(roles["drop"])
        recorded.log(f"columns left out because the dataset does not have them: {dropped}")
    return RestoredTable(
        inputs[0],
        ImageOptions(**recorded_values(ImageOptions, recorded.options)),
        ColumnRoles(**roles),
        root=inputs[1] if len(inputs) == 2 else None,
        class_names=recorded.class_names,
        follow_links=recorded.follow_links,
        form=_form(recorded),
    )


def _recorded(recorded: Recorded, inputs: Sequence[str]) -> dict[str, Any]:
    roles = _roles(recorded, inputs)
    form = _form(recorded)
    return {**changed_images(recorded.options), "form": None if form == "table" else form, **roles}


def _roles(recorded: Recorded, inputs: Sequence[str]) -> dict[str, Any]:
    """Return the fields of ``ColumnRoles`` that give the columns of a build."""
    images, masks = _image_columns(recorded), _options(recorded).get("masks", ())
    return {
        "images": tuple(column for feature, column in images.items() if feature not in masks),
        "masks": tuple(column for feature, column in images.items() if feature in masks),
        "label": recorded.label,
        # not by the names of columns or folders that the build did not have
        "split": _options(recorded)["split_column"] or "",
        # without SOURCE, which is missing on the command line, nothing can be read
        "drop": _left_out(recorded, inputs) if inputs else (),
        "no_images": True,
    }


def _left_out(recorded: Recorded, inputs: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table, with perhaps the folder of its images, that a dataset does not have."""
    from tfshards.prep.sources.tables.column_roles import ColumnRoles
    from tfshards.prep.sources.tables.source import RestoredTable

    images = _image_columns(recorded)
    given = RestoredTable(
        inputs[0],
        columns=ColumnRoles(images=tuple(images.values())),
        root=inputs[1] if len(inputs) == 2 else None,
        follow_links=recorded.follow_links,
        form=_form(recorded),
    )
    stored = {*images.values(), *recorded.schema.names, _options(recorded)["split_column"]}
    return tuple(name for name in given.column_names() if name not in stored)


def _options(recorded: Recorded) -> Mapping[str, Any]:
    return recorded.options


def _image_columns(recorded: Recorded) -> Mapping[str, str]:
    columns: Mapping[str, str] = _options(recorded).get("image_columns", {})
    return columns


def _form(recorded: Recorded) -> Form:
    form: Form = _options(recorded).get("form", "table")
    return form


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
