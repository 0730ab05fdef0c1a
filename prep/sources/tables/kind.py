"""Tables as a source kind: their arguments, and how a build from one is restored.

Only the functions that need Arrow import it, because builds from other sources do not need it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from tfshards.prep.sources.image_arguments import (
    add_image_arguments,
    image_options_from,
    recorded_image_flags,
    restored_images,
)
from tfshards.prep.sources.kind import Recorded, SourceKind, check_num_inputs
from tfshards.schemas.json_reader import Json

if TYPE_CHECKING:
    from tfshards.prep.sources.tables.source import Form, Table


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="CSV, TSV, JSON Lines or Parquet file, a folder with metadata.csv, .jsonl or .parquet, or a "
        "folder or pattern of Parquet files",
    )
    parser.add_argument(
        "--from",
        dest="form",
        default="table",
        choices=["table", "coco", "yolo"],
        help="form of SOURCE: a table (default); COCO's instances_*.json, or a folder that has them in "
        "annotations/; a folder of images with YOLO's text files, or a data.yaml of Ultralytics",
    )
    add = parser.add_argument_group("column options").add_argument
    add(
        "--root",
        metavar="DIR",
        help="folder to which image paths are relative (default: the table's folder)",
    )
    add(
        "--image",
        dest="images",
        action="append",
        default=[],
        metavar="COLUMN",
        help="column of image paths or images, in addition to file_name and NAME_file_name; repeatable "
        "(default: the only column that holds images)",
    )
    add(
        "--mask",
        dest="masks",
        action="append",
        default=[],
        metavar="COLUMN",
        help="column of mask paths; the pixel values of masks are never interpolated; repeatable",
    )
    add(
        "--no-images",
        action="store_true",
        help="store paths and encoded images in columns with other names as text and bytes",
    )
    add(
        "--label",
        metavar="COLUMN",
        help="column of classes: text, integers, or lists of these (default: label, if it exists)",
    )
    add(
        "--split-column",
        dest="split",
        metavar="COLUMN",
        help="column that names the split of each row, or of image paths whose first folder names it "
        "(default: split, if it exists, or the folders if they are train, test, ...; '' for none)",
    )
    add(
        "--drop",
        action="append",
        default=[],
        metavar="COLUMN",
        help="column that is not stored; repeatable",
    )
    add_image_arguments(parser)


def _from_arguments(options: argparse.Namespace, class_names: Sequence[str] | None) -> Table:
    from tfshards.prep.sources.tables.column_roles import ColumnRoles
    from tfshards.prep.sources.tables.source import Table

    columns = ColumnRoles(
        images=tuple(options.images),
        masks=tuple(options.masks),
        label=options.label,
        split=options.split,
        drop=tuple(options.drop),
        no_images=options.no_images,
    )
    return Table(
        options.source,
        image_options_from(options),
        columns,
        root=options.root,
        class_names=class_names,
        follow_links=options.follow_links,
        form=options.form,
    )


def _restore(recorded: Recorded, inputs: Sequence[str]) -> Table:
    from tfshards.prep.sources.tables.column_roles import ColumnRoles, listed_columns
    from tfshards.prep.sources.tables.source import RestoredTable

    options = recorded.options
    images = cast("dict[str, str]", options.get("image_columns", {}))
    if images:
        check_num_inputs(inputs, 2, "one table, with at most one folder of images")
    else:
        check_num_inputs(inputs, 1, "one table, since the dataset has no images")
    masks = cast("list[str]", options.get("masks", []))
    split = cast("str | None", options["split_column"])
    label = _label(recorded)
    root = inputs[1] if len(inputs) == 2 else None
    form = cast("Form", options.get("form", "table"))
    drop = _left_out(recorded, inputs)
    if drop and recorded.is_grown:
        recorded.log(f"columns left out because the dataset does not have them: {listed_columns(drop)}")
    columns = ColumnRoles(
        images=tuple(column for feature, column in images.items() if feature not in masks),
        masks=tuple(column for feature, column in images.items() if feature in masks),
        label=label,
        # not by the names of columns or folders that the build did not have
        split=split or "",
        drop=drop,
        no_images=True,
    )
    return RestoredTable(
        inputs[0],
        restored_images(options),
        columns,
        root=root,
        class_names=recorded.class_names,
        follow_links=recorded.follow_links,
        form=form,
    )


def _label(recorded: Recorded) -> str | None:
    return next((feature.name for feature in recorded.schema.features if feature.kind == "label"), None)


def _left_out(recorded: Recorded, inputs: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table, with perhaps the folder of its images, that a dataset does not have."""
    from tfshards.prep.sources.tables.column_roles import ColumnRoles
    from tfshards.prep.sources.tables.source import RestoredTable

    options = recorded.options
    images = cast("dict[str, str]", options.get("image_columns", {}))
    root = inputs[1] if len(inputs) == 2 else None
    named = ColumnRoles(images=tuple(images.values()))
    form = cast("Form", options.get("form", "table"))
    given = RestoredTable(inputs[0], columns=named, root=root, follow_links=recorded.follow_links, form=form)
    stored = {*images.values(), *recorded.schema.names, options["split_column"]}
    return tuple(name for name in given.column_names() if name not in stored)


def _recorded(recorded: Recorded, inputs: Sequence[str]) -> dict[str, Json]:
    options = recorded.options
    images = cast("dict[str, str]", options.get("image_columns", {}))
    masks = cast("list[str]", options.get("masks", []))
    return {
        **recorded_image_flags(options),
        "from": options.get("form"),
        "image": [column for feature, column in images.items() if feature not in masks],
        "mask": [column for feature, column in images.items() if feature in masks],
        "no-images": True,
        "label": _label(recorded),
        "split-column": options["split_column"] or "",
        # without SOURCE, which is missing on the command line, nothing can be read
        "drop": [*_left_out(recorded, inputs)] if inputs else [],
    }


TABLE = SourceKind(
    name="table",
    help="rows of a CSV, TSV, JSON Lines or Parquet file, with the images that they name",
    group_help="keep rows with equal values in this column in one split",
    add_arguments=_add_arguments,
    from_arguments=_from_arguments,
    restore=_restore,
    recorded=_recorded,
)
