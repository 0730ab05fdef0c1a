"""Encode values as the bytes of ``tf.train.Example``, and decode them, without TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import TypeAlias, cast

import numpy as np

from tfshards.schemas import Feature, Schema

# A field: its number << 3 | its type, and the offsets of its tag, of its value and of its end.
Field = tuple[int, int, int, int]

_NUMBER, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
# bytes of a number; tags and lengths have 32 bits
_MAX_VARINT, _MAX_SHORT = 10, 5
_MASK = (1 << 64) - 1
# up to this size a loop is faster than NumPy
_FEW_BYTES = 16


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


def integers(data: bytes, start: int, end: int) -> list[int]:
    """Return the packed signed integers of 64 bits between two offsets, or raise ValueError."""
    if end - start > _FEW_BYTES:
        return _many_integers(data, start, end)
    found, at = [], start
    while at < end:
        number, at = _read_varint(data, at, end)
        found.append(number - (1 << 64) if number >> 63 else number)
    return found


def _many_integers(data: bytes, start: int, end: int) -> list[int]:
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


def floats(data: bytes, start: int, end: int) -> list[float]:
    """Return the floats of 32 bits between two offsets, or raise ValueError."""
    if (end - start) % 4:
        raise ValueError(f"the floats at byte {start} have {end - start} bytes")
    numbers: list[float] = np.frombuffer(data, "<f4", (end - start) // 4, start).tolist()
    return numbers


def _read_varint(data: bytes, at: int, end: int, most: int = _MAX_VARINT) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it."""
    if at < end and data[at] < 128:
        return data[at], at + 1
    number = 0
    for index, octet in enumerate(data[at : min(end, at + most)]):
        number |= (octet & 127) << 7 * index
        if octet < 128:
            return number & _MASK, at + index + 1
    raise ValueError(f"the number at byte {at} is cut off")


# The values of one feature: encoded bytes or a number if it has one value, else a list of its wire type.
Values: TypeAlias = "bytes | int | float | Sequence[bytes] | Sequence[int] | Sequence[float]"
# The values of one feature, as decoded from a record.
Decoded: TypeAlias = "list[bytes] | list[int] | list[float]"

# Up to this size, copying bytes costs less than handling them separately.
SMALL_BYTES = 4096

# field number << 3 | 2: all of these fields are length-delimited
_LIST_TAGS = {"bytes": b"\x0a", "float": b"\x12", "int64": b"\x1a"}
_FIRST, _SECOND = b"\x0a", b"\x12"
_KINDS = {tag[0]: wire for wire, tag in _LIST_TAGS.items()}
# the tags of single values in a list that is not packed
_ONE_INTEGER, _ONE_FLOAT = 1 << 3, 1 << 3 | 5
_FLOAT = struct.Struct("<f")


def example_encoder(schema: Schema) -> Callable[[Sequence[Values]], Sequence[bytes]]:
    """Return a function that maps the values of one example, in the schema's order, to its bytes in parts.

    A small example is one part. The values of a large one are parts themselves, which avoids a copy.
    """
    # A deterministic map is sorted by key.
    indices = sorted(range(len(schema.features)), key=lambda index: schema.features[index].name.encode())
    fields = [(index, _packer(schema.features[index]), _header(schema.features[index])) for index in indices]

    def encode(values: Sequence[Values]) -> Sequence[bytes]:
        parts: list[bytes] = []
        for index, pack, header in fields:
            packed: bytes = pack(values[index]) if pack else values[index]  # type: ignore[assignment]
            parts += (header(len(packed)), packed)
        total = sum(map(len, parts))
        parts.insert(0, _FIRST + _varint(total))
        return parts if total >= SMALL_BYTES else (b"".join(parts),)

    return encode


def decode_example(data: bytes) -> dict[str, Decoded]:
    """Return the values of each feature in the bytes of an example; see ``ParsedExample``."""
    return ParsedExample(data).values()


def decode_key(data: bytes) -> bytes | None:
    """Return the feature ``key`` of an example; None if it has none. See ``ParsedExample``."""
    return ParsedExample(data).key


class ParsedExample:
    """An example of which single features are decoded; bytes that are not one raise ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        # offsets of the messages of each feature, which together are one message
        self._places: dict[str, list[tuple[int, int]]] = {}
        try:
            for tag, _, value, end in fields(data, 0, len(data)):
                if tag == _FIRST[0]:
                    self._add_features(value, end)
        except ValueError as error:
            raise _not_an_example(error) from None

    def _add_features(self, start: int, end: int) -> None:
        data = self._data
        for tag, _, entry, after in fields(data, start, end):
            if tag == _FIRST[0]:
                name, places = "", []
                for part, _, value, stop in fields(data, entry, after):
                    if part == _FIRST[0]:
                        name = data[value:stop].decode()
                    elif part == _SECOND[0]:
                        places.append((value, stop))
                # of two entries with a name, the later one counts
                self._places[name] = places

    def values(self) -> dict[str, Decoded]:
        """Return the values of each feature."""
        return {name: self._decoded(name)[1] for name in self._places}

    def empty_wires(self) -> dict[str, str]:
        """Return the wire type of each feature without elements, by name; empty if it has no list.

        TensorFlow rejects an empty list of an unexpected type, and accepts a missing list as an empty one.
        """
        found = {name: self._decoded(name) for name in self._places}
        return {name: wire for name, (wire, values) in found.items() if not values}

    @property
    def key(self) -> bytes | None:
        """The feature ``key``; None if there is none."""
        wire, values = self._decoded("key")
        return cast("bytes", values[0]) if wire == "bytes" and len(values) == 1 else None

    def label(self, name: str) -> int:
        """Return the single value of the feature ``name``; ValueError if it is not one integer."""
        wire, values = self._decoded(name)
        count = len(values) if wire == "int64" else 0
        if count != 1:
            raise ValueError(f"the feature {name!r} has {count} integers instead of 1")
        return cast("int", values[0])

    def canonical(self, name: str) -> bytes:
        """Return bytes that are equal if the values of the feature ``name`` are; none if it is missing."""
        wire, values = self._decoded(name)
        pack = {"bytes": _pack_strings, "int64": _pack_ints, "float": _pack_floats}
        return _LIST_TAGS[wire] + pack[wire](values) if wire else b""

    def _decoded(self, name: str) -> tuple[str, Decoded]:
        """Return the wire type and the values of a feature; no type if it has no list or is missing."""
        wire, values = "", cast("list[bytes]", [])
        try:
            for start, end in self._places.get(name, ()):
                for tag, _, value, stop in fields(self._data, start, end):
                    if tag in _KINDS:
                        # a list of another type replaces the one before it
                        wire, values = _KINDS[tag], values if wire == _KINDS[tag] else []
                        values += cast("list[bytes]", _elements(self._data, wire, value, stop))
        except ValueError as error:
            raise _not_an_example(error) from None
        return wire, values


def _elements(data: bytes, wire: str, start: int, end: int) -> Decoded:
    """Return the values of the list between two offsets."""
    if wire == "bytes":
        return [data[value:stop] for tag, _, value, stop in fields(data, start, end) if tag == _FIRST[0]]
    unpack, one = (integers, _ONE_INTEGER) if wire == "int64" else (floats, _ONE_FLOAT)
    values = cast("list[int]", [])
    for tag, _, value, stop in fields(data, start, end):
        if tag == _FIRST[0] or tag == one:
            values += cast("list[int]", unpack(data, value, stop))
    return values


def _not_an_example(error: ValueError) -> ValueError:
    return ValueError(f"is not a tf.train.Example: {error}")


def with_key_prefix(data: bytes, prefix: bytes) -> bytes:
    """Return an example with ``prefix`` before its key, which it must have; all else stays as it is."""
    key = decode_key(data)
    if key is None:
        raise ValueError("has no key")
    return _with_entry(data, "key", _entry_header("key", "bytes")(len(prefix) + len(key)) + prefix + key)


def with_label(data: bytes, name: str, label: int) -> bytes:
    """Return an example with another value of the scalar label ``name``; all else stays as it is."""
    ParsedExample(data).label(name)
    packed = _varint(label)
    return _with_entry(data, name, _entry_header(name, "label")(len(packed)) + packed)


def _with_entry(data: bytes, name: str, entry: bytes) -> bytes:
    """Return an example with another entry, which includes its tag, of the feature ``name``."""
    parts = []
    for tag, start, value, end in fields(data, 0, len(data)):
        if tag == _FIRST[0]:
            changed = b"".join(
                entry
                if inner == _FIRST[0] and _name_of(data, first, stop) == name.encode()
                else data[begin:stop]
                for inner, begin, first, stop in fields(data, value, end)
            )
            parts.append(_FIRST + _varint(len(changed)) + changed)
        else:
            parts.append(data[start:end])
    return b"".join(parts)


def _name_of(data: bytes, start: int, end: int) -> bytes:
    """Return the name of the feature in an entry of the map of features; empty if the entry has none."""
    names = [data[value:stop] for tag, _, value, stop in fields(data, start, end) if tag == _FIRST[0]]
    return names[-1] if names else b""


@cache
def _entry_header(name: str, kind: str) -> Callable[[int], bytes]:
    return _header(Feature(name, kind, {"bytes": "bytes", "label": "int64"}[kind]))


def _header(feature: Feature) -> Callable[[int], bytes]:
    """Return a function that maps the length of the packed values to the bytes before them.

    These are tags and lengths, which depend only on that length; the latest ones are cached.
    """
    name = feature.name.encode()
    name_part = _FIRST + _varint(len(name)) + name + _SECOND
    tag = _LIST_TAGS[feature.wire]
    is_bytes_list, is_packed = _is_bytes_list(feature), feature.wire != "bytes"

    @lru_cache(maxsize=4096)
    def header(length: int) -> bytes:
        # From the inside out: the only field of the list, the list, the entry of the map. An empty packed
        # list is not written; an empty string is.
        head = b"" if is_bytes_list or (is_packed and not length) else _FIRST + _varint(length)
        head = tag + _varint(len(head) + length) + head
        head = name_part + _varint(len(head) + length) + head
        return _FIRST + _varint(len(head) + length) + head

    return header


def _is_bytes_list(feature: Feature) -> bool:
    """Return whether the feature holds a list of byte strings rather than exactly one."""
    return feature.kind == "bytes" and feature.shape != ()


def _packer(feature: Feature) -> Callable[[Values], bytes] | None:
    """Return the function that packs the feature's values; None if they are already the packed bytes."""
    if feature.wire == "float":
        return cast("Callable[[Values], bytes]", _FLOAT.pack) if feature.shape == () else _pack_floats
    if feature.wire == "int64":
        return cast("Callable[[Values], bytes]", _varint) if feature.shape == () else _pack_ints
    return _pack_strings if _is_bytes_list(feature) else None


def _pack_strings(values: Values) -> bytes:
    strings = cast("Sequence[bytes]", values)
    return b"".join(_FIRST + _varint(len(value)) + value for value in strings)


def _pack_ints(values: Values) -> bytes:
    return b"".join(map(_varint, cast("Sequence[int]", values)))


def _pack_floats(values: Values) -> bytes:
    numbers = cast("Sequence[float]", values)
    return struct.pack(f"<{len(numbers)}f", *numbers)


@lru_cache(maxsize=1 << 16)
def _varint(value: int) -> bytes:
    # A negative int64 is its two's complement in 64 bits: ten bytes.
    rest = value & 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
