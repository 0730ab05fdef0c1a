"""The features of table columns, by their Arrow types; structs become several columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.records.example import Values
from tfshards.schemas import Feature, InputError
from tfshards.schemas.index import IntArray
from tfshards.schemas.schema import ITEM_SIZES

TEXT = pa.large_binary()

# Maximum length of the name of a type in a message.
_SHOWN = 60

_DTYPES = {
    pa.bool_(): "bool",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.uint8(): "uint8",
    pa.uint16(): "uint16",
    pa.uint32(): "uint32",
    pa.uint64(): "uint64",
    pa.float16(): "float16",
    pa.float32(): "float32",
    pa.float64(): "float64",
}


@dataclass(frozen=True)
class StoredColumn:
    """A column in its stored type.

    Attributes:
        values: values, none of which is missing; text has the type ``TEXT``, lists are large lists.
        feature: feature of the column.
        warning: warning about values that are not stored exactly, or None.
    """

    values: pa.ChunkedArray
    feature: Feature
    warning: str | None = None


def stored_column(name: str, column: pa.ChunkedArray, *, varies: bool = False) -> StoredColumn:
    """Return a column in its stored type; ``varies`` stores lists as lists of any length.

    Integers and booleans are stored as int64 lists, text and bytes as byte strings, floating point numbers
    and uint64 as raw little-endian bytes; lists of these have a fixed length if all rows have the same
    length. Lists of floating point numbers that differ in length become float32. Lists of lists of numbers
    become lists of rows, shape ``(None, k)``, if the inner lists have one length. Dates, times and decimals
    become text.

    Raises:
        InputError: the type cannot be stored, or a value is missing or does not fit the type.
    """
    if is_list_type(column.type) and is_list_type(column.type.value_type):
        return _stored_rows(name, column)
    values = _without_missing(name, plain_column(name, column))
    is_list, item = _item(values.type)
    shape = () if not is_list else (None,) if varies else _shape(values)
    if item == TEXT:
        return StoredColumn(values, Feature(name, "bytes", "bytes", shape))
    dtype = _DTYPES[item]
    if dtype != "uint64" and not dtype.startswith("float"):
        return StoredColumn(values, Feature(name, "int", dtype, shape))
    if None not in shape:
        return StoredColumn(values, Feature(name, "raw", dtype, shape))
    if dtype == "uint64":
        raise InputError("column-uint64-lists", name=name)
    if dtype != "float64":
        return StoredColumn(values, Feature(name, "float", dtype, shape))
    why = "its lists differ in length and are"
    warning = f"column {name!r}: {why} stored as float32"
    values = _as_float32(name, values, why, "give them the same length, or ")
    return StoredColumn(values, Feature(name, "float", "float32", shape), warning)


def plain_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as ``TEXT``, numbers, or large lists of either; missing values stay missing.

    Raises:
        InputError: the type cannot be converted to one of these.
    """
    kind = column.type
    is_list, item = _item(kind)
    plain = item
    if pa.types.is_dictionary(plain):
        plain = plain.value_type
    if pa.types.is_null(plain) and is_list and len(pc.list_flatten(column)) == 0:
        raise InputError("column-empty-lists", name=name)
    if pa.types.is_null(plain):
        raise InputError("column-all-missing", name=name)
    refused = InputError("column-type", name=name, kind=shown(kind))
    try:
        if plain != item:
            column = column.cast(pa.large_list(plain) if is_list else plain)
        if pa.types.is_temporal(plain) or pa.types.is_decimal(plain):
            plain = pa.string()
            column = column.cast(pa.large_list(plain) if is_list else plain)
        target = plain if plain in _DTYPES else TEXT
        if target == TEXT and not is_bytes_type(plain):
            raise refused
        return column.cast(pa.large_list(target) if is_list else target)
    except pa.ArrowException:
        raise refused from None


def relisted(lists: pa.ChunkedArray, items: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return lists with the lengths of ``lists`` that hold ``items`` in order."""
    return of_lengths(pc.list_value_length(lists).to_numpy(), items)


def of_lengths(lengths: IntArray, items: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return lists of these lengths that hold ``items`` in order."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), pa.int64())
    return pa.chunked_array([pa.LargeListArray.from_arrays(offsets, items.combine_chunks())])


def values_of(feature: Feature, column: pa.Array) -> Sequence[Values]:
    """Return the values of the rows of a stored column, in the form that the encoder expects."""
    if feature.kind == "raw":
        flat = column.flatten() if feature.shape else column
        numbers = flat.to_numpy(zero_copy_only=False)
        data = numbers.astype(np.dtype(feature.dtype).newbyteorder("<"), copy=False).tobytes()
        step = feature.num_bytes
        return [data[row * step : (row + 1) * step] for row in range(len(column))]
    values: list[Values] = column.to_pylist()
    return values


def row_bytes(column: StoredColumn) -> IntArray:
    """Return the number of bytes of the values of each row, shape ``(num_rows,)`` int64.

    The bytes of the values are counted, because Arrow's own sizes may change with its version.
    """
    values = column.values
    is_list, item = _item(values.type)
    flat = pc.list_flatten(values) if is_list else values
    if item == TEXT:
        each: IntArray = pc.binary_length(flat).to_numpy().astype(np.int64)
    else:
        each = np.full(len(flat), ITEM_SIZES[_DTYPES[item]], dtype=np.int64)
    if not is_list:
        return each
    ends = np.cumsum(pc.list_value_length(values).to_numpy())
    sums = np.concatenate([[0], np.cumsum(each)])
    lists: IntArray = np.diff(sums[np.concatenate([[0], ends])]).astype(np.int64)
    return lists


def shown(kind: pa.DataType) -> str:
    """Return the name of a type for a message, shortened: lists may be nested thousands deep."""
    name = str(kind)
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."


def _item(kind: pa.DataType) -> tuple[bool, pa.DataType]:
    """Return whether a type is a list, and the type of its items, or the type itself."""
    is_list = is_list_type(kind)
    return is_list, kind.value_type if is_list else kind


def is_list_type(kind: pa.DataType) -> bool:
    """Return whether a type is one of the lists of Arrow."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_bytes_type(kind: pa.DataType) -> bool:
    """Return whether a type is text or bytes."""
    types = pa.types
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(is_text or is_bytes or types.is_fixed_size_binary(kind))


def _without_missing(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column with missing lists empty, and missing floating point numbers NaN."""
    is_list, item = _item(column.type)
    if is_list:
        column = pc.coalesce(column, pa.scalar([], column.type)) if column.null_count else column
    flat = pc.list_flatten(column) if is_list else column
    if not flat.null_count:
        return column
    if pa.types.is_floating(item):
        filled = flat.fill_null(pa.scalar(float("nan"), item))
        return relisted(column, filled) if is_list else filled
    # people count rows from 1
    first = None if is_list else pc.index(pc.is_null(flat), True).as_py() + 1
    where = "inside its lists" if first is None else f"the first in data row {first}"
    missing, them = ("value is", "it") if flat.null_count == 1 else ("values are", "them")
    raise InputError(
        "column-missing-values",
        name=name,
        null_count=flat.null_count,
        missing=missing,
        where=where,
        them=them,
    )


def _stored_rows(name: str, column: pa.ChunkedArray) -> StoredColumn:
    """Return lists of lists of numbers as lists of rows, with the elements of all rows in one list."""
    remedy = f"leave out the column with drop={name!r}"
    inner = pc.list_flatten(column)
    if inner.null_count:
        raise InputError("column-inner-missing", name=name, null_count=inner.null_count, remedy=remedy)
    is_fixed = pa.types.is_fixed_size_list(inner.type)
    lengths = [inner.type.list_size] if is_fixed else pc.unique(pc.list_value_length(inner)).to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        found = (
            f"differ in length, such as {lengths[0]} and {lengths[1]}"
            if len(lengths) > 1
            else "are all empty"
        )
        if not lengths:
            found = "have no known length, since all lists are empty; give them a fixed size in Parquet, or"
            raise InputError("column-inner-found", name=name, found=found, remedy=remedy)
        raise InputError("column-inner-differ", name=name, found=found, remedy=remedy)
    items = _without_missing(name, plain_column(name, pc.list_flatten(inner)))
    num_rows = pc.list_value_length(column).fill_null(0).to_numpy()
    warning = None
    dtype = _DTYPES.get(items.type)
    if dtype is None or dtype == "uint64":
        raise InputError("column-type-unsupported", name=name, kind=shown(column.type), remedy=remedy)
    values = of_lengths(num_rows.astype(np.int64) * lengths[0], items)
    if dtype == "float64":
        why = "its lists of lists are"
        values, dtype = _as_float32(name, values, why, "scale the values, or "), "float32"
        warning = f"column {name!r}: {why} stored as float32"
    kind = "float" if dtype.startswith("float") else "int"
    return StoredColumn(values, Feature(name, kind, dtype, (None, lengths[0])), warning)


def _as_float32(name: str, lists: pa.ChunkedArray, why: str, remedy: str) -> pa.ChunkedArray:
    flat = pc.list_flatten(lists)
    short = flat.cast(pa.float32())
    lost = flat.filter(pc.and_(pc.is_finite(flat), pc.invert(pc.is_finite(short))))
    if len(lost):
        raise InputError("column-float32", name=name, why=why, as_py=lost[0].as_py(), remedy=remedy)
    return relisted(lists, short)


def _shape(column: pa.ChunkedArray) -> tuple[int | None]:
    lengths = pc.unique(pc.list_value_length(column)).to_pylist()
    # lists that are all empty need not be empty in the next table
    return (lengths[0],) if len(lengths) == 1 and lengths[0] else (None,)


# The fields of Hugging Face's Image.
_IMAGE_FIELDS = ({"bytes", "path"}, {"bytes"})
# Types of Hugging Face that hold a list of "feature".
_LISTS = ("Sequence", "List", "LargeList", "Array")


def flattened(table: pa.Table) -> pa.Table:
    """Return a table in which each field of a struct, or of a list of structs, is a column ``NAME/FIELD``.

    A struct of the bytes and the path of an image stays one column. A missing struct is one whose fields are
    missing; in a list of structs it has no items.
    """
    columns = [
        pair
        for name, column in zip(table.column_names, table.columns, strict=True)
        for pair in _flat(name, column)
    ]
    names = [name for name, _ in columns]
    return pa.table([column for _, column in columns], names) if names != table.column_names else table


def is_image_struct(kind: pa.DataType) -> bool:
    """Return whether a type is Hugging Face's type of images: a struct of encoded bytes and a path."""
    if not pa.types.is_struct(kind) or {field.name for field in kind} not in _IMAGE_FIELDS:
        return False
    return all(is_bytes_type(field.type) or pa.types.is_null(field.type) for field in kind)


def is_along_rows(name: str, table: pa.Table) -> bool:
    """Return whether a column is a field next to a list of lists, such as the classes of boxes."""
    struct, slash, _ = name.rpartition("/")
    return bool(slash) and any(
        field.name.startswith(f"{struct}/")
        and is_list_type(field.type)
        and is_list_type(field.type.value_type)
        for field in table.schema
    )


def classes_in(metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """Return the class names by column that Hugging Face's datasets wrote into the metadata of a schema."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return dict(_classes("", features))


def _flat(name: str, column: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray]]:
    kind = column.type
    if pa.types.is_struct(kind) and kind.num_fields and not is_image_struct(kind):
        for field, values in zip(kind, column.flatten(), strict=True):
            yield from _flat(f"{name}/{field.name}", values)
    elif is_list_type(kind) and pa.types.is_struct(kind.value_type) and not is_image_struct(kind.value_type):
        lengths = pc.list_value_length(column).fill_null(0).to_numpy()
        for field, values in zip(kind.value_type, pc.list_flatten(column).flatten(), strict=True):
            yield from _flat(f"{name}/{field.name}", of_lengths(lengths, values))
    else:
        yield name, column


def _classes(name: str, feature: object) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(feature, list):
        for item in feature[:1]:
            yield from _classes(name, item)
        return
    if not isinstance(feature, dict):
        return
    kind = feature.get("_type")
    if kind == "ClassLabel":
        names = feature.get("names")
        if isinstance(names, list) and names:
            yield name, tuple(map(str, names))
    elif kind in _LISTS or (kind is None and set(feature) == {"feature"}):
        yield from _classes(name, feature.get("feature"))
    elif kind is None:
        for field, inner in feature.items():
            yield from _classes(f"{name}/{field}" if name else field, inner)
