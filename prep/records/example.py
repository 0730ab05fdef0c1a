"""Encode values as the bytes of ``tf.train.Example`` without TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TypeAlias, cast

from tfshards.schemas import Feature, Schema
from tfshards.schemas.example import FIRST, LIST_TAGS, SECOND, ParsedExample, decode_key, fields

# The values of one feature: encoded bytes or a number if it has one value, else a list of its wire type.
Values: TypeAlias = "bytes | int | float | Sequence[bytes] | Sequence[int] | Sequence[float]"

# Up to this size, copying bytes costs less than handling them separately.
SMALL_BYTES = 4096

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
        parts.insert(0, FIRST + _varint(total))
        return parts if total >= SMALL_BYTES else (b"".join(parts),)

    return encode


def canonical(example: ParsedExample, name: str) -> bytes:
    """Return bytes that are equal if the values of the feature ``name`` are; none if it is missing."""
    wire, values = example.typed(name)
    pack = {"bytes": _pack_strings, "int64": _pack_ints, "float": _pack_floats}
    return LIST_TAGS[wire] + pack[wire](values) if wire else b""


def is_single(feature: Feature) -> bool:
    """Return whether ``example_encoder`` takes one value of a feature rather than a list."""
    return feature.shape == () or feature.is_encoded or feature.is_raw


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
        if tag == FIRST[0]:
            changed = b"".join(
                entry
                if inner == FIRST[0] and _name_of(data, first, stop) == name.encode()
                else data[begin:stop]
                for inner, begin, first, stop in fields(data, value, end)
            )
            parts.append(FIRST + _varint(len(changed)) + changed)
        else:
            parts.append(data[start:end])
    return b"".join(parts)


def _name_of(data: bytes, start: int, end: int) -> bytes:
    """Return the name of the feature in an entry of the map of features; empty if the entry has none."""
    names = [data[value:stop] for tag, _, value, stop in fields(data, start, end) if tag == FIRST[0]]
    return names[-1] if names else b""


@cache
def _entry_header(name: str, kind: str) -> Callable[[int], bytes]:
    return _header(Feature(name, kind, {"bytes": "bytes", "label": "int64"}[kind]))


def _header(feature: Feature) -> Callable[[int], bytes]:
    """Return a function that maps the length of the packed values to the bytes before them.

    These are tags and lengths, which depend only on that length; the latest ones are cached.
    """
    name = feature.name.encode()
    name_part = FIRST + _varint(len(name)) + name + SECOND
    tag = LIST_TAGS[feature.wire]
    is_bytes_list, is_packed = _is_bytes_list(feature), feature.wire != "bytes"

    @lru_cache(maxsize=4096)
    def header(length: int) -> bytes:
        # From the inside out: the only field of the list, the list, the entry of the map. An empty packed
        # list is not written; an empty string is.
        head = b"" if is_bytes_list or (is_packed and not length) else FIRST + _varint(length)
        head = tag + _varint(len(head) + length) + head
        head = name_part + _varint(len(head) + length) + head
        return FIRST + _varint(len(head) + length) + head

    return header


def _is_bytes_list(feature: Feature) -> bool:
    """Return whether the feature holds a list of byte strings rather than exactly one."""
    return feature.holds_strings and feature.shape != () and not feature.is_encoded


def _packer(feature: Feature) -> Callable[[Values], bytes] | None:
    """Return the function that packs the feature's values; None if they are already the packed bytes."""
    if feature.wire == "float":
        return cast("Callable[[Values], bytes]", _FLOAT.pack) if feature.shape == () else _pack_floats
    if feature.wire == "int64":
        return cast("Callable[[Values], bytes]", _varint) if feature.shape == () else _pack_ints
    return _pack_strings if _is_bytes_list(feature) else None


def _pack_strings(values: Values) -> bytes:
    strings = cast("Sequence[bytes]", values)
    return b"".join(FIRST + _varint(len(value)) + value for value in strings)


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
