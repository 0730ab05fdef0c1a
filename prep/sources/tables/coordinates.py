"""Columns that are declared to hold boxes or keypoints, as columns of numbers with their coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.tables.features import (
    TEXT,
    StoredColumn,
    is_list_type,
    is_text_type,
    plain_values,
    relisted,
    shown,
    unlisted,
)
from tfshards.schemas import Feature, InputError
from tfshards.schemas.coordinates import Coordinates
from tfshards.schemas.errors import listed
from tfshards.schemas.index import IntArray

# The format of columns of numbers that are not boxes.
NONE = "none"
_SHOWN = 3
Numbers: TypeAlias = "npt.NDArray[np.float32]"


def with_joined(table: pa.Table, formats: Mapping[str, str], feature: str) -> tuple[pa.Table, dict[str, str]]:
    """Return the table with several columns of one number each as one of lists, and the formats by column.

    The columns ``xmin,ymin,xmax,ymax`` become the column ``feature``, with the prefix that all have, such as
    ``objects/``.
    """
    names: dict[str, str] = {}
    for given, found in formats.items():
        parts = given.split(",")
        if given in table.column_names or len(parts) == 1 or not set(parts) <= set(table.column_names):
            names[given] = found
            continue
        if found == NONE:
            names |= dict.fromkeys(parts, NONE)
            continue
        prefixes = {part.rpartition("/")[0] for part in parts}
        prefix = prefixes.pop() if len(prefixes) == 1 else ""
        name = f"{prefix}/{feature}" if prefix else feature
        others = [each for each in table.column_names if each not in parts]
        if name in others or name in names:
            raise InputError("coordinates-joined", given=given, name=name)
        joined = _joined(given, [table[part] for part in parts])
        table, names[name] = table.select(others).append_column(name, joined), found
    return table, names


def _joined(given: str, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Return a column of lists of the numbers in several columns, or of lists of these lists."""
    flats, lengths = zip(*map(unlisted, columns), strict=True)
    if any((each is None) != (lengths[0] is None) for each in lengths) or not all(
        each is None or np.array_equal(each, lengths[0]) for each in lengths
    ):
        raise InputError("coordinates-lengths", given=given)
    numbers = np.stack([_numbers(given, flat) for flat in flats], axis=1)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), len(columns))
    return relisted(pa.chunked_array([rows]), lengths[0])


def coordinates_column(name: str, column: pa.ChunkedArray, text: str) -> StoredColumn:
    """Return a column of boxes or keypoints as lists of float32.

    Lists of numbers have shape ``(4,)``, and for k keypoints ``(k, 2)`` or ``(k, 3)``, if all rows have as
    many; else the first dimension varies. Lists of lists have shape ``(None, k)``: a row for each object.
    """
    coordinates = Coordinates.parse(text)
    width = 4 if coordinates.are_boxes else len(coordinates.order)
    if is_text_type(column.type):
        raise InputError("coordinates-text", name=name)
    flat, lengths = unlisted(column)
    if lengths is None:
        raise InputError("coordinates-type", name=name, format=text, width=width, kind=shown(column.type))
    shape: tuple[int | None, ...]
    if is_list_type(flat.type):
        flat, inner = unlisted(flat)
        found = sorted({*inner.tolist()}) if inner is not None else []
        step = found[0] if found else width
        if len(found) > 1 or not step or step % width or (coordinates.are_boxes and step != width):
            raise InputError(
                "coordinates-count",
                name=name,
                format=text,
                width=width,
                found=listed([*map(str, found)], _SHOWN),
            )
        shape, lengths = (None, step), lengths * step
    else:
        counts: IntArray = np.unique(lengths)
        if (counts % width).any():
            number = int(counts[counts % width > 0][0])
            raise InputError("coordinates-count", name=name, format=text, width=width, found=number)
        each = int(counts[0]) // width if len(counts) == 1 else 0
        shape = (each or None, width) if each != 1 or not coordinates.are_boxes else (width,)
    numbers = pa.chunked_array([pa.array(_numbers(name, flat))])
    return StoredColumn(relisted(numbers, lengths), Feature(name, "float", "float32", shape, text))


def _numbers(name: str, flat: pa.ChunkedArray) -> Numbers:
    """Return numbers as float32; missing ones are NaN."""
    if pa.types.is_null(flat.type):
        return np.full(len(flat), np.nan, np.float32)
    plain = plain_values(name, flat, flat.type)
    if plain.type == TEXT or pa.types.is_boolean(plain.type):
        raise InputError("coordinates-type", name=name, format="numbers", width=1, kind=shown(flat.type))
    # numbers beyond float32 become infinite, which is reported with their image
    with np.errstate(over="ignore"):
        numbers: Numbers = pc.cast(plain, pa.float64(), safe=False).to_numpy().astype(np.float32)
    return numbers
