"""The columns of a table that say where a row belongs: to a class, to a split, to a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.classes import class_map
from tfshards.prep.plan import IntArray
from tfshards.prep.sources.listing import to_bytes, to_text
from tfshards.prep.sources.table_columns import (
    TEXT,
    StoredColumn,
    plain_column,
    relisted,
    shown,
    stored_column,
)
from tfshards.prep.splits import usual_place
from tfshards.schemas import Feature, InputError
from tfshards.schemas.manifest import name_fault

# Above these, values are quantities rather than names.
_MAX_CLASSES = 10_000
_MAX_SPLITS = 100


@dataclass(frozen=True)
class LabelColumn:
    """A column of classes.

    Attributes:
        stored: the classes' numbers.
        names: of the classes, empty if they are integers without a frozen map.
    """

    stored: StoredColumn
    names: tuple[str, ...]


def label_fault(name: str, column: pa.ChunkedArray) -> str | None:
    """Return why a column holds no classes, or None if it does.

    Classes are text, booleans, integers that are not negative, or lists of these, and at most 10,000.

    Raises:
        InputError: the column cannot be stored at all.
    """
    flat = _flat(_stored(name, column).values)
    if pa.types.is_floating(flat.type):
        return f"labels are text or integers, and these are {shown(column.type)}"
    if len(flat) and flat.type != TEXT:
        limits = pc.min_max(flat).as_py()
        if limits["min"] < 0 or limits["max"] >= 1 << 63:
            wrong = limits["min"] if limits["min"] < 0 else limits["max"]
            return f"the label {wrong} is not 0 or more, or is beyond int64"
    if pc.count_distinct(flat).as_py() > _MAX_CLASSES:
        return f"has more than {_MAX_CLASSES} different labels, which are no classes"
    return None


def label_column(name: str, column: pa.ChunkedArray, frozen: Sequence[str] | None) -> LabelColumn:
    """Return the numbers of the classes in a column.

    Text is numbered by the sorted names, or the frozen map; booleans are the text ``false`` and ``true``;
    integers are the numbers. A column of lists holds several classes a row.

    Raises:
        InputError: the column holds no classes, or one that is not in the frozen map, or text that is empty.
    """
    fault = label_fault(name, column)
    if fault:
        raise InputError(f"column {name!r}: {fault}; name another with --label, or rename this one")
    stored = _stored(name, column)
    flat, is_list = _flat(stored.values), bool(stored.feature.shape)
    names = tuple(frozen or ())
    if flat.type == TEXT:
        found = [to_text(value) for value in pc.unique(flat).to_pylist()]
        if "" in found:
            where = "" if is_list else f", row {pc.index(flat, pa.scalar(b'', TEXT)).as_py()}"
            raise InputError(f"column {name!r}{where}: is an empty string, which names no class")
        # as with arrays, and other than with folders, a class may have no examples
        names = class_map({*found, *names}, frozen, f"column {name!r} has none")
        flat = pc.index_in(flat, value_set=pa.array([to_bytes(each) for each in names], TEXT))
    elif frozen is not None and len(flat) and pc.max(flat).as_py() >= len(frozen):
        raise InputError(
            f"column {name!r}: the label {pc.max(flat).as_py()} is not 0 to {len(frozen) - 1}, "
            f"as the {len(frozen)} classes of the label map are numbered"
        )
    numbers = flat.cast(pa.int64())
    values = relisted(stored.values, numbers) if is_list else numbers
    feature = Feature(name, "label", "int64", (None,) if is_list else ())
    without = len(names) - pc.count_distinct(numbers).as_py()
    warning = f"column {name!r}: {without} of the {len(names)} classes have no row" if without > 0 else None
    return LabelColumn(StoredColumn(values, feature, warning), names)


def split_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the name of each row's split, as ``TEXT``.

    Raises:
        InputError: the column is neither text nor integers, a value is missing or is no name that a split can
            have, or there are so many that they are something else.
    """
    stored = stored_column(name, column)
    if stored.feature.shape or stored.feature.kind not in ("bytes", "int"):
        raise InputError(
            f"column {name!r}: splits are named by text or integers, and these are {shown(column.type)}"
        )
    is_text = stored.feature.kind == "bytes"
    texts = stored.values if is_text else stored.values.cast(pa.large_string()).cast(TEXT)
    names = [to_text(value) for value in pc.unique(texts).to_pylist()]
    if len(names) > _MAX_SPLITS:
        raise InputError(
            f"column {name!r}: names {len(names)} splits, more than {_MAX_SPLITS}; if it is no column of "
            f"splits, leave it out with --drop {name}"
        )
    for each in names:
        fault = name_fault(each)
        if fault:
            row = pc.index(texts, pa.scalar(to_bytes(each), TEXT)).as_py()
            raise InputError(f"column {name!r}, row {row}: the split name {fault}")
    return texts


def splits_of(column: pa.ChunkedArray) -> dict[str, IntArray]:
    """Return the rows of each split that a staged column names, training first, as people list them."""
    encoded = column.combine_chunks().dictionary_encode()
    names = [to_text(value) for value in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy()
    order = sorted(range(len(names)), key=lambda code: usual_place(names[code]))
    return {names[code]: np.flatnonzero(codes == code).astype(np.int64) for code in order}


def groups_of(name: str, column: pa.ChunkedArray) -> list[bytes]:
    """Return each row's group: its value as text.

    Raises:
        InputError: the column holds lists, or a row has no value.
    """
    values = plain_column(name, column)
    if pa.types.is_large_list(values.type):
        raise InputError(f"--group-by {name}: the column holds lists; rows are grouped by single values")
    missing = pc.is_null(values, nan_is_null=True)
    texts = values if values.type == TEXT else values.cast(pa.large_string()).cast(TEXT)
    missing = pc.or_(missing, pc.fill_null(pc.equal(texts, pa.scalar(b"", TEXT)), True))
    if pc.any(missing).as_py():
        raise InputError(
            f"--group-by {name}: {pc.sum(missing).as_py()} rows have no value there, and so no group; "
            "fill them in, or group by another column"
        )
    groups: list[bytes] = texts.to_pylist()
    return groups


def _stored(name: str, column: pa.ChunkedArray) -> StoredColumn:
    """Return a column as it would be stored, booleans as text: a label map has them by their names."""
    plain = plain_column(name, column)
    item = plain.type.value_type if pa.types.is_large_list(plain.type) else plain.type
    if item == pa.bool_():
        plain = plain.cast(pa.large_list(pa.string()) if plain.type != item else pa.string())
    return stored_column(name, plain)


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.list_flatten(column) if pa.types.is_large_list(column.type) else column
