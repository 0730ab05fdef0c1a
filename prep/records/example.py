"""Encode values as the bytes of ``tf.train.Example``, and decode them, without TensorFlow.

The bytes equal those of TensorFlow's ``Example.SerializeToString(deterministic=True)``, except where one
feature's name is a prefix of another: protobuf's implementations order these differently. Messages:
tensorflow/core/example/{example,feature}.proto. Encoding: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple, TypeAlias, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from tfshards.schemas import Feature, Schema

# The values of one feature: encoded bytes or a number if it has one value, else a list of its wire type.
Values: TypeAlias = "bytes | int | float | Sequence[bytes] | Sequence[int] | Sequence[float]"
# The values of one feature, as decoded from a record.
Decoded: TypeAlias = "list[bytes] | list[int] | list[float]"

# Up to this size, copying bytes costs less than handling them separately.
SMALL_BYTES = 4096

# field number << 3 | 2: all of these fields are length-delimited
_LIST_TAGS = {"bytes": b"\x0a", "float": b"\x12", "int64": b"\x1a"}
_FIRST, _SECOND = b"\x0a", b"\x12"
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
    """Return the values of each feature in the bytes of an example.

    Raises:
        ValueError: ``data`` is not a ``tf.train.Example``.
    """
    values = {}
    for name, feature in _parse(data).features.feature.items():  # type: ignore[attr-defined]
        kind = feature.WhichOneof("kind")
        values[name] = list(getattr(feature, kind).value) if kind else []
    return values


def decode_key(data: bytes) -> bytes | None:
    """Return the feature ``key`` of an example, without decoding the others; None if it has none.

    Raises:
        ValueError: ``data`` is not a ``tf.train.Example``.
    """
    return ParsedExample(data).key


class ParsedExample:
    """An example that is parsed once, of which single features are then decoded.

    Raises:
        ValueError: ``data`` is not a ``tf.train.Example``.
    """

    def __init__(self, data: bytes) -> None:
        self._features = _parse(data).features.feature  # type: ignore[attr-defined]

    @property
    def key(self) -> bytes | None:
        """The feature ``key``; None if there is none."""
        strings: Sequence[bytes] = self._features["key"].bytes_list.value if "key" in self._features else []
        return strings[0] if len(strings) == 1 else None

    def label(self, name: str) -> int:
        """Return the single value of the feature ``name``.

        Raises:
            ValueError: the feature is missing or not one integer.
        """
        numbers: Sequence[int] = self._features[name].int64_list.value if name in self._features else []
        if len(numbers) != 1:
            raise ValueError(f"the feature {name!r} has {len(numbers)} integers instead of 1")
        return numbers[0]

    def encoded(self, name: str) -> bytes:
        """Return the bytes of the feature ``name``, which its values determine; none if it is missing."""
        # a map of messages has an empty one for each other name
        return cast("bytes", self._features[name].SerializeToString(deterministic=True))


def with_key_prefix(data: bytes, prefix: bytes) -> bytes:
    """Return an example with ``prefix`` before its key; all other bytes stay as they are.

    Raises:
        ValueError: ``data`` is not a ``tf.train.Example``, has no key, or has fields of an unknown type.
    """
    key = decode_key(data)
    if key is None:
        raise ValueError("has no key")
    return _with_entry(data, "key", _entry_header("key", "bytes")(len(prefix) + len(key)) + prefix + key)


def with_label(data: bytes, name: str, label: int) -> bytes:
    """Return an example with another value of the scalar label ``name``; all other bytes stay as they are.

    Raises:
        ValueError: ``data`` is not a ``tf.train.Example``, the feature is missing or not one integer, or
            there are fields of an unknown type.
    """
    decode_label(data, name)
    packed = _varint(label)
    return _with_entry(data, name, _entry_header(name, "label")(len(packed)) + packed)


def _with_entry(data: bytes, name: str, entry: bytes) -> bytes:
    """Return an example with another entry, which includes its tag, of the feature ``name``."""
    parts = []
    for field in _fields(data):
        if field.number == 1:
            features = data[field.value : field.end]
            changed = b"".join(
                entry
                if _name_of(features[each.value : each.end]) == name.encode()
                else features[each.start : each.end]
                for each in _fields(features)
            )
            parts.append(_FIRST + _varint(len(changed)) + changed)
        else:
            parts.append(data[field.start : field.end])
    return b"".join(parts)


def decode_label(data: bytes, name: str) -> int:
    """Return the single value of the feature ``name`` of an example, without decoding the others.

    Raises:
        ValueError: ``data`` is not a ``tf.train.Example``, or the feature is missing or not one integer.
    """
    return ParsedExample(data).label(name)


def empty_wires(data: bytes) -> dict[str, str]:
    """Return the wire type of each feature of an example that has no elements, by name.

    It is ``bytes``, ``int64`` or ``float``, or empty if the feature has no list. TensorFlow rejects an empty
    list of an unexpected type, and accepts a missing list as an empty one of any type.
    """
    wires = {}
    for name, feature in _parse(data).features.feature.items():  # type: ignore[attr-defined]
        kind = feature.WhichOneof("kind")
        if not kind or not getattr(feature, kind).value:
            wires[name] = (kind or "").removesuffix("_list")
    return wires


class _Field(NamedTuple):
    """A field of a message: its number, or 0 if it is not length-delimited, and where it is.

    The tag begins at ``start``, the value at ``value``.
    """

    number: int
    start: int
    value: int
    end: int


def _fields(message: bytes) -> Iterator[_Field]:
    """Yield the fields of a valid message.

    Raises:
        ValueError: the type of a field is unknown, or that of a group.
    """
    at = 0
    while at < len(message):
        start = at
        tag, at = _read_varint(message, at)
        wire_type = tag & 7
        if wire_type not in (0, 1, 2, 5):
            raise ValueError(f"has a field of type {wire_type}, which a tf.train.Example does not have")
        length, value = _read_varint(message, at) if wire_type in (0, 2) else ({1: 8, 5: 4}[wire_type], at)
        at = value + (0 if wire_type == 0 else length)
        yield _Field(tag >> 3 if wire_type == 2 else 0, start, value, at)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it."""
    number = shift = 0
    while message[at] > 127:
        number |= (message[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return number | message[at] << shift, at + 1


def _name_of(entry: bytes) -> bytes:
    """Return the name of the feature in an entry of the map of features; empty if the entry has none."""
    return next((entry[field.value : field.end] for field in _fields(entry) if field.number == 1), b"")


@cache
def _entry_header(name: str, kind: str) -> Callable[[int], bytes]:
    return _header(Feature(name, kind, {"bytes": "bytes", "label": "int64"}[kind]))


def _parse(data: bytes) -> Message:
    example = _message_class()()
    try:
        example.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"is not a tf.train.Example: {error}") from None
    return example


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


@cache
def _message_class() -> type[Message]:
    """Return the class ``Example`` from a separate pool, so that TensorFlow's can be loaded as well."""
    file = descriptor_pb2.FileDescriptorProto(
        name="tfshards/example.proto", package="tfshards", syntax="proto3"
    )
    kinds = {"bytes": ("BytesList", 12), "float": ("FloatList", 2), "int64": ("Int64List", 3)}
    field = descriptor_pb2.FieldDescriptorProto
    for message_name, scalar in kinds.values():
        message = file.message_type.add(name=message_name)
        message.field.add(name="value", number=1, label=field.LABEL_REPEATED, type=scalar)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (wire, (message_name, _)) in enumerate(kinds.items(), 1):
        name = f".tfshards.{message_name}"
        feature.field.add(name=f"{wire}_list", number=number, label=1, type=11, type_name=name, oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=11, type_name=".tfshards.Feature")
    features.field.add(
        name="feature", number=1, label=3, type=11, type_name=".tfshards.Features.FeatureEntry"
    )
    example = file.message_type.add(name="Example")
    example.field.add(name="features", number=1, label=1, type=11, type_name=".tfshards.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tfshards.Example"))
