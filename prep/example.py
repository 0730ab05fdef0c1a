"""Values to the bytes of ``tf.train.Example`` and back, without TensorFlow.

Written bytes equal those of TensorFlow's ``Example.SerializeToString(deterministic=True)``. Messages:
tensorflow/core/example/{example,feature}.proto. Encoding: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TypeAlias, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from tfshards.schemas import Feature, Schema

# The values of one feature: encoded bytes where it has one value, else a list by its wire type.
Values: TypeAlias = "bytes | int | Sequence[bytes] | Sequence[int] | Sequence[float]"
# The same, as a record gives it back.
Decoded: TypeAlias = "list[bytes] | list[int] | list[float]"

# field number << 3 | 2: every field on the way is length-delimited
_LIST_TAGS = {"bytes": b"\x0a", "float": b"\x12", "int64": b"\x1a"}
_FIRST, _SECOND = b"\x0a", b"\x12"


def example_encoder(schema: Schema) -> Callable[[Sequence[Values]], bytes]:
    """Return a function from the values of one example, in the schema's order, to its bytes.

    Between the values stand only tags and lengths. These depend on nothing but the values' lengths, so they
    are kept: examples of one size, as arrays give, cost one join.
    """
    # A deterministic map is sorted by key.
    places = sorted(range(len(schema.features)), key=lambda index: schema.features[index].name.encode())
    packers = [(_packer(schema.features[place]), place) for place in places]
    named = [(feature, _name_part(feature)) for feature in (schema.features[place] for place in places)]

    @lru_cache(maxsize=4096)
    def between(lengths: tuple[int, ...]) -> list[bytes]:
        return _constant_parts(named, lengths)

    def encode(values: Sequence[Values]) -> bytes:
        packed = [pack(values[place]) for pack, place in packers]
        # [head 0, values 0, head 1, values 1, ...]
        parts = [b""] * (2 * len(packed))
        parts[0::2] = between(tuple(map(len, packed)))
        parts[1::2] = packed
        return b"".join(parts)

    return encode


def decode_example(data: bytes) -> dict[str, Decoded]:
    """Return the values of each feature in the bytes of an example.

    Raises:
        ValueError: ``data`` is no ``tf.train.Example``.
    """
    example = _message_class()()
    try:
        example.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"is no tf.train.Example: {error}") from None
    values = {}
    for name, feature in example.features.feature.items():  # type: ignore[attr-defined]
        kind = feature.WhichOneof("kind")
        values[name] = list(getattr(feature, kind).value) if kind else []
    return values


def _constant_parts(features: Sequence[tuple[Feature, bytes]], lengths: Sequence[int]) -> list[bytes]:
    """Return what stands before each feature's packed values, of ``lengths`` bytes each."""
    heads, total = [], 0
    for (feature, name), length in zip(features, lengths, strict=True):
        # From the inside out: the list's one field, the list, the map's entry. An empty packed list is not
        # written, an empty string is.
        bare = _is_bytes_list(feature) or (not length and feature.wire != "bytes")
        head = b"" if bare else _FIRST + _varint(length)
        head = _LIST_TAGS[feature.wire] + _varint(len(head) + length) + head
        head = name + _varint(len(head) + length) + head
        heads.append(_FIRST + _varint(len(head) + length) + head)
        total += len(heads[-1]) + length
    if heads:
        heads[0] = _FIRST + _varint(total) + heads[0]
    return heads


def _name_part(feature: Feature) -> bytes:
    name = feature.name.encode()
    return _FIRST + _varint(len(name)) + name + _SECOND


def _is_bytes_list(feature: Feature) -> bool:
    """Whether the feature holds a list of byte strings rather than exactly one."""
    return feature.kind == "bytes" and feature.shape != ()


def _packer(feature: Feature) -> Callable[[Values], bytes]:
    if feature.wire == "int64":
        return _pack_ints
    if feature.wire == "float":
        return _pack_floats
    return _pack_strings if _is_bytes_list(feature) else _as_is


def _as_is(value: Values) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"expected bytes, got {type(value).__name__}")
    return value


def _pack_strings(values: Values) -> bytes:
    strings = cast("Sequence[bytes]", values)
    return b"".join(_FIRST + _varint(len(value)) + value for value in strings)


def _pack_ints(values: Values) -> bytes:
    if isinstance(values, int):
        return _varint(values)
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
    """Return the class of ``Example`` in a pool of its own, so that TensorFlow's may be loaded beside it."""
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
