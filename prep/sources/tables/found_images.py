"""Find the column of images in a table whose columns do not have the names of the convention."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES, format_of, is_tiff
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.tables.column_roles import AssignedColumns, listed_columns
from tfshards.prep.sources.tables.features import is_bytes_type
from tfshards.prep.sources.tables.nested import is_image_struct
from tfshards.prep.sources.tree import looks_like_an_image
from tfshards.schemas import InputError

# Number of rows to examine, evenly spaced.
_SAMPLE = 100
_SHOWN = 100
_REMEDY = "name the one to use with images=, or store all as they are with no_images=True"


def with_found_images(
    table: pa.Table, assigned: AssignedColumns, root: bytes
) -> tuple[AssignedColumns, list[str]]:
    """Return the columns with the one that holds images, unless the table has images, and lines on it.

    A column of text holds images if every path in a sample is that of an image file below ``root``; a column
    of bytes, if every value is that of an encoded image.

    Raises:
        InputError: several columns hold images, or only some of the files exist.
    """
    if any(feature not in assigned.masks for feature in assigned.images.values()):
        return assigned, []
    samples = {name: _sample(table[name]) for name in assigned.others if is_bytes_type(table[name].type)}
    samples = {name: sample for name, sample in samples.items() if sample}
    found = {name: _num_images(sample, root) for name, sample in samples.items()}
    whole = [name for name, number in found.items() if number == len(samples[name])]
    if len(whole) > 1:
        raise InputError(f"the columns {listed_columns(whole)} hold images; {_REMEDY}")
    if whole:
        name = whole[0]
        images = {**assigned.images, name: name}
        others = tuple(other for other in assigned.others if other != name)
        line = f"column {name!r} holds images, as with images={name!r}; no_images=True stores it as it is"
        return replace(assigned, images=images, others=others), [line]
    for name, number in found.items():
        if number:
            missing = [value for value in samples[name] if not _is_image(value, root)]
            raise InputError(
                f"column {name!r} names images, but {len(missing)} of {len(samples[name])} are none, such as "
                f"{to_text(missing[0][:_SHOWN])!r}; use it with images={name!r}, or store it as it is with "
                "no_images=True"
            )
    return assigned, [
        f"column {name!r} names image files that are not in {os.fsdecode(root)}: it is stored as text; name "
        "their folder with root="
        for name, sample in samples.items()
        if all(_suffix(value) in SUFFIXES for value in sample)
    ]


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
    values = [column[row].as_py() for row in rows.tolist()]
    return [to_bytes(value) if isinstance(value, str) else value for value in values if value]


def _num_images(sample: list[bytes], root: bytes) -> int:
    return sum(_is_image(value, root) for value in sample)


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
