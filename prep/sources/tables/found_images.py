"""Find the column of images in a table whose columns do not have the names of the convention."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES, format_of, is_tiff
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.tables.column_roles import AssignedColumns, listed_columns
from tfshards.prep.sources.tables.features import is_bytes_type
from tfshards.prep.sources.tables.nested import is_image_struct
from tfshards.prep.sources.tables.remote_images import are_images, is_url
from tfshards.prep.sources.tables.staging import IMAGE, PATH, SIZE
from tfshards.prep.sources.tree import looks_like_an_image
from tfshards.schemas import InputError

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

    A column of text holds images if every path in a sample is that of an image file below ``root``; a column
    of bytes, if every value is that of an encoded image.

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
