"""Encode values as the bytes of ``tf.train.Example`` without TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias, cast

from tfshards.schemas import Feature, Schema
from tfshards.schemas.example import ParsedExample

# The values of one feature: encoded bytes or a number if it has one value, else a list of its wire type.
Values: TypeAlias = "bytes | int | float | Sequence[bytes] | Sequence[int] | Sequence[float]"

# Up to this size, copying bytes costs less than handling them separately.
SMALL_BYTES = 4096

_FLOAT = struct.Struct("<f")
# field number << 3 | 2: length-delimited
_LIST_TAGS = {"bytes": b"\x0a", "float": b"\x12", "int64": b"\x1a"}
_FIRST, _SECOND = b"\x0a", b"\x12"


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


def with_label(data: bytes, name: str, label: int) -> bytes:
    """Return an example with another value of the scalar label ``name``; all other values stay."""
    example = ParsedExample(data)
    example.label(name)
    return example.changed(name, label)


def _header(feature: Feature) -> Callable[[int], bytes]:
    """Return a function that maps the length of the packed values to the bytes before them.

    These are tags and lengths, which depend only on that length; the latest ones are cached.
    """
    name = feature.name.encode()
    name_part = _FIRST + _varint(len(name)) + name + _SECOND
    tag = _LIST_TAGS[feature.wire]
    is_bytes_list, is_packed = feature.holds_strings and not feature.is_single, feature.wire != "bytes"

    @lru_cache(maxsize=4096)
    def header(length: int) -> bytes:
        # From the inside out: the only field of the list, the list, the entry of the map. An empty packed
        # list is not written; an empty string is.
        head = b"" if is_bytes_list or (is_packed and not length) else _FIRST + _varint(length)
        head = tag + _varint(len(head) + length) + head
        head = name_part + _varint(len(head) + length) + head
        return _FIRST + _varint(len(head) + length) + head

    return header


def _packer(feature: Feature) -> Callable[[Values], bytes] | None:
    """Return the function that packs the feature's values; None if they are already the packed bytes."""
    if feature.wire == "float":
        return cast("Callable[[Values], bytes]", _FLOAT.pack) if feature.shape == () else _pack_floats
    if feature.wire == "int64":
        return cast("Callable[[Values], bytes]", _varint) if feature.shape == () else _pack_ints
    return None if feature.is_single else _pack_strings


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
