"""Decode the bytes of ``tf.train.Example`` without TensorFlow."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeAlias, cast

import numpy as np

# A field: its number << 3 | its type, and the offsets of its tag, of its value and of its end.
Field: TypeAlias = tuple[int, int, int, int]
# The values of one feature, as decoded from a record.
Decoded: TypeAlias = "list[bytes] | list[int] | list[float]"

_NUMBER, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
# bytes of a number; tags and lengths have 32 bits
_MAX_VARINT, _MAX_SHORT = 10, 5
_MASK = (1 << 64) - 1
# up to this size a loop is faster than NumPy
_FEW_BYTES = 16
# field number << 3 | 2: length-delimited
LIST_TAGS = {"bytes": b"\x0a", "float": b"\x12", "int64": b"\x1a"}
FIRST, SECOND = b"\x0a", b"\x12"
_KINDS = {tag[0]: wire for wire, tag in LIST_TAGS.items()}
# the tags of single values in a list that is not packed
_ONE = {"int64": 1 << 3, "float": 1 << 3 | 5}


def fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message between two offsets; raise ValueError if it is none of an example."""
    at = start
    while at < end:
        tag, value = _read_varint(data, at, end, _MAX_SHORT)
        kind = tag & 7
        if kind == _BYTES:
            length, value = _read_varint(data, value, end, _MAX_SHORT)
            stop = value + length
        elif kind == _NUMBER:
            _, stop = _read_varint(data, value, end)
        elif kind in _FIXED:
            stop = value + _FIXED[kind]
        else:
            raise ValueError(f"the field at byte {at} has type {kind}")
        if stop > end:
            raise ValueError(f"the field at byte {at} ends {stop - end} bytes after its message")
        if not 8 <= tag < 1 << 32:
            raise ValueError(f"the field at byte {at} has number {tag >> 3}")
        yield tag, at, value, stop
        at = stop


def integers(data: bytes | memoryview, start: int, end: int) -> list[int]:
    """Return the packed signed integers of 64 bits between two offsets, or raise ValueError."""
    if end - start > _FEW_BYTES:
        return _many_integers(data, start, end)
    found, at = [], start
    while at < end:
        number, at = _read_varint(data, at, end)
        found.append(number - (1 << 64) if number >> 63 else number)
    return found


def _many_integers(data: bytes | memoryview, start: int, end: int) -> list[int]:
    octets = np.frombuffer(data, np.uint8, end - start, start)
    ends = np.flatnonzero(octets < 128)
    starts = np.concatenate(([0], ends + 1))
    lengths = np.diff(starts)
    if starts[-1] != len(octets) or lengths.max() > _MAX_VARINT:
        raise ValueError(f"the integers at byte {start} are cut off")
    shifts = 7 * (np.arange(len(octets)) - np.repeat(starts[:-1], lengths))
    bits = (octets & 127).astype(np.uint64) << shifts.astype(np.uint64)
    numbers: list[int] = np.bitwise_or.reduceat(bits, starts[:-1]).view(np.int64).tolist()
    return numbers


def floats(data: bytes | memoryview, start: int, end: int) -> list[float]:
    """Return the floats of 32 bits between two offsets, or raise ValueError."""
    if (end - start) % 4:
        raise ValueError(f"the floats at byte {start} have {end - start} bytes")
    numbers: list[float] = np.frombuffer(data, "<f4", (end - start) // 4, start).tolist()
    return numbers


def _read_varint(data: bytes | memoryview, at: int, end: int, most: int = _MAX_VARINT) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it."""
    if at < end and data[at] < 128:
        return data[at], at + 1
    number = 0
    for index, octet in enumerate(data[at : min(end, at + most)]):
        number |= (octet & 127) << 7 * index
        if octet < 128:
            return number & _MASK, at + index + 1
    raise ValueError(f"the number at byte {at} is cut off")


def decode_example(data: bytes) -> dict[str, Decoded]:
    """Return the values of each feature in the bytes of an example; see ``ParsedExample``."""
    spans = single_lists(data)
    if spans is None:
        return ParsedExample(data).values()
    try:
        return {name: single_values(data, *span) for name, span in spans.items()}
    except ValueError as error:
        raise _not_an_example(error) from None


def decode_key(data: bytes) -> bytes | None:
    """Return the feature ``key`` of an example; None if it has none. See ``ParsedExample``."""
    return ParsedExample(data).key


def single_lists(data: bytes | memoryview) -> dict[str, tuple[str, int, int]] | None:
    """Return the wire type of each feature, and the offsets of its one byte string or run of packed numbers.

    This is the form in which examples are usually written; None if the bytes have another one, or are none.
    """
    found = {}
    try:
        at, end = _inside(data, 0, FIRST[0], len(data))
        if end != len(data):
            return None
        while at < end:
            name, entry = _inside(data, at, FIRST[0], end)
            name, name_end = _inside(data, name, FIRST[0], entry)
            feature, at = _inside(data, name_end, SECOND[0], entry)
            tag = data[feature]
            values, list_end = _inside(data, feature, tag, at)
            start, stop = _inside(data, values, FIRST[0], list_end)
            if not stop == list_end == at == entry:
                return None
            found[str(data[name:name_end], "utf-8")] = (_KINDS[tag], start, stop)
    except (IndexError, KeyError, ValueError):
        return None
    return found


def single_values(data: bytes | memoryview, wire: str, start: int, end: int) -> Decoded:
    """Return the values of a feature between the offsets that ``single_lists`` has found."""
    if wire == "int64":
        return integers(data, start, end)
    return floats(data, start, end) if wire == "float" else [bytes(data[start:end])]


def _inside(data: bytes | memoryview, at: int, tag: int, end: int) -> tuple[int, int]:
    """Return the offsets of the value of a field with this tag, or raise ValueError."""
    length = data[at + 1]
    value = at + 2
    if length > 127:
        # images have lengths of two or three bytes
        second = data[at + 2]
        third = data[at + 3] if second > 127 else 0
        if third > 127:
            length, value = _read_varint(data, at + 1, end, _MAX_SHORT)
        elif second > 127:
            length, value = length & 127 | (second & 127) << 7 | third << 14, at + 4
        else:
            length, value = length & 127 | second << 7, at + 3
    if data[at] != tag or value + length > end:
        raise ValueError(at)
    return value, value + length


class ParsedExample:
    """An example of which single features are decoded; bytes that are not one raise ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        # offsets of the messages of each feature, which together are one message
        self._places: dict[str, list[tuple[int, int]]] = {}
        try:
            for tag, _, value, end in fields(data, 0, len(data)):
                if tag == FIRST[0]:
                    self._add_features(value, end)
        except ValueError as error:
            raise _not_an_example(error) from None

    def _add_features(self, start: int, end: int) -> None:
        data = self._data
        for tag, _, entry, after in fields(data, start, end):
            if tag == FIRST[0]:
                name, places = "", []
                for part, _, value, stop in fields(data, entry, after):
                    if part == FIRST[0]:
                        name = data[value:stop].decode()
                    elif part == SECOND[0]:
                        places.append((value, stop))
                # of two entries with a name, the later one counts
                self._places[name] = places

    def values(self) -> dict[str, Decoded]:
        """Return the values of each feature."""
        return {name: self.typed(name)[1] for name in self._places}

    def empty_wires(self) -> dict[str, str]:
        """Return the wire type of each feature without elements, by name; empty if it has no list.

        TensorFlow rejects an empty list of an unexpected type, and accepts a missing list as an empty one.
        """
        found = {name: self.typed(name) for name in self._places}
        return {name: wire for name, (wire, values) in found.items() if not values}

    @property
    def key(self) -> bytes | None:
        """The feature ``key``; None if there is none."""
        wire, values = self.typed("key")
        return cast("bytes", values[0]) if wire == "bytes" and len(values) == 1 else None

    def required_key(self) -> bytes:
        """Return the feature ``key``; ValueError if it is not one byte string without NUL."""
        key = self.key
        if key is None or b"\0" in key:
            raise ValueError("has no key" if key is None else f"has the key {key!r}, which contains NUL")
        return key

    def label(self, name: str) -> int:
        """Return the single value of the feature ``name``; ValueError if it is not one integer."""
        wire, values = self.typed(name)
        count = len(values) if wire == "int64" else 0
        if count != 1:
            raise ValueError(f"the feature {name!r} has {count} integers instead of 1")
        return cast("int", values[0])

    @property
    def names(self) -> Collection[str]:
        """The names of the features."""
        return self._places.keys()

    def spans(self, name: str) -> tuple[str, list[tuple[int, int]]]:
        """Return the wire type of a feature, and the offsets of its values in the bytes of the example.

        They are the offsets of each byte string, or of each run of packed numbers. There is no type if the
        feature has no list or is missing.
        """
        wire, found = "", cast("list[tuple[int, int]]", [])
        try:
            for start, end in self._places.get(name, ()):
                for tag, _, value, stop in fields(self._data, start, end):
                    if tag in _KINDS:
                        # a list of another type replaces the one before it
                        wire, found = _KINDS[tag], found if wire == _KINDS[tag] else []
                        found += [
                            each[2:]
                            for each in fields(self._data, value, stop)
                            if each[0] in (FIRST[0], _ONE.get(wire))
                        ]
        except ValueError as error:
            raise _not_an_example(error) from None
        return wire, found

    def typed(self, name: str) -> tuple[str, Decoded]:
        """Return the wire type and the values of a feature; no type if it has no list or is missing."""
        wire, found = self.spans(name)
        if wire in ("", "bytes"):
            return wire, [self._data[start:end] for start, end in found]
        unpack = integers if wire == "int64" else floats
        try:
            return wire, [value for start, end in found for value in unpack(self._data, start, end)]
        except ValueError as error:
            raise _not_an_example(error) from None


def _not_an_example(error: ValueError) -> ValueError:
    return ValueError(f"is not a tf.train.Example: {error}")
