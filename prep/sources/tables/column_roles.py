"""What each column of a table is used for: by its name, by the user's choice, or by what it holds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES, format_of, is_tiff
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.tables.features import is_bytes_type, is_image_struct
from tfshards.prep.sources.tables.images import are_images, is_url
from tfshards.prep.sources.tables.staging import IMAGE, PATH, SIZE
from tfshards.prep.sources.tree import looks_like_an_image
from tfshards.schemas import InputError
from tfshards.schemas.errors import listed
from tfshards.schemas.option import check_strings, option

_FILE_NAME = "file_name"
_SUFFIX = "_file_name"
_SHOWN_COLUMNS = 20


@dataclass(frozen=True)
class ColumnRoles:
    """The roles that the user assigns to columns; the names of other columns determine their roles.

    Attributes:
        images: columns of image paths; each becomes a feature with the name of the column.
        masks: columns of paths of masks, whose pixel values are classes.
        label: column of classes; by default ``label``, if it exists.
        split: column of split names; by default ``split``, if it exists. If it is a column of image paths,
            as by default if their first folders are two or more of train, val, test and the like, these name
            the splits. An empty string is none of these.
        drop: columns that are not stored; the name of a struct stands for all of its fields.
        no_images: store paths of images as text, and encoded images as bytes, unless their column has the
            name of the convention or is among ``images`` or ``masks``.

    Raises:
        OptionsError: ``images``, ``masks`` or ``drop`` is not a list of strings.
    """

    images: tuple[str, ...] = option(
        (),
        "column of image paths or images, in addition to file_name and NAME_file_name",
        flag="image",
        metavar="COLUMN",
        is_repeatable=True,
        default_text="the only column that holds images",
    )
    masks: tuple[str, ...] = option(
        (),
        "column of mask paths; the pixel values of masks are never interpolated",
        flag="mask",
        metavar="COLUMN",
        is_repeatable=True,
    )
    label: str | None = option(
        None,
        "column of classes: text, integers, or lists of these",
        metavar="COLUMN",
        default_text="label, if it exists",
    )
    split: str | None = option(
        None,
        "column that names the split of each row, or of image paths whose first folder names it; '' for none",
        flag="split-column",
        metavar="COLUMN",
        default_text="split, if it exists, or the folders if they are train, test, ...",
    )
    drop: tuple[str, ...] = option((), "column that is not stored", metavar="COLUMN", is_repeatable=True)
    no_images: bool = option(
        False, "store paths and encoded images in columns with other names as text and bytes"
    )

    def __post_init__(self) -> None:
        for name in ("images", "masks", "drop"):
            check_strings(name, getattr(self, name))


@dataclass(frozen=True)
class AssignedColumns:
    """What each column of a table is used for.

    Attributes:
        images: feature name by column of paths; the paths of the first column are the keys.
        label: column of classes, or None.
        split: column of split names, or None.
        others: columns that are stored as values.
        masks: features among ``images`` that are masks.
        embedded: features among ``images`` whose columns hold encoded images rather than paths.
        is_label_named: whether the user named the column of classes.
    """

    images: Mapping[str, str]
    label: str | None
    split: str | None
    others: tuple[str, ...]
    masks: frozenset[str] = frozenset()
    embedded: frozenset[str] = frozenset()
    is_label_named: bool = False

    def without_label(self) -> AssignedColumns:
        """Return the columns with the label column stored as values instead."""
        return replace(self, label=None, others=(*filter(None, [self.label]), *self.others))


def assign_columns(names: Sequence[str], columns: ColumnRoles, path: str) -> AssignedColumns:
    """Return what the columns ``names`` of the table in ``path`` are used for.

    By the convention of Hugging Face's datasets, ``file_name`` holds the paths of images, and
    ``NAME_file_name`` the paths of another image ``NAME``.

    Raises:
        InputError: a named column does not exist or has two roles, or two features have the same name.
    """
    if len(names) == 1 and any(mark in names[0] for mark in ";|\t"):
        raise InputError("table-one-column", path=path, names=names[0])
    drop = [field for name in columns.drop for field in _fields(name, names)]
    # a column of paths may give the splits, too
    is_of_paths = columns.split in columns.images or _is_by_name(columns.split or "")
    split = None if is_of_paths else columns.split
    named = [*columns.images, *columns.masks, *filter(None, (columns.label, split)), *drop]
    for name in named:
        if name not in names:
            raise InputError("column-unknown", path=path, name=name, names=listed_columns(names))
        if named.count(name) > 1:
            raise InputError("column-roles-repeated", name=name)
    free = [name for name in names if name not in named]
    images: dict[str, str] = {}
    for name in names:
        if name in columns.images or name in columns.masks or (name in free and _is_by_name(name)):
            images[name] = name.removesuffix(_SUFFIX)
    images = {name: "image" if name == _FILE_NAME else feature for name, feature in images.items()}
    if _FILE_NAME in images:
        # its path is the key, whatever the order of the columns
        images = {_FILE_NAME: images.pop(_FILE_NAME), **images}
    label = columns.label or ("label" if "label" in free else None)
    if is_of_paths:
        split = columns.split
        if split not in images:
            raise InputError("column-unknown", path=path, name=split, names=listed_columns(names))
    elif columns.split is None and "split" in free:
        split = "split"
    elif not split:
        split = None
    others = tuple(name for name in free if name not in (*images, label, split))
    _check_features([*images.values(), *filter(None, [label]), *others], path)
    masks = frozenset(feature for column, feature in images.items() if column in columns.masks)
    return AssignedColumns(images, label, split, others, masks, is_label_named=columns.label is not None)


def listed_columns(names: Sequence[str]) -> str:
    """Return names on one line, for a message."""
    return listed([name if name.isprintable() else repr(name) for name in names], _SHOWN_COLUMNS)


def _is_by_name(name: str) -> bool:
    """Return whether a column has the name of the convention for paths of images."""
    return name == _FILE_NAME or (name.endswith(_SUFFIX) and name != _SUFFIX)


def _fields(name: str, names: Sequence[str]) -> list[str]:
    """Return the column ``name``, or if there is none, the columns of the fields of the struct ``name``."""
    fields = [] if name in names else [each for each in names if each.startswith(f"{name}/")]
    return fields or [name]


def _check_features(features: Sequence[str], path: str) -> None:
    if not features:
        raise InputError("table-no-columns", path=path)
    for name in features:
        if features.count(name) > 1:
            raise InputError("columns-same-feature", path=path, name=name)
        if not name:
            raise InputError("column-empty-name", path=path)
        if name == "key" or not name.isprintable():
            why = "has the name of the keys" if name == "key" else "has a name that cannot be printed"
            raise InputError("column-name", path=path, name=name, why=why)


# Number of rows to examine, evenly spaced.
_SAMPLE = 100
# Usual names of columns of paths.
_USUAL = frozenset(
    {"image", "img", "photo", "picture", "filename", "image_path", "img_path", "image_file", "image_name"}
    | {"filepath", "file_path", "path"}
)
_URL = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://")
_SHOWN = 100
_REMEDY = "name the one to use with images=, or store all as they are with no_images=True"


def with_found_images(
    table: pa.Table, assigned: AssignedColumns, root: bytes
) -> tuple[AssignedColumns, list[str]]:
    """Return the columns with the one that holds images, unless the table has images, and lines on it.

    A column of text holds images if every path in a sample leads to an image file below ``root``; a column
    of bytes, if every value is an encoded image.

    Raises:
        InputError: several columns hold images, or some of the files do not exist.
    """
    if any(feature not in assigned.masks for feature in assigned.images.values()):
        return assigned, []
    samples = {name: _sample(table[name]) for name in assigned.others if is_bytes_type(table[name].type)}
    samples = {name: sample for name, sample in samples.items() if sample}
    images_of = {name: _images_among(sample, root) for name, sample in samples.items()}
    found = {name: len(images) for name, images in images_of.items()}
    whole = [name for name, number in found.items() if number == len(samples[name])]
    if len(whole) > 1:
        raise InputError("columns-of-images", whole=listed_columns(whole), remedy=_REMEDY)
    if whole:
        name = whole[0]
        images = {**assigned.images, name: name}
        others = tuple(other for other in assigned.others if other != name)
        line = f"column {name!r} holds images, as with images={name!r}; no_images=True stores it as it is"
        return replace(assigned, images=images, others=others), [line]
    for name, number in found.items():
        if number:
            missing = [value for value in samples[name] if value not in images_of[name]]
            raise InputError(
                "column-names-no-images",
                name=name,
                num_missing=len(missing),
                num_samples=len(samples[name]),
                missing=to_text(missing[0][:_SHOWN]),
            )
    for name, sample in samples.items():
        if all(_suffix(value) in SUFFIXES and not _URL.match(value) for value in sample):
            first = to_text(sample[0][:_SHOWN])
            raise InputError("column-images-missing", name=name, first=first, root=os.fsdecode(root))
    return assigned, list(_unused(table, assigned, samples))


def check_header(names: Sequence[str], root: bytes) -> None:
    """Raise InputError if the name of a column is the path of an image file, which belongs to a row."""
    for name in names:
        path = to_bytes(name)
        if _suffix(path) in SUFFIXES and _images_among([path], root):
            raise InputError("table-no-header", name=name)


def check_found(rows: pa.Table, images: Mapping[str, str], root: bytes, remedy: str) -> None:
    """Raise InputError if no file of a column of paths exists, which is a wrong root rather than damage.

    Args:
        rows: staged rows, with the sizes of the files.
        images: feature of each column.
        root: folder to which the paths are relative.
        remedy: what to do, for the message.
    """
    for column, name in images.items():
        paths = [path for path in rows[PATH + name].to_pylist() if path]
        if paths and IMAGE + name not in rows.column_names and pc.max(rows[SIZE + name]).as_py() < 0:
            first = to_text(paths[0])[:_SHOWN]
            if not any(map(_suffix, paths)):
                remedy = f"write the paths with their suffixes, such as {first + '.jpg'!r}, or {remedy}"
            raise InputError(
                "column-no-image-exists", column=column, first=first, root=os.fsdecode(root), remedy=remedy
            )


def _unused(table: pa.Table, assigned: AssignedColumns, samples: Mapping[str, list[bytes]]) -> Iterator[str]:
    """Yield a warning for each column that seems to name images, but whose values are not paths."""
    for name in assigned.others:
        sample = samples.get(name, [])
        if any(_URL.match(value) and _suffix(value) in SUFFIXES for value in sample):
            yield (
                f"column {name!r} holds URLs of images, which are not fetched: it is stored as text; to "
                f"use them, download the images, or, of an object store, name the column with images={name!r}"
            )
        elif name.lower() in _USUAL and (
            pa.types.is_integer(table[name].type)
            or (sample and all(not _suffix(value) and b" " not in value for value in sample))
        ):
            first = sample[0][:_SHOWN].decode("utf-8", "replace") if sample else table[name][0].as_py()
            yield (
                f"column {name!r} has the name of a column of images, but its values, such as {first!r}, are "
                "not paths of files: it is stored as it is; write paths such as 'photos/1.jpg' into it"
            )


def embedded_images(table: pa.Table, images: Mapping[str, str]) -> frozenset[str]:
    """Return the features of the columns ``images`` that hold encoded images rather than their paths."""
    return frozenset(feature for name, feature in images.items() if _is_embedded(table[name]))


def image_structs(table: pa.Table) -> tuple[str, ...]:
    """Return the columns that are structs of encoded images and their paths."""
    return tuple(field.name for field in table.schema if is_image_struct(field.type))


def _is_embedded(column: pa.ChunkedArray) -> bool:
    if is_image_struct(column.type):
        return bool(fields_of(column)["bytes"].null_count < len(column))
    if not is_bytes_type(column.type) or not _holds_bytes(column.type):
        return False
    return any(map(_is_encoded, _sample(column)))


def fields_of(column: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """Return the fields of a column of structs, by name."""
    return {field.name: values for field, values in zip(column.type, column.flatten(), strict=True)}


def _holds_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _sample(column: pa.ChunkedArray) -> list[bytes]:
    """Return some values that are neither missing nor empty."""
    rows = np.unique(np.linspace(0, len(column) - 1, _SAMPLE).astype(np.int64))
    # one by one, because Arrow cannot take rows of every type of text
    buffers = [column[row].as_buffer() for row in rows.tolist()]
    return [buffer.to_pybytes() for buffer in buffers if buffer]


def _images_among(sample: list[bytes], root: bytes) -> list[bytes]:
    if not is_url(root):
        return [value for value in sample if _is_image(value, root)]
    are = are_images(root, [b"" if _is_encoded(value) else value for value in sample])
    return [value for value, is_one in zip(sample, are, strict=True) if is_one or _is_encoded(value)]


def _is_image(value: bytes, root: bytes) -> bool:
    """Return whether a value is an encoded image, or the path of an image file."""
    if _is_encoded(value):
        return True
    if b"\0" in value or len(value) > 4096:
        return False
    path = os.path.join(root, value)
    try:
        return os.path.isfile(path) and (
            _suffix(value) in SUFFIXES or looks_like_an_image(path, _suffix(value))
        )
    except OSError:
        return False


def _is_encoded(value: bytes) -> bool:
    head = value[:HEAD_BYTES]
    # text may begin with the signature of BMP, which the size of the file follows
    is_bitmap = head.startswith(b"BM") and int.from_bytes(head[2:6], "little") == len(value)
    return format_of(head) is not None or is_tiff(head) or is_bitmap


def _suffix(path: bytes) -> bytes:
    return os.path.splitext(path)[1].lower()
