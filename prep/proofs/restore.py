"""Source and options of a build, from what its manifest says of them: the inverse of their ``to_json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import TYPE_CHECKING, cast

from tfshards.prep.image_options import ImageOptions
from tfshards.prep.options import Balance, Duplicates, Options
from tfshards.prep.sources.arrays import Arrays
from tfshards.prep.sources.image_folder import ImageFolder
from tfshards.prep.sources.listing import Source
from tfshards.schemas import InputError, Manifest, OptionsError
from tfshards.schemas.reading import Json

if TYPE_CHECKING:
    from tfshards.prep.sources.table import Table

# What the manifest calls the sources of builds; other datasets were made of datasets, or adopted.
SOURCES = ("images", "arrays", "table")


def restored_source(manifest: Manifest, inputs: Sequence[str]) -> Source:
    """Return the source that a dataset was built from, where ``inputs`` are what it was given.

    Args:
        manifest: of the dataset.
        inputs: an image folder; or the arrays; or a table and, if its images lie elsewhere, their folder.

    Raises:
        OptionsError: there are more inputs, or fewer, than the dataset was built from.
        InputError: the dataset was not built from any of these, or an input cannot be read.
    """
    kind = kind_of_source(manifest)
    names = manifest.schema.class_names or None
    if kind == "arrays":
        lists = cast("list[str]", manifest.options.get("lists", []))
        return Arrays.open(inputs, tuple(lists), names)
    if kind == "table":
        if len(inputs) > 2:
            raise OptionsError(f"--repair {inputs[2]}: a table takes itself, and the folder of its images")
        return _restored_table(manifest, inputs[0], inputs[1] if len(inputs) == 2 else None)
    if len(inputs) > 1:
        raise OptionsError(f"--repair {inputs[1]}: the dataset was built from one folder of images")
    follow_links = bool(manifest.options.get("follow_links", False))
    return ImageFolder(inputs[0], restored_images(manifest.options), names, follow_links)


def kind_of_source(manifest: Manifest) -> str:
    """Return what a dataset was built from: ``images``, ``arrays`` or ``table``.

    Raises:
        InputError: it was built from none of these, such as one that was made of other datasets.
    """
    kind = manifest.options.get("source")
    how = f"was made by {kind}" if isinstance(kind, str) else "does not say how it was made"
    if kind in SOURCES:
        if not manifest.options.get("appended"):
            return str(kind)
        how = "was appended to"
    raise InputError(
        f"the dataset {manifest.name!r} {how}; only the shards of one that was built from images, arrays "
        "or a table at once can be made again: make it anew as it was made, or take a sound copy of the files"
    )


def restored_options(manifest: Manifest) -> Options:
    """Return the options of a build, but for what has no effect on the bytes that it writes."""
    given = manifest.options
    return Options(
        splits=cast("dict[str, str]", given["splits"]),
        stratify=bool(given["stratify"]),
        group_by=cast("str | None", given["group_by"]),
        shards_by_split=cast("dict[str, int]", given["shards"]),
        balance=cast("Balance", given["balance"]),
        name=manifest.name,
        max_rejected=Fraction(1),
        duplicates=cast("Duplicates", given.get("duplicates", "keep")),
        compression=manifest.compression,
    )


def restored_images(given: Mapping[str, Json]) -> ImageOptions:
    """Return what a build did to images."""
    names = {field.name for field in fields(ImageOptions)}
    # each was written down by an ImageOptions, which checks them again
    return ImageOptions(**{name: value for name, value in given.items() if name in names})  # type: ignore[arg-type]


def _restored_table(manifest: Manifest, path: str, root: str | None) -> Table:
    # Arrow is only for those who have tables.
    from tfshards.prep.sources.table import Table
    from tfshards.prep.sources.table_file import read_table, table_path
    from tfshards.prep.sources.table_roles import Columns

    schema, given = manifest.schema, manifest.options
    images = cast("dict[str, str]", given.get("image_columns", {}))
    masks = cast("list[str]", given.get("masks", []))
    split = cast("str | None", given["split_column"])
    label = next((feature.name for feature in schema.features if feature.kind == "label"), None)
    found = read_table(table_path(path), set(images.values())).table.column_names
    stored = {*images.values(), *schema.names, split}
    columns = Columns(
        images=tuple(column for feature, column in images.items() if feature not in masks),
        masks=tuple(column for feature, column in images.items() if feature in masks),
        label=label,
        split=split,
        drop=tuple(name for name in found if name not in stored),
    )
    # What lies behind a link was taken if it stands in the dataset; it is proved by its digest.
    return Table(path, restored_images(given), columns, root, schema.class_names or None, follow_links=True)
