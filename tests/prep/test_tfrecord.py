"""TFRecord files: the written ones equal TensorFlow's, and every damage is found when reading."""

import gzip
import struct

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.format_reader import masked_crc
from tfshards.prep.records.frames import RecordError, frame, read_in_order
from tfshards.schemas import InputError


def framed(*records: bytes) -> bytes:
    return b"".join(part for record in records for part in frame(record))


def read(path, compression: str = "none") -> list[bytes]:
    return [each.require_data(path) for each in read_in_order(path, compression)]


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
