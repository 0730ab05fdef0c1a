"""Frames of a shard by their number, and past damage where an index locates the next one."""

import gzip
import random

import numpy as np
import pytest

from tfshards.prep.records.frames import FrameReader, RecordError, frame, read_frames
from tfshards.schemas.frames import masked_crc32c
from tfshards.schemas.index import RecordIndex

# the first two frames have equal lengths
RECORDS = [b"one", b"two", b"", b"three", b"x" * 40, b"the last one"]
FRAMES = [b"".join(frame(record)) for record in RECORDS]
OFFSETS = [sum(map(len, FRAMES[:number])) for number in range(len(FRAMES) + 1)]
SIZE = OFFSETS[-1]
INDEX = RecordIndex(np.array([len(each) for each in FRAMES], np.int64))
WRONG_LENGTH = "the checksum of the record's length does not match"
WRONG_DATA = "the checksum of the record's data does not match"
LOST = "; the records after it cannot be located"


@pytest.fixture(params=["none", "gzip"])
def write(request, tmp_path):
    """Return a function that writes the bytes of frames, and returns path and compression."""

    def write(data: bytes):
        path = tmp_path / "shard"
        path.write_bytes(gzip.compress(data) if request.param == "gzip" else data)
        return path, request.param

    return write


def flipped(*offsets: int) -> bytes:
    """Return the frames with one bit flipped at each of these offsets."""
    data = bytearray(b"".join(FRAMES))
    for offset in offsets:
        data[offset] ^= 1
    return bytes(data)


def sound(number: int) -> tuple[object, ...]:
    return number, OFFSETS[number], RECORDS[number], masked_crc32c(RECORDS[number]), True, None, False


def test_frames_are_read_by_number_in_any_order(write):
    order = [*range(6), *reversed(range(6)), *random.Random(0).choices(range(6), k=30)]
    reader = FrameReader(*write(b"".join(FRAMES)), INDEX)
    for number in order:
        assert reader.read(number) == (FRAMES[number], FRAMES[number][-4:])
    reader.close()


@pytest.mark.parametrize("offset", [0, 8, 12, -1], ids=["length", "its checksum", "data", "their checksum"])
def test_a_damaged_frame_is_refused_and_others_are_read(write, offset):
    at = OFFSETS[3] + offset % len(FRAMES[3])
    reader = FrameReader(*write(flipped(at)), INDEX)
    assert reader.read(2)[0] == FRAMES[2]
    message = rf"/shard: record 3 at byte {OFFSETS[3]}: a checksum of its frame does not match$"
    with pytest.raises(RecordError, match=message):
        reader.read(3)
    assert reader.read(4)[0] == FRAMES[4]


def test_a_frame_that_is_shorter_than_in_the_index_is_refused(write):
    longer = RecordIndex(np.array([*INDEX.lengths[:-1], INDEX.lengths[-1] + 1], np.int64))
    reader = FrameReader(*write(b"".join(FRAMES)), longer)
    assert reader.read(4)[0] == FRAMES[4]
    with pytest.raises(RecordError, match=f"record 5 at byte {OFFSETS[5]}: a checksum of its frame"):
        reader.read(5)


def found_in(file, **options) -> list[tuple[object, ...]]:
    return [tuple(found) for found in read_frames(*file, **options)]


def test_damaged_compressed_data_are_reported_with_the_frame_and_end_the_frames(tmp_path):
    path, damage = tmp_path / "shard", "the compressed data are damaged: "
    path.write_bytes(gzip.compress(b"".join(FRAMES))[:-20])
    with pytest.raises(RecordError, match=f"record 5 at byte {OFFSETS[5]}: {damage}"):
        FrameReader(path, "gzip", INDEX).read(5)
    path.write_bytes(gzip.compress(b"".join(FRAMES))[:-1])
    *found, lost = found_in((path, "gzip"))
    assert found == list(map(sound, range(6)))
    fault = f"{damage}Compressed file ended before the end-of-stream marker was reached"
    assert lost == (6, SIZE, None, 0, False, fault + LOST, True)


def test_every_frame_is_read_in_order(write):
    file = write(b"".join(FRAMES))
    assert found_in(file) == found_in(file, index=INDEX, record_bytes=SIZE) == list(map(sound, range(6)))


def test_reading_continues_after_damaged_data(write):
    for number in (0, 3, 5):
        record = flipped(OFFSETS[number] + 12)[OFFSETS[number] + 12 : OFFSETS[number + 1] - 4]
        expected = list(map(sound, range(6)))
        expected[number] = number, OFFSETS[number], record, masked_crc32c(record), False, WRONG_DATA, False
        assert found_in(write(flipped(OFFSETS[number] + 12))) == expected


@pytest.mark.parametrize("number", [0, 1, 4, 5])
@pytest.mark.parametrize("is_data_damaged", [False, True])
def test_after_a_damaged_header_the_index_locates_the_data_and_the_next_frame(write, number, is_data_damaged):
    data = OFFSETS[number] + 12
    changed = flipped(OFFSETS[number], *([data] if is_data_damaged else []))
    file, record = write(changed), changed[data : OFFSETS[number + 1] - 4]
    expected = [*map(sound, range(6))]
    fault = WRONG_LENGTH if is_data_damaged else f"{WRONG_LENGTH}; its data are sound"
    is_sound = not is_data_damaged
    expected[number] = number, OFFSETS[number], record, masked_crc32c(record), is_sound, fault, False
    assert found_in(file, index=INDEX, record_bytes=SIZE) == expected
    lost = number, OFFSETS[number], None, 0, False, WRONG_LENGTH + LOST, True
    assert found_in(file) == [*map(sound, range(number)), lost]


def test_a_damaged_header_that_is_not_in_the_index_is_passed_over(write):
    # of two frames the index knows only where both begin and end, as of one
    for first in (0, 2, 3, 4):
        lengths = [len(each) for each in FRAMES]
        lengths[first : first + 2] = [sum(lengths[first : first + 2])]
        index = RecordIndex(np.array(lengths, np.int64))
        at, is_last = OFFSETS[first + 1], first == 4
        found = found_in(write(flipped(at)), index=index, record_bytes=SIZE)
        assert found[first + 1] == (first + 1, at, None, 0, False, WRONG_LENGTH, is_last)
        # the next one has its number in the index
        following = [(number, *sound(number + 1)[1:]) for number in range(first + 1, 5)]
        assert found == [*map(sound, range(first + 1)), found[first + 1], *following]


def test_without_records_in_the_index_nothing_is_located(write):
    empty = RecordIndex(np.zeros(0, np.int64))
    lost = 0, 0, None, 0, False, WRONG_LENGTH, True
    assert found_in(write(flipped(0)), index=empty, record_bytes=SIZE) == [lost]


@pytest.mark.parametrize("number", [0, 4, 5])
def test_a_file_that_ends_within_a_frame_has_no_more_frames(write, number):
    start = OFFSETS[number]
    for length, fault in (
        (1, "the file ends 1 bytes into the frame's header"),
        (11, "the file ends 11 bytes into the frame's header"),
        (12, f"states {len(RECORDS[number])} bytes of data, more than the file has"),
        (len(FRAMES[number]) - 1, f"states {len(RECORDS[number])} bytes of data, more than the file has"),
    ):
        path, compression = write(b"".join(FRAMES)[: start + length])
        # the size of a compressed file is not known before its end
        is_lost = compression == "none" and length >= 12
        lost = number, start, None, 0, False, fault + (LOST if is_lost else ""), True
        assert found_in((path, compression)) == [*map(sound, range(number)), lost]


def test_bytes_after_the_last_record_are_reported(write):
    path, compression = write(b"".join(FRAMES) + bytes(100))
    found = found_in((path, compression), index=INDEX, record_bytes=SIZE)
    if compression == "gzip":
        fault = f"the records should end at byte {SIZE}, but more bytes follow"
        assert found == [*map(sound, range(6)), (6, SIZE, None, 0, False, fault, True)]
    else:
        assert found[:6] == list(map(sound, range(6)))
        assert found[6] == (6, SIZE, None, 0, False, WRONG_LENGTH, True)


def test_a_record_of_several_buffers_is_read(write):
    record = random.Random(0).randbytes((1 << 20) + 1)
    (found,) = found_in(write(b"".join(frame(record))))
    assert found[2] == record
