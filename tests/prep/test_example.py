"""Encoding tf.train.Example gives the same bytes as TensorFlow, and decoding reverses it."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from tfshards.prep.records.example import example_encoder, with_label
from tfshards.schemas import Feature, Schema
from tfshards.schemas.example import decode_example

INT64 = st.integers(-(2**63), 2**63 - 1)
FLOAT32 = st.floats(width=32)
NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=6)


def no_prefixes(names: list[str]) -> bool:
    return not any(one != other and one.startswith(other) for one in names for other in names)


@st.composite
def examples(draw: st.DrawFn) -> tuple[Schema, list[object]]:
    """Draw a schema of up to five features of any kind and shape, and the values of one example."""
    features, values = [], []
    for name in draw(st.lists(NAMES, min_size=1, max_size=5, unique=True).filter(no_prefixes)):
        kind = draw(st.sampled_from(["image", "raw", "bytes", "label", "int", "float"]))
        shape: tuple[int | None, ...] = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
        count = int(np.prod(shape))
        if kind not in ("image", "raw") and draw(st.booleans()):
            shape, count = (None,), draw(st.integers(0, 5))
        if kind == "image":
            feature, value = Feature(name, kind, "uint8", (None, None, 3)), draw(st.binary(max_size=300))
        elif kind == "raw":
            feature = Feature(name, kind, "int16", shape)
            value = draw(st.binary(min_size=2 * count, max_size=2 * count))
        else:
            dtype, one = {
                "bytes": ("bytes", st.binary(max_size=200)),
                "label": ("int64", INT64),
                "int": ("int64", INT64),
                "float": ("float32", FLOAT32),
            }[kind]
            feature = Feature(name, kind, dtype, shape)
            many = st.lists(one, min_size=count, max_size=count)
            value = draw(many if shape else one)
        features.append(feature)
        values.append(value)
    return Schema(tuple(features)), values


def encoded(schema: Schema, values: list[object]) -> bytes:
    return b"".join(example_encoder(schema)(values))


def by_tensorflow(schema: Schema, values: list[object]) -> bytes:
    features = {}
    for feature, value in zip(schema.features, values, strict=True):
        items = value if isinstance(value, list) else [value]
        if feature.wire == "bytes":
            features[feature.name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=items))
        elif feature.wire == "int64":
            features[feature.name] = tf.train.Feature(int64_list=tf.train.Int64List(value=items))
        else:
            features[feature.name] = tf.train.Feature(float_list=tf.train.FloatList(value=items))
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


# in UTF-16 the last two names would be in the opposite order
BY_BYTES = ["b", "a", "ä", "猫", "Z", "\uff5e", "\U0001f408"]


@given(examples())
@example((Schema(tuple(Feature(name, "int", "int64") for name in BY_BYTES)), [*range(7)]))
def test_bytes_equal_those_of_tensorflow(example):
    assert encoded(*example) == by_tensorflow(*example)


def test_one_value_is_replaced_in_features_of_each_length():
    schema = Schema(
        (Feature("a", "bytes", "bytes"), Feature("key", "bytes", "bytes"), Feature("label", "label", "int64"))
    )
    for length in (*range(260), 16_000, 16_383, 16_384, 1 << 21):
        first = bytes(length)
        before, after = (encoded(schema, [first, b"k", label]) for label in (127, 128))
        assert with_label(before, "label", 128) == after


def test_fields_that_no_example_has_are_kept():
    schema = Schema((Feature("key", "bytes", "bytes"), Feature("label", "label", "int64")))
    before, after = (encoded(schema, [b"k", label]) for label in (3, 4))
    # a 64-bit value of field 4, a 32-bit one, text of field 3
    for unknown in (b"\x21" + b"\x0a" * 8, b"\x25" + b"\x0a" * 4, b"\x1a\x02\x0a\x00"):
        assert with_label(unknown + before, "label", 4) == after + unknown


@given(st.binary(max_size=40) | st.builds(lambda example: encoded(*example), examples()), st.data())
def test_whatever_the_bytes_are_they_mean_what_they_mean_to_tensorflow(data, draw):
    for _ in range(draw.draw(st.integers(0, 3)) if data else 0):
        at = draw.draw(st.integers(0, len(data) - 1))
        data = data[:at] + draw.draw(st.binary(max_size=3)) + data[at + draw.draw(st.integers(0, 2)) :]
        if not data:
            break
    try:
        features = tf.train.Example.FromString(data).features.feature
        expected = {
            n: list(getattr(feature, feature.WhichOneof("kind")).value) if feature.WhichOneof("kind") else []
            for n, feature in features.items()
        }
    except DecodeError:
        expected = None
    if expected is None:
        with pytest.raises(ValueError, match=r"^is not a tf\.train\.Example: "):
            decode_example(data)
        return
    found = decode_example(data)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
