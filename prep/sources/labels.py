"""The classes, splits and groups of rows, from the values of columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.classes import MAX_CLASSES, ClassNames, class_map, given_class_names, usual_order
from tfshards.prep.sources.features import (
    TEXT,
    StoredColumn,
    is_bytes_type,
    is_list_type,
    numbers_of,
    plain_values,
    relisted,
    sampled,
    shown,
    unlisted,
    without_missing,
)
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.roles import flag
from tfshards.schemas import Feature, InputError
from tfshards.schemas.errors import counted
from tfshards.schemas.index import IntArray
from tfshards.schemas.names import name_fault

_MAX_SPLITS = 100
_LARGEST = (1 << 63) - 1
# A list, or an object, as text; and a list of numbers.
_JSON = re.compile(rb"\s*(\[.*\]|\{.*\})\s*", re.DOTALL)
NUMBERS_IN_TEXT = re.compile(rb"\s*[\[(][\[\](), ]*-?\.?[0-9][-+0-9eE., \[\]()]*[\])]\s*")
_SHOWN = 60


def label_column(
    name: str,
    column: pa.ChunkedArray,
    class_names: ClassNames = None,
    own: Sequence[str] = (),
    separator: str | None = None,
) -> StoredColumn:
    """Return the numbers of the classes in a column, and their names.

    Text is numbered in the order of the given class names, or in sorted order; booleans are the text
    ``false`` and ``true``; integers are class numbers. A column of lists holds several classes per row. A
    missing value, an empty text, or the number -1, that is not in a list, means no class and becomes -1.

    Args:
        name: the column, for messages.
        column: its values.
        class_names: class names that the user gives, in label order.
        own: names of the integers that the source has; they are translated to given ones by name.
        separator: what separates several classes in a text; an empty text states that there is one.

    Raises:
        InputError: the values are not classes, or not those of the given names.
    """
    given = given_class_names(class_names)
    flat, lengths = unlisted(_separated(name, column, separator))
    if is_list_type(flat.type) or pa.types.is_floating(flat.type):
        raise _unfit(name, "classes", shown(column.type))
    if lengths is None and pa.types.is_null(flat.type):
        flat = flat.cast(pa.int64())
    flat = plain_values(name, flat)
    if flat.type == pa.bool_():
        flat = flat.cast(pa.string()).cast(TEXT)
    if lengths is not None:
        flat = without_missing(name, flat, is_list=True)
    if pc.count_distinct(flat).as_py() > MAX_CLASSES:
        raise _unfit(name, "classes", f"more than {MAX_CLASSES:,} different values")
    names, is_list = tuple(given or own), lengths is not None
    are_texts = flat.type == TEXT
    if not are_texts:
        flat = _class_numbers(name, flat, own or names, is_list=is_list)
    if own and not are_texts:
        own_names = pa.array([to_bytes(each) for each in own], TEXT)
        flat = own_names.take(pc.if_else(pc.less(flat, 0), None, flat))
    if flat.type == TEXT:
        flat, names = _numbers_of_names(name, flat, names or None, is_list=is_list and are_texts)
    feature = Feature(name, "label", "int64", (None,) if is_list else ())
    return StoredColumn(feature, relisted(flat, lengths), names, _warning(name, flat, names))


def _unfit(name: str, role: str, what: str) -> InputError:
    classes = "save classes as integers from 0, or as text; " if role == "classes" else ""
    return InputError(
        f"column {name!r} holds {what}, which cannot be {role}; {classes}{flag(name, 'value')} stores the "
        "values as they are"
    )


def _separated(name: str, column: pa.ChunkedArray, separator: str | None) -> pa.ChunkedArray:
    """Return lists of the classes in texts between separators, if there is one."""
    if not is_bytes_type(column.type):
        if separator:
            raise InputError(f"label_separator={separator!r}: {name!r} is {shown(column.type)}, not text")
        return column
    texts = column.cast(TEXT)
    if separator is None:
        check_no_lists_in_text(name, texts, _JSON, "label_separator='' makes each a class, ")
    if not separator:
        return texts
    parts = [(text or b"").split(to_bytes(separator)) for text in texts.to_pylist()]
    lists = [[part.strip() for part in each if part.strip()] for each in parts]
    return pa.chunked_array([pa.array(lists, pa.large_list(TEXT))])


def check_no_lists_in_text(name: str, column: pa.ChunkedArray, form: re.Pattern[bytes], other: str) -> None:
    """Raise InputError if a column of text holds lists of a form; ``other`` is another remedy, or empty."""
    found = sampled(column)
    if found and all(map(form.fullmatch, found)):
        raise InputError(
            f"column {name!r} holds lists as text, such as {to_text(found[0][:_SHOWN])!r}; make lists of "
            f"them, in pandas: frame[{name!r}] = frame[{name!r}].map(ast.literal_eval), and build "
            f"prep.Table(frame); {other}{flag(name, 'value')} stores the text as it is"
        )


def _numbers_of_names(
    name: str, flat: pa.ChunkedArray, given: Sequence[str] | None, *, is_list: bool
) -> tuple[pa.ChunkedArray, tuple[str, ...]]:
    values = {to_text(value) for value in pc.unique(flat).drop_null().to_pylist()}
    if is_list and "" in values:
        raise _unfit(name, "classes", "an empty text in a list")
    names = class_map(values - {""}, given)
    numbers = pc.index_in(flat, value_set=pa.array([to_bytes(each) for each in names], TEXT))
    return numbers.cast(pa.int64()).fill_null(-1), names


def _class_numbers(
    name: str, flat: pa.ChunkedArray, names: Sequence[str], *, is_list: bool
) -> pa.ChunkedArray:
    lowest = 0 if is_list else -1
    least, most = pc.min_max(flat).as_py().values() if len(flat) > flat.null_count else (lowest, lowest)
    if least < lowest or most > _LARGEST:
        raise _unfit(name, "classes", f"the number {least if least < lowest else most}")
    if names and most >= len(names):
        raise _unfit(name, "classes", f"the number {most}, beyond the {len(names)} class names")
    numbers = flat.cast(pa.int64())
    return numbers.fill_null(-1) if numbers.null_count else numbers


def _warning(name: str, numbers: pa.ChunkedArray, names: Sequence[str]) -> str | None:
    """Return a warning about classes without rows, and rows without a class, or None."""
    counts = pc.value_counts(numbers).to_pylist()
    numbered = [each["values"] for each in counts if each["values"] >= 0]
    # integers from 0 need no names
    num_classes = len(names) or max(numbered, default=-1) + 1
    without = num_classes - len(numbered)
    num_open = sum(each["counts"] for each in counts if each["values"] < 0)
    faults = [f"classes without rows: {without:,} of {num_classes:,}"] if without else []
    faults += [f"rows without a class (-1): {num_open:,}"] if num_open else []
    return f"column {name!r}: {'; '.join(faults)}" if faults else None


def split_names(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the name of each row's split, as ``TEXT``; integers become text."""
    texts = _texts(name, column, "splits")
    names = [to_text(value) for value in pc.unique(texts).to_pylist()]
    if len(names) > _MAX_SPLITS:
        raise _unfit(name, "splits", f"{len(names)} different values, more than {_MAX_SPLITS}")
    for each in names:
        if fault := name_fault(each):
            row = pc.index(texts, pa.scalar(to_bytes(each), TEXT)).as_py() + 1
            raise InputError(f"column {name!r}, row {row}: the split name {fault}")
    return texts


def splits_of(column: pa.ChunkedArray) -> dict[str, IntArray]:
    """Return the rows of each split that a staged column names, in the usual order of splits."""
    encoded = column.combine_chunks().dictionary_encode()
    names = [to_text(value) for value in encoded.dictionary.to_pylist()]
    codes = numbers_of(encoded.indices)
    order = sorted(range(len(names)), key=lambda code: usual_order(names[code]))
    return {names[code]: np.flatnonzero(codes == code).astype(np.int64) for code in order}


def groups_of(name: str, column: pa.ChunkedArray) -> list[bytes]:
    """Return the group of each row: its value, text, bytes or an integer, as text.

    Raises:
        InputError: a value is missing, empty, or of another type.
    """
    groups: list[bytes] = _texts(name, column, "groups").to_pylist()
    if empty := groups.count(b""):
        raise InputError(f"group_by={name!r} has no value in {counted(empty, 'row')}; fill them first")
    return groups


def key_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the key of each row as ``TEXT``, from text, bytes or integers.

    Raises:
        InputError: a key is missing, empty, repeated, or contains NUL; the error names its row.
    """
    keys = _texts(name, column, "keys")
    if fault := key_fault(keys):
        raise InputError(f"column {name!r}, {fault}")
    return keys


def key_fault(keys: pa.ChunkedArray) -> str | None:
    """Return the first row whose value cannot be a key, and why, or None if all values can."""
    rows: dict[bytes, int] = {}
    for row, key in enumerate(keys.to_pylist(), 1):
        first = rows.setdefault(key, row)
        if not key or b"\0" in key or first != row:
            same = f"is that of row {first}, too" if first != row else "contains NUL"
            return f"row {row}: the key {to_text(key[:_SHOWN])!r} {same if key else 'is empty'}"
    return None


def _texts(name: str, column: pa.ChunkedArray, role: str) -> pa.ChunkedArray:
    """Return text, bytes or integers, of which none is missing, as ``TEXT``."""
    values = plain_values(name, column)
    if not (values.type == TEXT or pa.types.is_integer(values.type)):
        raise _unfit(name, role, f"{shown(column.type)}, neither text, bytes nor integers")
    values = without_missing(name, values, is_list=False)
    return values if values.type == TEXT else values.cast(pa.large_string()).cast(TEXT)
