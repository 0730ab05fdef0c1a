"""TFRecord files: TensorFlow reads the written files, and every damage is found when reading."""

import os
import random
import struct

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.errors import raises
from tfshards.prep.records.frames import RecordError, frame, read_records
from tfshards.schemas import InputError
from tfshards.schemas.frames import masked_crc32c

RECORDS = [b"first", b"", b"the third and last"]
BOUNDARIES = (0, 21, 37, 71)


def write(path, records: list[bytes]):
    path.write_bytes(b"".join(part for record in records for part in frame(record)))
    return path


def read(path) -> list[bytes]:
    return [data for _, data in read_records(path, "none")]


@pytest.fixture
def shard(tmp_path):
    return write(tmp_path / "shard", RECORDS)


def test_the_checksum_is_crc_32c_masked():
    # RFC 3720, section B.4, and the mask of docs/format.md
    assert masked_crc32c(bytes(32)) == ((0x8A9136AA >> 15 | 0x8A9136AA << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crc32c(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crc32c(b"1234", b"", b"56789") == masked_crc32c(b"123456789")


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


def test_records_come_with_the_offsets_of_their_frames(shard):
    assert [offset for offset, _ in read_records(shard, "none")] == list(BOUNDARIES[:3])
    assert shard.stat().st_size == BOUNDARIES[3]


def test_a_record_larger_than_any_buffer_is_read(tmp_path):
    records = [b"small", random.Random(0).randbytes(3 << 20), b"small"]
    assert read(write(tmp_path / "shard", records)) == records


def test_a_record_that_protobuf_cannot_parse_is_not_written():
    # zeros that the system provides when they are read, which they are not
    with raises(InputError, "record-too-large", length=2147483648, max_record_bytes=2147483647):
        frame(bytes(1 << 31))


def test_every_flipped_bit_is_found_in_its_record(shard):
    whole = shard.read_bytes()
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        shard.write_bytes(damaged)
        number = sum(bit // 8 >= boundary for boundary in BOUNDARIES[1:])
        with pytest.raises(RecordError) as found:
            read(shard)
        assert (found.value.record, found.value.offset) == (number, BOUNDARIES[number])
        assert found.value.path == shard


def test_every_truncation_except_between_records_is_found(shard):
    whole = shard.read_bytes()
    for length in range(len(whole)):
        shard.write_bytes(whole[:length])
        before = sum(length >= boundary for boundary in BOUNDARIES[1:])
        if length in BOUNDARIES:
            # which only the index and the manifest reveal
            assert read(shard) == RECORDS[:before]
            continue
        with pytest.raises(RecordError) as found:
            read(shard)
        assert (found.value.record, found.value.offset) == (before, BOUNDARIES[before])


def header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc32c(packed))


LOST = "; the records after it cannot be located"
DAMAGE = {
    "a cut header": (header(5)[:7], "the file ends 7 bytes into the frame's header"),
    "length": (header(5)[:8] + header(6)[8:], "the checksum of the record's length does not match" + LOST),
    "beyond": (header(2**31 - 1) + b"abc", "states 2147483647 bytes of data, more than the file has" + LOST),
    "more than protobuf parses": (
        header(2**40) + b"abc",
        "states 1099511627776 bytes of data, more than a record can have" + LOST,
    ),
    "the largest length": (
        header(2**64 - 1),
        "states 18446744073709551615 bytes of data, more than a record can have" + LOST,
    ),
    "no footer": (header(3) + b"abc", "states 3 bytes of data, more than the file has" + LOST),
    "half a footer": (header(3) + b"abc\0\0", "states 3 bytes of data, more than the file has" + LOST),
    "wrong data": (header(3) + b"abc" + frame(b"abd")[2], "the checksum of the record's data does not match"),
}


@pytest.mark.parametrize(("data", "fault"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_reported_with_file_record_and_offset(data, fault, tmp_path):
    path = write(tmp_path / "shard", [b"sound"])
    path.write_bytes(path.read_bytes() + data)
    with pytest.raises(RecordError) as found:
        read(path)
    assert str(found.value) == f"{path}: record 1 at byte 21: {fault}"


def test_a_file_truncated_while_it_is_read_is_detected(tmp_path):
    path = write(tmp_path / "shard", [b"first", bytes(4 << 20)])
    records = read_records(path, "none")
    assert next(records) == (0, b"first")
    os.truncate(path, 2 << 20)
    message = "record 1 at byte 21: states 4194304 bytes of data, more than the file has"
    with pytest.raises(RecordError, match=message):
        next(records)
