"""Records and TFRecord files equal those of TensorFlow, and every damage is found when reading."""

import gzip
import struct

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.format_reader import masked_crc
from tfshards.prep.records.example import example_encoder, with_label
from tfshards.prep.records.frames import RecordError, frame, read_in_order
from tfshards.schemas import Feature, InputError, Schema
from tfshards.schemas.example import decode_example
from tfshards.schemas.storage import any_path


def framed(*records: bytes) -> bytes:
    return b"".join(part for record in records for part in frame(record))


def read(path, compression: str = "none") -> list[bytes]:
    return [each.require_data(path) for each in read_in_order(any_path(path), compression)]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


@given(records=st.lists(st.lists(st.binary(max_size=400), min_size=1, max_size=3), max_size=8))
@settings(max_examples=30)
def test_files_equal_those_of_tensorflow_byte_for_byte(records, scratch):
    whole = [b"".join(parts) for parts in records]
    ours, theirs = scratch / "ours", scratch / "theirs"
    ours.write_bytes(b"".join(part for parts in records for part in frame(*parts)))
    with tf.io.TFRecordWriter(str(theirs)) as writer:
        for record in whole:
            writer.write(record)
    assert ours.read_bytes() == theirs.read_bytes()
    assert read(ours) == whole == [record.numpy() for record in tf.data.TFRecordDataset(str(ours))]


def test_a_record_that_protobuf_cannot_parse_is_not_written():
    # zeros that the system provides when they are read, which they are not
    with pytest.raises(InputError, match=r"has 2147483648 bytes, but .* at most 2147483647"):
        frame(bytes(1 << 31))


def test_every_flipped_bit_and_every_truncation_is_found_in_its_record(tmp_path):
    path, records = tmp_path / "shard", [b"first", b"", b"the third and last"]
    whole, ends = framed(*records), (21, 37, 71)
    damaged = [(bit // 8, bytes_with(whole, bit)) for bit in range(8 * len(whole))]
    # that records are missing at the end is what the index and the manifest reveal
    damaged += [(length, whole[:length]) for length in range(len(whole)) if length not in (0, *ends)]
    for at, data in damaged:
        path.write_bytes(data)
        number = sum(at >= end for end in ends)
        with pytest.raises(RecordError) as found:
            read(path)
        assert (found.value.record, found.value.offset) == (number, (0, *ends)[number])
        assert found.value.path == path


def bytes_with(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc(packed))


DAMAGE = {
    "beyond the file": header(2**31 - 1) + b"abc",
    "more than protobuf parses": header(2**40) + b"abc",
    "no footer": header(3) + b"abc",
}


@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_length_that_the_file_does_not_have_takes_no_memory(compression, data, tmp_path):
    content = framed(b"sound") + data
    (tmp_path / "shard").write_bytes(gzip.compress(content) if compression == "gzip" else content)
    with pytest.raises(RecordError) as found:
        read(tmp_path / "shard", compression)
    assert (found.value.record, found.value.offset) == (1, 21)


# Encoding tf.train.Example gives the same bytes as TensorFlow, and decoding reverses it


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
