"""The frames of records in TFRecord files: written, and read by the index of a shard or in order."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import accumulate, count, pairwise, repeat
from typing import BinaryIO, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.schemas import InputError, TfshardsError
from tfshards.schemas.compression import CODEC_ERRORS, Compression
from tfshards.schemas.frames import header_of, masked_crc32c, masked_crc32c_of
from tfshards.schemas.index import (
    FOOTER_BYTES,
    FRAME_OVERHEAD,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    IntArray,
    RecordIndex,
)
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import open_unpacked, read_gradually
from tfshards.schemas.storage.verbs import range_bytes, ranges_of

FOOTER = struct.Struct("<I")

_HEADER = struct.Struct("<QI")


def frame(*record: bytes) -> tuple[bytes, ...]:
    """Return the frame of a record in parts: the header, the parts of the record, the footer."""
    length = sum(map(len, record))
    if length > MAX_RECORD_BYTES:
        raise InputError("record-too-large", length=length, max_record_bytes=MAX_RECORD_BYTES)
    return header_of(length), *record, FOOTER.pack(masked_crc32c(*record))


def parse_header(header: bytes) -> int | None:
    """Return the data length that a header of 12 bytes states; None if its checksum does not match."""
    length, crc = _HEADER.unpack(header)
    return length if crc == masked_crc32c(header[:8]) else None


_BUFFER_BYTES = 1 << 20
# The most records that are read and checked together.
_PART_RECORDS = 1 << 12
_MOST_FRAME_BYTES = FRAME_OVERHEAD + MAX_RECORD_BYTES
_OTHER_LENGTH = "the checksum of the record's length does not match"
_OTHER_DATA = "the checksum of the record's data does not match"
_REST_IS_LOST = "; the records after it cannot be located"


class RecordError(TfshardsError):
    """A record of a shard is damaged.

    ``record`` is the number of the first damaged one, ``offset`` that of its frame in the uncompressed bytes.
    """

    def __init__(self, path: AnyPath, record: int, offset: int, fault: str) -> None:
        self.path: AnyPath = path
        self.record: int = record
        self.offset: int = offset
        self.fault: str = fault
        super().__init__("record-damaged", path=path, record=record, offset=offset, fault=fault)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.record, self.offset, self.fault)


class Frame(NamedTuple):
    """One frame, sound or damaged.

    Attributes:
        offset: the offset of the frame in the uncompressed bytes.
        data: the record; None if it cannot be located.
        checksum: the masked CRC-32C that the frame of ``data`` should have.
        is_sound: whether ``data`` matches its checksum, which is possible even after a damaged header.
        fault: what is wrong with the frame.
    """

    number: int
    offset: int
    data: bytes | None
    checksum: int = 0
    is_sound: bool = False
    fault: str | None = None

    def require_data(self, path: AnyPath) -> bytes:
        """Return the data; raise RecordError about the file ``path`` if the frame has a fault."""
        if self.data is None or self.fault is not None:
            raise RecordError(path, self.number, self.offset, self.fault or "")
        return self.data


def read_records(path: AnyPath, compression: Compression) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the data of each record; raise RecordError for the first damaged one."""
    for found in read_frames(path, compression):
        yield found.offset, found.require_data(path)


def read_frames(
    path: AnyPath,
    compression: Compression,
    *,
    index: RecordIndex | None = None,
    record_bytes: int | None = None,
) -> Iterator[Frame]:
    """Yield every frame of a shard, damaged ones included, up to the last one that can be located.

    With an index, the records of an uncompressed shard are read by their offsets and lengths, so that damage
    hides no other record.
    Without one, and from a record on that the index does not fit, they are read in order: after damaged data
    the next one, after a damaged header none. A length that exceeds the file, or what it can hold compressed,
    allocates no memory; ``record_bytes`` is the expected uncompressed size of a compressed file.
    """
    number = offset = 0
    for found in _by_index(path, index) if index is not None and compression == "none" else ():
        yield found
        assert found.data is not None
        number, offset = found.number + 1, found.offset + FRAME_OVERHEAD + len(found.data)
    yield from _in_order(path, compression, number, offset, record_bytes)


def _by_index(path: AnyPath, index: RecordIndex) -> Iterator[Frame]:
    """Yield the frames until the file ends, or a sound header states another length than the index."""
    for part, data in _contents(path, "none", index, 0, len(index.lengths)):
        begins = [*accumulate(part.lengths, initial=0)]
        if checked := _checked(data, part.lengths):
            records, checksums = checked
            offsets = map(part.offset.__add__, begins)
            yield from map(Frame, count(part.first), offsets, records, checksums.tolist(), repeat(True))
            continue
        for number, (begin, end) in enumerate(pairwise(begins), part.first):
            found = data[begin:end]
            stated = parse_header(found[:HEADER_BYTES]) if len(found) == end - begin else -1
            if stated not in (None, len(found) - FRAME_OVERHEAD):
                return
            yield _parsed(number, part.offset + begin, found)


def _parsed(number: int, offset: int, found: bytes) -> Frame:
    """Return the frame in bytes of which the index states that they are one."""
    data = found[HEADER_BYTES:-FOOTER_BYTES]
    checksum = masked_crc32c(data)
    is_sound = FOOTER.pack(checksum) == found[-FOOTER_BYTES:]
    fault = None if is_sound else _OTHER_DATA
    if not found.startswith(header_of(len(data))):
        fault = _OTHER_LENGTH + ("; its data are sound" if is_sound else "")
    return Frame(number, offset, data, checksum, is_sound, fault)


def _in_order(
    path: AnyPath, compression: Compression, number: int, offset: int, record_bytes: int | None
) -> Iterator[Frame]:
    try:
        file, end = open_unpacked(path, compression, _BUFFER_BYTES)
        with file:
            if compression != "none" and record_bytes is not None:
                end = min(end, record_bytes)
            file.seek(offset)
            while header := file.read(HEADER_BYTES):
                found = _after_header(file, header, number, offset, end)
                yield found
                if found.data is None:
                    return
                number, offset = number + 1, offset + FRAME_OVERHEAD + len(found.data)
    except CODEC_ERRORS as error:
        fault = f"the compressed data are damaged: {error}{_REST_IS_LOST}"
        yield Frame(number, offset, None, fault=fault)


def _after_header(file: BinaryIO, header: bytes, number: int, offset: int, end: int) -> Frame:
    """Return the frame whose header was just read from a file that has at most ``end`` bytes."""

    def lost(fault: str) -> Frame:
        return Frame(number, offset, None, fault=fault)

    if offset >= end:
        return lost(f"the records should end at byte {end}, but more bytes follow")
    if len(header) < HEADER_BYTES:
        return lost(f"the file ends {len(header)} bytes into the frame's header")
    length = parse_header(header)
    if length is None:
        return lost(_OTHER_LENGTH + _REST_IS_LOST)
    if length > min(end - offset - FRAME_OVERHEAD, MAX_RECORD_BYTES):
        return lost(_too_long(length) + _REST_IS_LOST)
    data = read_gradually(file, length)
    footer = file.read(FOOTER_BYTES)
    if len(data) < length or len(footer) < FOOTER_BYTES:
        # the file is compressed, so that its end was unknown, or it was truncated meanwhile
        return lost(_too_long(length))
    checksum = masked_crc32c(data)
    is_sound = FOOTER.unpack(footer)[0] == checksum
    return Frame(number, offset, data, checksum, is_sound, None if is_sound else _OTHER_DATA)


def _too_long(length: int) -> str:
    holder = "a record can have" if length > MAX_RECORD_BYTES else "the file has"
    return f"states {length} bytes of data, more than {holder}"


# Returns the new data of a record, given its number and its data; raises ValueError if they are damaged.
Change: TypeAlias = Callable[[int, bytes], bytes]


class FrameReader:
    """Read single frames of a shard by record number, with a change if one is given; ascending is fastest."""

    def __init__(
        self, path: AnyPath, compression: Compression, index: RecordIndex, change: Change | None = None
    ) -> None:
        # memoryviews return Python integers one at a time; lists would hold all of them
        self._offsets, self._lengths = index.offsets.data, index.lengths.data
        self._path, self._change = path, change
        self._file, _ = open_unpacked(path, compression, _BUFFER_BYTES)
        self._at = 0

    def read(self, record: int) -> tuple[bytes, bytes]:
        """Return the frame of a record, and its last 4 bytes; raise RecordError if it is damaged."""
        offset, length = self._offsets[record], self._lengths[record]
        if length > _MOST_FRAME_BYTES:
            raise RecordError(self._path, record, offset, _too_long(length - FRAME_OVERHEAD))
        try:
            if offset != self._at:
                self._file.seek(offset)
            found = read_gradually(self._file, length)
        except CODEC_ERRORS as error:
            raise RecordError(
                self._path, record, offset, f"the compressed data are damaged: {error}"
            ) from None
        self._at = offset + len(found)
        if len(found) < length:
            raise RecordError(self._path, record, offset, _too_long(length - FRAME_OVERHEAD))
        data, footer = found[HEADER_BYTES:-FOOTER_BYTES], found[-FOOTER_BYTES:]
        if footer != FOOTER.pack(masked_crc32c(data)) or not found.startswith(header_of(len(data))):
            _parsed(record, offset, found).require_data(self._path)
        if self._change is None:
            return found, footer
        try:
            parts = frame(self._change(record, data))
        except ValueError as error:
            raise RecordError(self._path, record, offset, str(error)) from None
        return b"".join(parts), parts[-1]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_footers(
    path: AnyPath,
    compression: Compression,
    index: RecordIndex,
    records: IntArray,
    tick: Callable[[int], object] = lambda _: None,
) -> npt.NDArray[np.uint32]:
    """Return the checksums at the ends of some frames, which are not compared with their records.

    Args:
        path: the shard.
        compression: its compression; a compressed shard is inflated up to the last of the records.
        index: its index.
        records: numbers of the records, ascending, shape ``(n,)``.
        tick: called with the number of bytes of some frames after their footers were read.

    Raises:
        RecordError: the file ends before a footer, or its compressed data are damaged.
        OSError: the file cannot be read.
    """
    ends = (index.offsets + index.lengths)[records]
    found = np.zeros(len(records), "<u4")
    # bytes between two footers from which on they are read one by one; a request to a bucket costs far more
    gap = range_bytes(path) >> 6
    is_far = np.diff(ends, prepend=-gap) >= gap
    # also cut into parts, which fit into memory
    is_far |= np.diff(ends // range_bytes(path), prepend=-1) > 0
    starts = np.flatnonzero(is_far)
    parts = np.stack([starts, np.append(starts[1:], len(ends))], 1).tolist() if len(ends) else []
    # from the start of the first footer of each part to the end of its last one
    ranges = [(int(ends[first]) - FOOTER_BYTES, int(ends[last - 1])) for first, last in parts]
    lengths = index.lengths[records]
    for (first, last), data in zip(parts, _bytes_of(path, compression, ranges), strict=True):
        at = ends[first:last] - (ends[first] - FOOTER_BYTES)
        if len(data) < at[-1]:
            record = first + int(np.searchsorted(at, len(data), side="right"))
            offset = int(index.offsets[records[record]])
            raise RecordError(path, int(records[record]), offset, "its last checksum cannot be read")
        octets = np.frombuffer(data, np.uint8)
        found[first:last] = octets[at[:, None] - np.arange(FOOTER_BYTES, 0, -1)].copy().view("<u4")[:, 0]
        tick(int(lengths[first:last].sum()))
    return found


def read_together(
    path: AnyPath, compression: Compression, index: RecordIndex, start: int, stop: int
) -> Iterator[list[bytes]]:
    """Yield the records from ``start`` to ``stop`` of a shard in order, some megabytes of them at a time.

    Of a bucket, each of these parts is one request, and the next ones are on their way.

    Raises:
        RecordError: a record is damaged.
    """
    for part, data in _contents(path, compression, index, start, stop):
        if checked := _checked(data, part.lengths):
            yield checked[0]
            continue
        # one by one, to name the first damaged one
        with closing(FrameReader(path, compression, index)) as frames:
            numbers = range(part.first, part.first + len(part.lengths))
            yield [frames.read(record)[0][HEADER_BYTES:-FOOTER_BYTES] for record in numbers]


class _Part(NamedTuple):
    """Consecutive frames: the number of the first record, the offset of its frame, and the length of each."""

    first: int
    offset: int
    lengths: list[int]


def _contents(
    path: AnyPath, compression: Compression, index: RecordIndex, start: int, stop: int
) -> Iterator[tuple[_Part, bytes]]:
    """Yield some frames together and their bytes, which are fewer where the file ends or is damaged."""
    parts = [*_parts(index, start, stop, range_bytes(path))]
    # of a record that is too long nothing is read
    num_bytes = [0 if max(part.lengths) > _MOST_FRAME_BYTES else sum(part.lengths) for part in parts]
    ranges = [(part.offset, part.offset + size) for part, size in zip(parts, num_bytes, strict=True)]
    return zip(parts, _bytes_of(path, compression, ranges), strict=True)


def _bytes_of(path: AnyPath, compression: Compression, ranges: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the uncompressed bytes of ascending ranges, or fewer where the file ends or is damaged."""
    if compression == "none":
        yield from ranges_of(path, ranges)
        return
    file, _ = open_unpacked(path, compression, _BUFFER_BYTES)
    with file:
        for start, end in ranges:
            try:
                file.seek(start)
                data = read_gradually(file, end - start)
            except CODEC_ERRORS:
                data = b""
            yield data


def _parts(index: RecordIndex, start: int, stop: int, num_bytes: int) -> Iterator[_Part]:
    ends = np.cumsum(index.lengths)
    while start < stop:
        offset = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, offset + num_bytes, side="right"))
        last = min(max(fitting, start + 1), start + _PART_RECORDS, stop)
        yield _Part(start, offset, index.lengths[start:last].tolist())
        start = last


def _checked(data: bytes, lengths: list[int]) -> tuple[list[bytes], npt.NDArray[np.uint32]] | None:
    """Return the records of frames and their checksums; None if one of them is damaged."""
    ends = [*accumulate(lengths, initial=0)]
    if len(data) < ends[-1]:
        return None
    records = [data[begin + HEADER_BYTES : end - FOOTER_BYTES] for begin, end in pairwise(ends)]
    checksums = masked_crc32c_of(records)
    footers = b"".join([data[end - FOOTER_BYTES : end] for end in ends[1:]])
    headers = b"".join([data[begin : begin + HEADER_BYTES] for begin in ends[:-1]])
    is_sound = footers == checksums.astype("<u4").tobytes() and headers == b"".join(
        [header_of(length - FRAME_OVERHEAD) for length in lengths]
    )
    return (records, checksums) if is_sound else None
