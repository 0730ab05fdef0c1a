"""The features of columns by their Arrow types, and their values as the encoder takes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.roles import flag
from tfshards.schemas import Feature, InputError
from tfshards.schemas.coordinates import Coordinates
from tfshards.schemas.errors import counted, listed
from tfshards.schemas.index import IntArray
from tfshards.schemas.schema import COORDINATES, ITEM_SIZES, KINDS

TEXT = pa.large_binary()

# Maximum length of the name of a type in a message.
_SHOWN = 60
# Number of rows to examine, evenly spaced.
_SAMPLE = 100
_DTYPES = {
    pa.from_numpy_dtype(np.dtype(name)): name
    for name in ITEM_SIZES
    if name.startswith(("bool", "int", "uint", "float"))
}


@dataclass(frozen=True)
class StoredColumn:
    """A column as it is stored: a feature, and values that ``records.example`` encodes.

    Attributes:
        feature: feature of the column.
        values: values, none of which is missing: integers, ``TEXT``, the little-endian bytes of a value of
            kind ``raw`` as ``TEXT``, or large lists of integers, float32 or ``TEXT``.
        class_names: class names in label order; empty if there are none.
        warning: warning about the values, or None.
    """

    feature: Feature
    values: pa.ChunkedArray
    class_names: tuple[str, ...] = ()
    warning: str | None = None


def stored_column(name: str, column: pa.ChunkedArray, role: str = "value") -> StoredColumn:
    """Return a column as it is stored with a role: ``value``, ``list``, or a format of coordinates.

    Integers and booleans are stored as int64 lists, text and bytes as byte strings, floating point numbers
    and uint64 as raw little-endian bytes; lists of these have a fixed length if all rows have the same
    length, unless the role is ``list``. Lists of floating point numbers that differ in length become float32.
    Lists of lists of numbers become lists of rows, shape ``(None, k)``, if the inner lists have one length.
    Dates, times and decimals become text.
    """
    if role in COORDINATES:
        return _coordinates(name, column, role)
    flat, lengths = unlisted(column)
    shape: tuple[int | None, ...] = ()
    if role == "list" and lengths is None:
        raise InputError(f"column {name!r} has the role list, but holds {shown(column.type)}, not lists")
    if lengths is not None and is_list_type(flat.type):
        flat, counts = _inner_lists(flat)
        if len(counts) != 1 or not counts[0]:
            found = listed([*map(str, counts)], 3) or "unknown"
            what = f"holds lists of lists whose inner lengths are {found}, but must be one number above 0"
            raise _unstorable(name, what)
        shape, lengths = (None, counts[0]), lengths * counts[0]
    elif lengths is not None:
        # lists that are all empty need not be empty in the next table
        is_fixed = role != "list" and len(lengths) and lengths[0] and (lengths == lengths[0]).all()
        shape = (int(lengths[0]) if is_fixed else None,)
    flat = without_missing(name, plain_values(name, flat), is_list=lengths is not None)
    dtype, warning = _DTYPES.get(flat.type, "bytes"), None
    if dtype == "bytes":
        if len(shape) > 1:
            raise _unstorable(name, f"has the type {shown(column.type)}, which records cannot hold")
        kind = "bytes"
    elif dtype != "uint64" and not dtype.startswith("float"):
        kind = "int"
    elif None not in shape:
        kind = "raw"
        flat, lengths = _raw(flat, dtype, shape), None
    elif dtype == "uint64":
        raise _unstorable(name, "holds lists of uint64 that differ in length; convert them to int64")
    else:
        kind = "float"
        if dtype == "float64":
            flat, dtype = _as_float32(name, flat), "float32"
            warning = f"column {name!r}: lists of lists, or of different lengths, are stored as float32"
    return StoredColumn(Feature(name, kind, dtype, shape), relisted(flat, lengths), warning=warning)


def kind_of(dtype: str, shape: tuple[int, ...], *, is_list: bool) -> str:
    """Return the kind of feature of an array of NumPy, or of a list that may have any length."""
    if dtype == "bytes":
        return "bytes"
    is_int = dtype in KINDS["int"].dtypes
    if is_list:
        return "int" if is_int else "float"
    return "int" if is_int and not shape and dtype != "bool" else "raw"


def _coordinates(name: str, column: pa.ChunkedArray, role: str) -> StoredColumn:
    """Return a column of boxes or keypoints as lists of float32.

    Lists of numbers have shape ``(4,)``, and for k keypoints ``(k, 2)`` or ``(k, 3)``, if all rows have as
    many; else the first dimension varies. Lists of lists have shape ``(None, k)``: a row for each object.
    """
    coordinates = Coordinates.parse(role)
    width = 4 if coordinates.are_boxes else len(coordinates.order)
    flat, lengths = unlisted(column)
    if lengths is None:
        raise _no_coordinates(name, role, shown(column.type))
    shape: tuple[int | None, ...]
    if is_list_type(flat.type):
        flat, counts = _inner_lists(flat)
        step = counts[0] if counts else width
        is_wrong = len(counts) > 1 or not step or step % width or (coordinates.are_boxes and step != width)
        shape, lengths = (None, step), lengths * step
    else:
        counts = np.unique(lengths).tolist()
        is_wrong = any(count % width for count in counts)
        each = counts[0] // width if len(counts) == 1 else 0
        shape = (each or None, width) if each != 1 or not coordinates.are_boxes else (width,)
    if is_wrong:
        raise _no_coordinates(name, role, f"lists of {listed([*map(str, counts)], 3)} numbers")
    numbers = flat if pa.types.is_null(flat.type) else plain_values(name, flat)
    if numbers.type == TEXT or pa.types.is_boolean(numbers.type):
        raise _no_coordinates(name, role, shown(column.type))
    # numbers beyond float32 become infinite, and missing ones NaN, which are reported with their image
    with np.errstate(over="ignore"):
        floats = numbers.cast(pa.float64(), safe=False).to_numpy().astype(np.float32)
    values = relisted(pa.chunked_array([pa.array(floats)]), lengths)
    return StoredColumn(Feature(name, "float", "float32", shape, role), values)


def _no_coordinates(name: str, role: str, what: str) -> InputError:
    return InputError(
        f"column {name!r} has the role {role}, but holds {what}; give a box as a list of 4 numbers, a point "
        "as one of 2 or 3, and several objects as a list of such lists"
    )


def unlisted(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, IntArray | None]:
    """Return the items of the lists in a column, and the length of each; None if it has no lists."""
    if not is_list_type(column.type):
        return column, None
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    return pc.list_flatten(column), lengths.to_numpy().astype(np.int64)


def _inner_lists(flat: pa.ChunkedArray) -> tuple[pa.ChunkedArray, list[int]]:
    """Return the items of the inner lists of a column of lists of lists, and the lengths of these, sorted."""
    items, lengths = unlisted(flat)
    return items, np.unique([] if lengths is None else lengths).tolist()


def numbers_of(array: pa.Array) -> npt.NDArray[Any]:
    """Return numbers of which none is missing, without a copy.

    This is ``to_numpy``, which imports pandas, if it is there: that takes as long as a million of rows.
    """
    dtype = np.dtype(_DTYPES[array.type])
    return np.frombuffer(array.buffers()[1] or b"", dtype)[array.offset : array.offset + len(array)]


def array_of(numbers: npt.NDArray[Any]) -> pa.Array:
    """Return numbers, but no booleans, in the byte order of this machine as an array, see ``numbers_of``."""
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def relisted(flat: pa.ChunkedArray, lengths: IntArray | None) -> pa.ChunkedArray:
    """Return lists of these lengths that hold the items in order, or without lengths the items."""
    if lengths is None:
        return flat
    offsets = array_of(offsets_of(lengths))
    return pa.chunked_array([pa.LargeListArray.from_arrays(offsets, flat.combine_chunks())])


def offsets_of(lengths: IntArray) -> IntArray:
    """Return the offsets of consecutive values with these lengths, and at last their end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def plain_values(name: str, flat: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as ``TEXT`` or numbers; ``name`` is that of their column, for messages."""
    kind = flat.type
    if kind in _DTYPES:
        return flat
    if is_bytes_type(kind):
        return flat.cast(TEXT)
    if pa.types.is_null(kind):
        raise _unstorable(name, "has no values, so that their type is not known")
    # durations would lose their unit
    has_text = (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)) and not pa.types.is_duration(kind)
    try:
        if has_text:
            return flat.cast(pa.large_string()).cast(TEXT)
    except pa.ArrowException:
        # an unknown time zone
        pass
    raise _unstorable(name, f"has the type {shown(kind)}, which records cannot hold")


def _unstorable(name: str, what: str) -> InputError:
    return InputError(f"column {name!r} {what}; {flag(name, 'drop')} leaves it out")


def without_missing(name: str, flat: pa.ChunkedArray, *, is_list: bool) -> pa.ChunkedArray:
    """Return values of which none is missing."""
    if not flat.null_count:
        return flat
    # people count rows from 1
    first = pc.index(pc.is_null(flat), True).as_py() + 1
    raise lacking(name, flat.null_count, "in its lists" if is_list else f"the first in data row {first}")


def lacking(name: str, count: int, where: str) -> InputError:
    """Return the error for a column in which ``count`` values are missing."""
    return InputError(
        f"column {name!r} lacks {counted(count, 'value')}, {where}; before the build, fill them with "
        f"pandas, frame[{name!r}].fillna(...), or leave out their rows, frame.dropna(subset=[{name!r}]), or "
        f"leave out the column with {flag(name, 'drop')}"
    )


def sampled(column: pa.ChunkedArray) -> list[bytes]:
    """Return some values of a column of text or bytes that are neither missing nor empty; none of others."""
    if not is_bytes_type(column.type) or not len(column):
        return []
    rows = np.unique(np.linspace(0, len(column) - 1, _SAMPLE).astype(np.int64))
    return [value for value in column.cast(TEXT).take(pa.array(rows)).to_pylist() if value]


def shown(kind: pa.DataType) -> str:
    """Return the name of a type for a message, shortened: lists may be nested thousands deep."""
    name = f"float{kind.bit_width}" if pa.types.is_floating(kind) else str(kind)
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."


def is_list_type(kind: pa.DataType) -> bool:
    """Return whether a type is one of the lists of Arrow."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_bytes_type(kind: pa.DataType) -> bool:
    """Return whether a type is text or bytes."""
    types = pa.types
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(is_text_type(kind) or is_bytes or types.is_fixed_size_binary(kind))


def is_text_type(kind: pa.DataType) -> bool:
    """Return whether a type is text."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _raw(flat: pa.ChunkedArray, dtype: str, shape: tuple[int | None, ...]) -> pa.ChunkedArray:
    """Return the little-endian bytes of each row of numbers."""
    numbers = flat.to_numpy().astype(np.dtype(dtype).newbyteorder("<"), copy=False)
    step = (shape[0] if shape else 1) or 0
    offsets = np.arange(len(numbers) // step + 1, dtype=np.int64) * (step * numbers.itemsize)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(numbers.tobytes())]
    return pa.chunked_array([pa.Array.from_buffers(TEXT, len(offsets) - 1, buffers)])


def _as_float32(name: str, flat: pa.ChunkedArray) -> pa.ChunkedArray:
    short = flat.cast(pa.float32())
    lost = flat.filter(pc.and_(pc.is_finite(flat), pc.invert(pc.is_finite(short))))
    if len(lost):
        what = "float32, as which lists of different lengths, or of lists, are stored"
        raise _unstorable(name, f"holds {lost[0].as_py()}, too large for {what}")
    return short


_INDEX = re.compile("__index_level_[0-9]+__")
# The fields of Hugging Face's Image.
_IMAGE_FIELDS = ({"bytes", "path"}, {"bytes"})


def flattened(table: pa.Table) -> pa.Table:
    """Return a table of few types, in which each field of a struct is a column ``NAME/FIELD``.

    So is each field of a list of structs, as a list. Text of any type becomes large strings, bytes become
    ``TEXT``, lists of any type large lists, and dictionaries their values. A struct of the bytes and the path
    of an image stays one column. A missing struct is one whose fields are missing, and a missing list is
    empty. An index of pandas that has no name, as rows have that a filter left, is left out.
    """
    pairs = [
        pair
        for name, column in zip(table.column_names, table.columns, strict=True)
        if not _INDEX.fullmatch(name)
        for pair in _flat(name, column)
    ]
    return pa.table([column for _, column in pairs], [name for name, _ in pairs])


def _flat(name: str, column: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray]]:
    kind = column.type
    if is_list_type(kind):
        items, lengths = unlisted(column)
        yield from ((field, relisted(values, lengths)) for field, values in _flat(name, items))
    elif pa.types.is_dictionary(kind):
        # not a cast, which lacks the text of polars
        values = _wide(kind.value_type)
        parts = [part.dictionary.cast(values).take(part.indices) for part in column.chunks]
        yield from _flat(name, pa.chunked_array(parts, values))
    elif is_image_struct(kind):
        yield name, column.cast(pa.struct([(field.name, _wide(field.type)) for field in kind]))
    elif pa.types.is_struct(kind) and kind.num_fields:
        for field, values in fields_of(column).items():
            yield from _flat(f"{name}/{field}", values)
    else:
        yield name, column.cast(_wide(kind))


def _wide(kind: pa.DataType) -> pa.DataType:
    """Return the one type of text, or of bytes; other types as they are."""
    return pa.large_string() if is_text_type(kind) else TEXT if is_bytes_type(kind) else kind


def is_image_struct(kind: pa.DataType) -> bool:
    """Return whether a type is Hugging Face's type of images: a struct of encoded bytes and a path."""
    if not pa.types.is_struct(kind) or {field.name for field in kind} not in _IMAGE_FIELDS:
        return False
    return all(is_bytes_type(field.type) or pa.types.is_null(field.type) for field in kind)


def fields_of(column: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """Return the fields of a column of structs, by name."""
    return {field.name: values for field, values in zip(column.type, column.flatten(), strict=True)}


def classes_in(metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """Return the class names by column that Hugging Face's datasets wrote into the metadata of a schema."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return dict(_classes("", features))


def _classes(name: str, feature: object) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(feature, list) and feature:
        feature = feature[0]
    if not isinstance(feature, dict):
        return
    kind, names = feature.get("_type"), feature.get("names")
    if kind == "ClassLabel" and isinstance(names, list):
        yield name, tuple(map(str, names))
    elif kind is not None or {*feature} == {"feature"}:
        # a list of any form has its items in "feature"
        yield from _classes(name, feature.get("feature"))
    else:
        for field, inner in feature.items():
            yield from _classes(f"{name}/{field}" if name else field, inner)
