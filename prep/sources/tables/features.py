"""The features of table columns, by their Arrow types; structs become several columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.imaging.formats import is_encoded
from tfshards.prep.records.example import Values
from tfshards.prep.sources.keys import to_text
from tfshards.schemas import Feature, InputError
from tfshards.schemas.errors import listed
from tfshards.schemas.index import IntArray
from tfshards.schemas.schema import ITEM_SIZES

TEXT = pa.large_binary()

# Maximum length of the name of a type, or of a value, in a message.
_SHOWN = 60
# Number of rows to examine, evenly spaced.
_SAMPLE = 100
_JSON = re.compile(rb"\s*(\[\s*)?\{.*\}[\]\s]*", re.DOTALL)
_DTYPES = {
    pa.from_numpy_dtype(np.dtype(name)): name
    for name in ITEM_SIZES
    if name.startswith(("bool", "int", "uint", "float"))
}


@dataclass(frozen=True)
class StoredColumn:
    """A column in its stored type.

    Attributes:
        values: values, none of which is missing; text has the type ``TEXT``, lists are large lists.
        feature: feature of the column.
        warning: warning about the values, or None.
        names: class names in label order; empty if there are none.
    """

    values: pa.ChunkedArray
    feature: Feature
    warning: str | None = None
    names: tuple[str, ...] = ()


def stored_column(name: str, column: pa.ChunkedArray, *, varies: bool = False) -> StoredColumn:
    """Return a column in its stored type; ``varies`` stores lists as lists of any length.

    Integers and booleans are stored as int64 lists, text and bytes as byte strings, floating point numbers
    and uint64 as raw little-endian bytes; lists of these have a fixed length if all rows have the same
    length. Lists of floating point numbers that differ in length become float32. Lists of lists of numbers
    become lists of rows, shape ``(None, k)``, if the inner lists have one length. Dates, times and decimals
    become text.
    """
    flat, lengths = unlisted(column)
    shape: tuple[int | None, ...] = ()
    if lengths is not None and is_list_type(flat.type):
        num_columns = _inner_length(name, flat)
        flat, shape, lengths = pc.list_flatten(flat), (None, num_columns), lengths * num_columns
    elif lengths is not None:
        # lists that are all empty need not be empty in the next table
        is_fixed = not varies and len(lengths) and lengths[0] and (lengths == lengths[0]).all()
        shape = (int(lengths[0]) if is_fixed else None,)
    flat = without_missing(name, plain_values(name, flat, column.type), is_list=lengths is not None)
    dtype, warning = _DTYPES.get(flat.type, "bytes"), None
    if dtype == "bytes":
        if len(shape) > 1:
            raise InputError("column-type", name=name, kind=shown(column.type))
        kind, sample = "bytes", sampled(flat)
        if sample and all(map(_JSON.fullmatch, sample)):
            warning = (
                f"column {name!r} holds JSON, such as {to_text(sample[0][:_SHOWN])!r}, which is stored as "
                "text; boxes and labels in it have to be columns of their own"
            )
    elif dtype != "uint64" and not dtype.startswith("float"):
        kind = "int"
    elif None not in shape:
        kind = "raw"
    elif dtype == "uint64":
        raise InputError("column-uint64-lists", name=name)
    else:
        kind = "float"
        if dtype == "float64":
            flat, dtype = _as_float32(name, flat), "float32"
            warning = f"column {name!r}: lists of lists, or of different lengths, are stored as float32"
    return StoredColumn(relisted(flat, lengths), Feature(name, kind, dtype, shape), warning)


def unlisted(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, IntArray | None]:
    """Return the items of the lists in a column, and the length of each; None if it has no lists."""
    if not is_list_type(column.type):
        return column, None
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    return pc.list_flatten(column), lengths.to_numpy().astype(np.int64)


def relisted(flat: pa.ChunkedArray, lengths: IntArray | None) -> pa.ChunkedArray:
    """Return lists of these lengths that hold the items in order, or without lengths the items."""
    if lengths is None:
        return flat
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), pa.int64())
    return pa.chunked_array([pa.LargeListArray.from_arrays(offsets, flat.combine_chunks())])


def plain_values(name: str, flat: pa.ChunkedArray, whole: pa.DataType) -> pa.ChunkedArray:
    """Return values as ``TEXT`` or numbers; messages have the name and the ``whole`` type of the column."""
    kind = flat.type.value_type if pa.types.is_dictionary(flat.type) else flat.type
    if pa.types.is_null(kind):
        raise InputError("column-all-missing", name=name)
    try:
        flat = flat.cast(kind)
        if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
            flat = flat.cast(pa.string())
        elif kind not in _DTYPES and not is_bytes_type(kind):
            raise InputError("column-type", name=name, kind=shown(whole))
        return flat if kind in _DTYPES else flat.cast(TEXT)
    except pa.ArrowException:
        raise InputError("column-type", name=name, kind=shown(whole)) from None


def without_missing(name: str, flat: pa.ChunkedArray, *, is_list: bool) -> pa.ChunkedArray:
    """Return values of which none is missing."""
    if not flat.null_count:
        return flat
    # people count rows from 1
    first = pc.index(pc.is_null(flat), True).as_py() + 1
    where = "in its lists" if is_list else f"the first in data row {first}"
    raise InputError("column-missing-values", name=name, null_count=flat.null_count, where=where)


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


def sampled(column: pa.ChunkedArray) -> list[bytes]:
    """Return some values of a column of text or bytes that are neither missing nor empty; none of others."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not is_bytes_type(kind):
        return []
    rows = np.unique(np.linspace(0, len(column) - 1, _SAMPLE).astype(np.int64)).tolist()
    # one by one, because Arrow cannot take rows of every type of text
    values = (column[row] for row in rows if len(column))
    buffers = [(value.value if pa.types.is_dictionary(value.type) else value).as_buffer() for value in values]
    return [buffer.to_pybytes() for buffer in buffers if buffer]


def row_bytes(column: StoredColumn) -> IntArray:
    """Return the number of bytes of the values of each row, shape ``(num_rows,)`` int64.

    The bytes of the values are counted, because Arrow's own sizes may change with its version.
    """
    flat, lengths = unlisted(column.values)
    if flat.type == TEXT:
        each: IntArray = pc.binary_length(flat).to_numpy().astype(np.int64)
    else:
        each = np.full(len(flat), ITEM_SIZES[_DTYPES[flat.type]], dtype=np.int64)
    if lengths is None:
        return each
    sums = np.concatenate([[0], np.cumsum(each)])
    lists: IntArray = np.diff(sums[np.concatenate([[0], np.cumsum(lengths)])]).astype(np.int64)
    return lists


def shown(kind: pa.DataType) -> str:
    """Return the name of a type for a message, shortened: lists may be nested thousands deep."""
    name = f"float{kind.bit_width}" if pa.types.is_floating(kind) else str(kind)
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."


def is_list_type(kind: pa.DataType) -> bool:
    """Return whether a type is one of the lists of Arrow."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def item_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the items of a type of lists, of any depth, or the type itself."""
    return item_type(kind.value_type) if is_list_type(kind) else kind


def is_bytes_type(kind: pa.DataType) -> bool:
    """Return whether a type is text or bytes."""
    types = pa.types
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(is_text_type(kind) or is_bytes or types.is_fixed_size_binary(kind))


def is_text_type(kind: pa.DataType) -> bool:
    """Return whether a type is text."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _inner_length(name: str, inner: pa.ChunkedArray) -> int:
    """Return the length that all inner lists of a column have."""
    lengths = pc.unique(pc.list_value_length(inner)).to_pylist()
    if not lengths and pa.types.is_fixed_size_list(inner.type):
        lengths = [inner.type.list_size]
    if len(lengths) != 1 or not lengths[0]:
        found = listed(["missing" if each is None else str(each) for each in lengths], 3) or "unknown"
        raise InputError("column-inner-lengths", name=name, found=found)
    return int(lengths[0])


def _as_float32(name: str, flat: pa.ChunkedArray) -> pa.ChunkedArray:
    short = flat.cast(pa.float32())
    lost = flat.filter(pc.and_(pc.is_finite(flat), pc.invert(pc.is_finite(short))))
    if len(lost):
        raise InputError("column-float32", name=name, as_py=lost[0].as_py())
    return short


# The fields of Hugging Face's Image.
_IMAGE_FIELDS = ({"bytes", "path"}, {"bytes"})
# Types of Hugging Face that hold a list of "feature".
_LISTS = ("Sequence", "List", "LargeList", "Array")


def flattened(table: pa.Table) -> pa.Table:
    """Return a table in which each field of a struct, or of a list of structs, is a column ``NAME/FIELD``.

    A struct of the bytes and the path of an image stays one column. A missing struct is one whose fields are
    missing; in a list of structs it has no items.
    """
    pairs = [
        pair
        for name, column in zip(table.column_names, table.columns, strict=True)
        for pair in _flat(name, column)
    ]
    names = [name for name, _ in pairs]
    return pa.table([column for _, column in pairs], names) if names != table.column_names else table


def is_image_struct(kind: pa.DataType) -> bool:
    """Return whether a type is Hugging Face's type of images: a struct of encoded bytes and a path."""
    if not pa.types.is_struct(kind) or {field.name for field in kind} not in _IMAGE_FIELDS:
        return False
    return all(is_bytes_type(field.type) or pa.types.is_null(field.type) for field in kind)


def is_embedded(column: pa.ChunkedArray) -> bool:
    """Return whether a column of images holds encoded images rather than their paths."""
    if is_image_struct(column.type):
        return bool(fields_of(column)["bytes"].null_count < len(column))
    is_binary = is_bytes_type(column.type) and not is_text_type(column.type)
    return is_binary and any(map(is_encoded, sampled(column)))


def fields_of(column: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """Return the fields of a column of structs, by name."""
    return {field.name: values for field, values in zip(column.type, column.flatten(), strict=True)}


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
    flat, lengths = unlisted(column)
    kind = flat.type
    if pa.types.is_struct(kind) and kind.num_fields and not is_image_struct(kind):
        for field, values in fields_of(flat).items():
            yield from _flat(f"{name}/{field}", relisted(values, lengths))
    else:
        yield name, column


def _classes(name: str, feature: object) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(feature, list) and feature:
        feature = feature[0]
    if not isinstance(feature, dict):
        return
    kind, names = feature.get("_type"), feature.get("names")
    if kind == "ClassLabel" and isinstance(names, list) and names:
        yield name, tuple(map(str, names))
    elif kind in _LISTS or (kind is None and set(feature) == {"feature"}):
        yield from _classes(name, feature.get("feature"))
    elif kind is None:
        for field, inner in feature.items():
            yield from _classes(f"{name}/{field}" if name else field, inner)
