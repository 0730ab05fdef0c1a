"""Write, parse and read the frames of a TFRecord file: in order up to or past damage, or single ones."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import accumulate, pairwise
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
from tfshards.schemas.storage import AnyPath, RemotePath
from tfshards.schemas.storage.reader import in_flight
from tfshards.schemas.storage.untrusted import open_unpacked, read_gradually, read_range

FOOTER = struct.Struct("<I")

_HEADER = struct.Struct("<QI")


def frame(*record: bytes) -> tuple[bytes, ...]:
    """Return the frame of a record in parts: the header, the parts of the record, the footer."""
    return _header(sum(map(len, record))), *record, FOOTER.pack(masked_crc32c(*record))


def parse_header(header: bytes) -> int | None:
    """Return the data length that a header of 12 bytes states; None if its checksum does not match."""
    length, crc = _HEADER.unpack(header)
    return length if crc == masked_crc32c(header[:8]) else None


def _header(length: int) -> bytes:
    if length > MAX_RECORD_BYTES:
        raise InputError("record-too-large", length=length, max_record_bytes=MAX_RECORD_BYTES)
    return header_of(length)


_BUFFER_BYTES = 1 << 20
# Records that are read together, and how many such parts of an object are fetched ahead.
_PART_BYTES, _PART_RECORDS = 1 << 22, 1 << 12
_PARTS_AHEAD = 4
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
        is_last: whether no frame after it can be located.
    """

    number: int
    offset: int
    data: bytes | None
    checksum: int = 0
    is_sound: bool = False
    fault: str | None = None
    is_last: bool = False

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

    After damaged data, the next frame is read. After a damaged header, reading continues at the next record
    of the index, if one is given. A length that exceeds the file, or what it can hold compressed, allocates
    no memory; ``record_bytes`` is the expected uncompressed size of a compressed file.
    """
    number = offset = 0
    try:
        file, end = open_unpacked(path, compression, _BUFFER_BYTES)
        with file:
            if compression != "none" and record_bytes is not None:
                end = min(end, record_bytes)
            bounds = None if index is None else np.append(index.offsets, index.num_bytes)
            while header := file.read(HEADER_BYTES):
                length = parse_header(header) if len(header) == HEADER_BYTES else None
                if length is not None and length <= min(end - offset - FRAME_OVERHEAD, MAX_RECORD_BYTES):
                    found = _with_data(file, number, offset, length)
                else:
                    found = _without_length(file, header, number, offset, end=end, bounds=bounds)
                yield found
                if found.is_last:
                    return
                if found.data is not None:
                    number, offset = number + 1, offset + FRAME_OVERHEAD + len(found.data)
                else:
                    number, offset = _next(bounds, offset, end)
                    file.seek(offset)
    except CODEC_ERRORS as error:
        fault = f"the compressed data are damaged: {error}{_REST_IS_LOST}"
        yield Frame(number, offset, None, fault=fault, is_last=True)


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
        if length > FRAME_OVERHEAD + MAX_RECORD_BYTES:
            raise RecordError(self._path, record, offset, _too_long(length - FRAME_OVERHEAD))
        try:
            if offset != self._at:
                self._file.seek(offset)
            found = read_gradually(self._file, length)
        except CODEC_ERRORS as error:
            fault = f"the compressed data are damaged: {error}"
            raise RecordError(self._path, record, offset, fault) from None
        self._at = offset + len(found)
        header, _, footer = frame(found[HEADER_BYTES:-FOOTER_BYTES])
        if not (found.startswith(header) and found.endswith(footer) and len(found) == length):
            raise RecordError(self._path, record, offset, "a checksum of its frame does not match")
        if self._change is None:
            return found, footer
        try:
            parts = frame(self._change(record, found[HEADER_BYTES:-FOOTER_BYTES]))
        except ValueError as error:
            raise RecordError(self._path, record, offset, str(error)) from None
        return b"".join(parts), parts[-1]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


# Bytes between two footers up to which both are read together; a request to a bucket costs far more.
_GAP_ON_DISK, _GAP_IN_BUCKET = 1 << 12, 1 << 16


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
    gap = _GAP_IN_BUCKET if isinstance(path, RemotePath) else _GAP_ON_DISK
    is_far = np.diff(ends, prepend=-gap) >= gap
    # also cut into parts, which fit into memory
    is_far |= np.diff(ends // _PART_BYTES, prepend=-1) > 0
    starts = np.flatnonzero(is_far)
    parts = np.stack([starts, np.append(starts[1:], len(ends))], 1).tolist() if len(ends) else []
    lengths = index.lengths[records]
    for (first, last), data in zip(parts, _footer_parts(path, compression, ends, parts), strict=True):
        at = ends[first:last] - (ends[first] - FOOTER_BYTES)
        if len(data) < at[-1]:
            record = first + int(np.searchsorted(at, len(data), side="right"))
            offset = int(index.offsets[records[record]])
            raise RecordError(path, int(records[record]), offset, "the file ends before its last checksum")
        octets = np.frombuffer(data, np.uint8)
        found[first:last] = octets[at[:, None] - np.arange(FOOTER_BYTES, 0, -1)].copy().view("<u4")[:, 0]
        tick(int(lengths[first:last].sum()))
    return found


def _footer_parts(
    path: AnyPath, compression: Compression, ends: IntArray, parts: Sequence[Sequence[int]]
) -> Iterator[bytes]:
    """Yield the bytes from the start of the first footer of each part to the end of its last one."""
    ranges = [(int(ends[first]) - FOOTER_BYTES, int(ends[last - 1])) for first, last in parts]
    if isinstance(path, RemotePath) and compression == "none":
        yield from in_flight(lambda each: read_range(path, *each), ranges, _PARTS_AHEAD)
        return
    try:
        # without a buffer, a footer of a large record is 4 bytes to read
        file, _ = open_unpacked(path, compression, 0 if compression == "none" else _BUFFER_BYTES)
        with file:
            for start, end in ranges:
                file.seek(start)
                yield file.read(end - start)
    except CODEC_ERRORS as error:
        raise RecordError(path, 0, 0, f"the compressed data are damaged: {error}") from None


def read_together(
    path: AnyPath, compression: Compression, index: RecordIndex, start: int, stop: int
) -> Iterator[list[bytes]]:
    """Yield the records from ``start`` to ``stop`` of a shard in order, some megabytes of them at a time.

    Of a bucket, each of these parts is one request, and the next ones are on their way.

    Raises:
        RecordError: a record is damaged.
    """
    ends = np.cumsum(index.lengths)
    parts = [*_parts(ends, start, stop)]
    for (first, last), held in zip(parts, _contents(path, compression, ends, parts), strict=True):
        lengths = index.lengths[first:last].tolist()
        records = _records_in(*held, lengths)
        if records is None:
            # frame by frame, to name the first damaged one
            with closing(FrameReader(path, compression, index)) as frames:
                data = b"".join(frames.read(record)[0] for record in range(first, last))
            records = _records_in(data, 0, lengths)
            assert records is not None
        yield records


def _parts(ends: IntArray, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the first record of each part and the one after its last, given the end of each frame."""
    while start < stop:
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + _PART_BYTES, side="right"))
        last = min(max(fitting, start + 1), start + _PART_RECORDS, stop)
        yield start, last
        start = last


def _contents(
    path: AnyPath, compression: Compression, ends: IntArray, parts: Sequence[tuple[int, int]]
) -> Iterator[tuple[bytes | mmap.mmap, int]]:
    """Yield bytes that hold each part, and where it starts in them; fewer bytes if they are damaged."""
    ranges = [(int(ends[first - 1]) if first else 0, int(ends[last - 1])) for first, last in parts]
    if isinstance(path, RemotePath) and compression == "none":
        requests = in_flight(lambda each: read_range(path, *each), ranges, _PARTS_AHEAD)
        yield from ((data, 0) for data in requests)
        return
    file, num_bytes = open_unpacked(path, compression, _BUFFER_BYTES)
    with file:
        if compression == "none" and num_bytes:
            # reading would copy all bytes once more
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield from ((mapped, begin) for begin, _ in ranges)
            return
        for begin, end in ranges:
            try:
                file.seek(begin)
                yield read_gradually(file, end - begin), 0
            except CODEC_ERRORS:
                yield b"", 0


def _records_in(data: bytes | mmap.mmap, start: int, lengths: Sequence[int]) -> list[bytes] | None:
    """Return the records of the frames from an offset on, or None if one of them is damaged."""
    ends = [*accumulate(lengths, initial=start)]
    bounds = [*pairwise(ends)]
    records = [data[begin + HEADER_BYTES : end - FOOTER_BYTES] for begin, end in bounds]
    footers = b"".join([data[end - FOOTER_BYTES : end] for end in ends[1:]])
    headers = b"".join([data[begin : begin + HEADER_BYTES] for begin in ends[:-1]])
    is_sound = (
        len(data) >= ends[-1]
        and footers == masked_crc32c_of(records).astype("<u4").tobytes()
        and headers == b"".join([header_of(length - FRAME_OVERHEAD) for length in lengths])
    )
    return records if is_sound else None


def _with_data(file: BinaryIO, number: int, offset: int, length: int) -> Frame:
    """Return the frame whose header was just read and states ``length``."""
    data = read_gradually(file, length)
    footer = file.read(FOOTER_BYTES)
    if len(data) < length or len(footer) < FOOTER_BYTES:
        # the file is compressed, so that its end was unknown, or it was truncated meanwhile
        return Frame(number, offset, None, fault=_too_long(length), is_last=True)
    checksum = masked_crc32c(data)
    if FOOTER.unpack(footer)[0] == checksum:
        return Frame(number, offset, data, checksum, True)
    fault = "the checksum of the record's data does not match"
    return Frame(number, offset, data, checksum, False, fault)


def _without_length(
    file: BinaryIO, header: bytes, number: int, offset: int, *, end: int, bounds: IntArray | None
) -> Frame:
    """Return the frame of an invalid header, with its data if ``bounds`` shows where they end.

    ``bounds`` has the shape ``(num_examples + 1,)``: the start of each frame, and the end of the last one.
    """
    if offset >= end:
        fault = f"the records should end at byte {end}, but more bytes follow"
        return Frame(number, offset, None, fault=fault, is_last=True)
    if len(header) < HEADER_BYTES:
        fault = f"the file ends {len(header)} bytes into the frame's header"
        return Frame(number, offset, None, fault=fault, is_last=True)
    length = parse_header(header)
    fault = "the checksum of the record's length does not match" if length is None else _too_long(length)
    if bounds is None:
        return Frame(number, offset, None, fault=fault + _REST_IS_LOST, is_last=True)
    after, start = _next(bounds, offset, end)
    length = int(bounds[after]) - offset - FRAME_OVERHEAD if after and bounds[after - 1] == offset else end
    if length <= min(end - offset - FRAME_OVERHEAD, MAX_RECORD_BYTES):
        found = _with_data(file, after - 1, offset, length)
        return found._replace(fault=fault + ("; its data are sound" if found.is_sound else ""))
    return Frame(number, offset, None, fault=fault, is_last=start >= end)


def _next(bounds: IntArray | None, offset: int, end: int) -> tuple[int, int]:
    """Return the number and the start of the first record after ``offset``, or the end of the file."""
    # without an index, the previous frame would have been the last
    assert bounds is not None
    number = int(np.searchsorted(bounds[:-1], offset, side="right"))
    return number, int(bounds[number]) if number < len(bounds) - 1 else end


def _too_long(length: int) -> str:
    holder = "a record can have" if length > MAX_RECORD_BYTES else "the file has"
    return f"states {length} bytes of data, more than {holder}"
