"""Columns of a table as features: what each type becomes, and the values of its rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.classes import class_map
from tfshards.prep.example import Values
from tfshards.prep.plan import IntArray
from tfshards.schemas import Feature, InputError
from tfshards.schemas.manifest import name_fault

# Above this, integers are a quantity rather than classes.
_MAX_CLASSES = 10_000

_DTYPES = {
    pa.bool_(): "bool",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.uint8(): "uint8",
    pa.uint16(): "uint16",
    pa.uint32(): "uint32",
    pa.float16(): "float16",
    pa.float32(): "float32",
    pa.float64(): "float64",
}


def plain_column(
    name: str, column: pa.ChunkedArray, *, as_path: bool = False
) -> tuple[pa.ChunkedArray, Feature, str | None]:
    """Return a column in the type in which it is stored, its feature, and a warning if that is not exact.

    Integers and booleans are stored as int64 lists, text and bytes as byte strings, floating point numbers as
    raw little-endian bytes; lists of any of these with their length if it is the same in all rows. Lists of
    floating point numbers that differ in length become float32. Dates, times and decimals become text.

    Raises:
        InputError: the type cannot be stored, or a value is missing.
    """
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    item = kind.value_type if is_list else kind
    if pa.types.is_dictionary(item):
        item = item.value_type
        column = column.cast(pa.list_(item) if is_list else item)
    if pa.types.is_temporal(item) or pa.types.is_decimal(item):
        item = pa.string()
        column = column.cast(pa.list_(item) if is_list else item)
    if pa.types.is_null(item):
        raise InputError(f"column {name!r}: every value is missing; leave it out with --drop {name}")
    is_text = pa.types.is_string(item) or pa.types.is_large_string(item)
    is_bytes = (
        pa.types.is_binary(item) or pa.types.is_large_binary(item) or pa.types.is_fixed_size_binary(item)
    )
    if not (is_text or is_bytes or item in _DTYPES):
        raise InputError(
            f"column {name!r}: its type {kind} cannot be stored; leave it out with --drop {name}"
        )
    if as_path and (is_list or not (is_text or is_bytes)):
        raise InputError(f"column {name!r}: paths of images are text, and these are {kind}")
    column = _without_missing(name, column, item, is_list=is_list)
    shape = _shape(column) if is_list else ()
    if is_text or is_bytes:
        target = pa.large_binary()
        stored = column.cast(pa.large_list(target) if is_list else target)
        return stored, Feature(name, "bytes", "bytes", shape), None
    dtype = _DTYPES[item]
    if not dtype.startswith("float"):
        return column, Feature(name, "int", dtype, shape), None
    if None not in shape:
        return column, Feature(name, "raw", dtype, shape), None
    exact = dtype != "float64"
    warning = None if exact else f"column {name!r}: its lists differ in length, and are stored as float32"
    return column, Feature(name, "float", dtype if exact else "float32", shape), warning


def label_column(
    name: str, column: pa.ChunkedArray, frozen: Sequence[str] | None
) -> tuple[pa.ChunkedArray, Feature, tuple[str, ...]]:
    """Return the numbers of the classes in a column, its feature, and the classes' names, if they have any.

    Text is numbered by the sorted names, or the frozen map; integers are the numbers. A column of lists holds
    several classes a row.

    Raises:
        InputError: the column is of another type, a number is negative or beyond the frozen map, or a class
            is not in it.
    """
    stored, feature, _ = plain_column(name, column)
    shape = feature.shape
    is_list = bool(shape)
    flat = pc.list_flatten(stored) if is_list else stored
    names: tuple[str, ...] = ()
    if feature.kind == "bytes":
        found = [_to_text(value) for value in pc.unique(flat).to_pylist()]
        names = class_map(found, frozen, f"column {name!r} has none")
        numbers = pc.index_in(flat, value_set=pa.array([_to_bytes(n) for n in names], pa.large_binary()))
    elif feature.kind == "int":
        numbers = flat.cast(pa.int64())
        low, high = (0, 0) if not len(flat) else (pc.min(numbers).as_py(), pc.max(numbers).as_py())
        if low < 0 or (frozen is not None and high >= len(frozen)):
            allowed = f"0 to {len(frozen) - 1}" if frozen is not None else "0 or more"
            raise InputError(f"column {name!r}: the label {low if low < 0 else high} is not {allowed}")
        if frozen is None and pc.count_distinct(numbers).as_py() > _MAX_CLASSES:
            raise InputError(
                f"column {name!r}: has more than {_MAX_CLASSES} different labels; it is a quantity"
            )
        names = tuple(frozen or ())
    else:
        raise InputError(f"column {name!r}: labels are text or integers, and these are {column.type}")
    numbers = pa.chunked_array([numbers.combine_chunks().cast(pa.int64())])
    if is_list:
        lists = stored.combine_chunks()
        offsets = pc.subtract(lists.offsets, lists.offsets[0]) if len(lists) else lists.offsets
        together = pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), numbers.combine_chunks())
        return pa.chunked_array([together]), Feature(name, "label", "int64", (None,)), names
    return numbers, Feature(name, "label", "int64"), names


def values_of(feature: Feature, column: pa.Array) -> Sequence[Values]:
    """Return the values of the rows of a stored column, as the encoder takes them."""
    if feature.kind == "raw":
        flat = column.flatten() if feature.shape else column
        numbers = flat.to_numpy(zero_copy_only=False)
        data = numbers.astype(np.dtype(feature.dtype).newbyteorder("<"), copy=False).tobytes()
        step = feature.num_bytes
        return [data[row * step : (row + 1) * step] for row in range(len(column))]
    values: list[Values] = column.to_pylist()
    return values


def splits_of(column: pa.ChunkedArray) -> dict[str, IntArray]:
    """Return the rows of each split that a column of text names, training first, as people list them.

    Raises:
        InputError: the column is of another type, or a name is none that a split can have.
    """
    if column.type != pa.large_binary():
        raise InputError("the column of splits must be text")
    encoded = column.combine_chunks().dictionary_encode()
    names = [_to_text(value) for value in encoded.dictionary.to_pylist()]
    for name in names:
        fault = name_fault(name)
        if fault:
            raise InputError(f"the column of splits: the name {fault}")
    codes = encoded.indices.to_numpy()
    order = sorted(names, key=lambda name: (_split_rank(name), name))
    return {name: np.flatnonzero(codes == names.index(name)).astype(np.int64) for name in order}


def _split_rank(name: str) -> int:
    return next((rank for rank, start in enumerate(("tr", "va", "de", "te")) if name.startswith(start)), 4)


def _without_missing(
    name: str, column: pa.ChunkedArray, item: pa.DataType, *, is_list: bool
) -> pa.ChunkedArray:
    """Return the column with an empty list for each that is missing, and NaN for floating point numbers."""
    if is_list:
        if column.null_count:
            column = pa.chunked_array(
                [pa.array([value or [] for value in column.to_pylist()], pa.list_(item))]
            )
        column = column.cast(pa.large_list(item))
        missing = pc.list_flatten(column).null_count
    else:
        if pa.types.is_floating(item):
            column = column.fill_null(float("nan"))
        missing = column.null_count
    if missing:
        where = "" if is_list else f", the first in row {pc.index(pc.is_null(column), True).as_py() + 1}"
        raise InputError(
            f"column {name!r}: {missing} values are missing{where}; fill them in, "
            f"or leave the column out with --drop {name}"
        )
    return column


def _shape(column: pa.ChunkedArray) -> tuple[int | None]:
    lengths = pc.unique(pc.list_value_length(column)).to_pylist()
    return (lengths[0],) if len(lengths) == 1 else (None,)


def _to_text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _to_bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
