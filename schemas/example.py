"""Parse the bytes of ``tf.train.Example`` by protobuf, without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any, TypeAlias, cast

# The values of one feature, as decoded from a record.
Decoded: TypeAlias = "list[bytes] | list[int] | list[float]"
# The list of a feature, as ``Feature.wire`` names it, by its field in protobuf.
_WIRES = {"bytes_list": "bytes", "float_list": "float", "int64_list": "int64"}
# The messages of tensorflow/core/example/example.proto, and the field 2 of a SequenceExample.
_MESSAGES = """
name: "tfshards.proto" package: "tfshards" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Int64List" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type { name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: ".tfshards.BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 type: TYPE_MESSAGE type_name: ".tfshards.FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: ".tfshards.Int64List" oneof_index: 0 } }
message_type { name: "Features"
  nested_type { name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".tfshards.Feature" } }
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".tfshards.Features.FeatureEntry" } }
message_type { name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".tfshards.Features" }
  field { name: "feature_lists" number: 2 type: TYPE_BYTES } }
"""


@cache
def example_class() -> Any:  # noqa: ANN401 -- protobuf makes its classes when it runs
    """Return the class of ``tf.train.Example``, which is not the one of TensorFlow."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_MESSAGES, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tfshards.Example"))


@cache
def _decoder() -> tuple[Callable[[bytes], Any], type[Exception]]:
    """Return what decodes an example, and the error that it raises."""
    from google.protobuf.message import DecodeError

    return example_class().FromString, DecodeError


class ParsedExample:
    """An example, whose features are read by their names; bytes that are not one raise ValueError.

    Attributes:
        message: the message of protobuf.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        decode, decode_error = _decoder()
        try:
            self.message: Any = decode(bytes(data))
        except decode_error as error:
            raise ValueError(f"is not a tf.train.Example: {error}") from None
        self._features = self.message.features.feature

    @property
    def names(self) -> Collection[str]:
        """The names of the features."""
        return cast("Collection[str]", self._features.keys())

    @property
    def is_sequence(self) -> bool:
        """Whether it is a ``tf.train.SequenceExample`` with lists of features."""
        return bool(self.message.feature_lists)

    def typed(self, name: str) -> tuple[str, Any]:
        """Return the wire type and the values of a feature; no type if it has no list or is missing."""
        # what is missing would be added by []
        feature = self._features.get(name)
        field = None if feature is None else feature.WhichOneof("kind")
        return (_WIRES[field], getattr(feature, field).value) if field else ("", ())

    def values(self) -> dict[str, Decoded]:
        """Return the values of each feature."""
        return {name: list(self.typed(name)[1]) for name in self.names}

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

    def changed(self, name: str, value: bytes | int) -> bytes:
        """Return the bytes of the example with another value of a feature that has exactly one."""
        self.typed(name)[1][0] = value
        return cast("bytes", self.message.SerializeToString(deterministic=True))


def decode_example(data: bytes) -> dict[str, Decoded]:
    """Return the values of each feature in the bytes of an example; see ``ParsedExample``."""
    return ParsedExample(data).values()
