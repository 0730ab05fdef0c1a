"""The frames of records in TFRecord files: written, and read by the index of a shard or in order."""

from __future__ import annotations

import io
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import BinaryIO, NamedTuple

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
from tfshards.schemas.storage.verbs import range_bytes, ranges_of, version

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
_OTHER_LENGTH = "the checksum of the record's length does not match"
_OTHER_DATA = "the checksum of the record's data does not match"
_UNPACKED = "the compressed data are damaged"
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
        number: the number of its record in the shard.
        offset: the offset of the frame in the uncompressed bytes.
        data: the record; None if it cannot be located.
        checksum: the masked CRC-32C that the frame of ``data`` should have.
        fault: what is wrong with the frame.
    """

    number: int
    offset: int
    data: bytes | None
    checksum: int = 0
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
    if index is not None and compression == "none":
        for found in read_some(path, compression, index, np.arange(len(index.lengths))):
            if found.data is None:
                break
            yield found
            number, offset = found.number + 1, found.offset + FRAME_OVERHEAD + len(found.data)
    yield from _in_order(path, compression, number, offset, record_bytes)


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
        yield Frame(number, offset, None, fault=f"{_UNPACKED}: {error}{_REST_IS_LOST}")


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
    # fewer bytes if the file is compressed, so that its end was unknown, or if it was truncated meanwhile
    return _parsed(number, offset, header + read_gradually(file, length + FOOTER_BYTES), length)


def _parsed(number: int, offset: int, found: bytes, length: int) -> Frame:
    """Return the frame in the bytes that should be the frame of a record of ``length`` bytes."""
    if len(found) < length + FRAME_OVERHEAD:
        return Frame(number, offset, None, fault=_too_long(length))
    data, footer = found[HEADER_BYTES:-FOOTER_BYTES], found[-FOOTER_BYTES:]
    stated = parse_header(found[:HEADER_BYTES])
    if stated not in (None, length):
        return Frame(number, offset, None, fault=f"states {stated} bytes of data, not {length} as the index")
    checksum = masked_crc32c(data)
    is_sound = FOOTER.pack(checksum) == footer
    fault = None if is_sound else _OTHER_DATA
    if stated is None:
        fault = _OTHER_LENGTH + ("; its data are sound" if is_sound else "")
    return Frame(number, offset, data, checksum, fault)


def _too_long(length: int) -> str:
    holder = "a record can have" if length > MAX_RECORD_BYTES else "the file has"
    return f"states {length} bytes of data, more than {holder}"


def read_some(
    path: AnyPath, compression: Compression, index: RecordIndex, records: IntArray
) -> Iterator[Frame]:
    """Yield the frame of each of some records of a shard, sound or damaged; ascending order is fastest.

    Args:
        path: the shard.
        compression: its compression; a compressed shard is inflated up to the last of the records.
        index: its index.
        records: numbers of the records, shape ``(n,)``.
    """
    for part in _parts(path, compression, index, records):
        if sound := part.checked():
            data, footers = sound
            checksums = np.frombuffer(b"".join(footers), "<u4").tolist()
            yield from map(Frame, part.numbers, part.offsets, data, checksums)
        else:
            yield from part.one_by_one()


def read_together(
    path: AnyPath, compression: Compression, index: RecordIndex, records: IntArray
) -> Iterator[tuple[Part, list[bytes], list[bytes]]]:
    """Yield the same records in parts: the part, their data, and the footers of their frames.

    Raises:
        RecordError: a record is damaged.
    """
    for part in _parts(path, compression, index, records):
        if sound := part.checked():
            yield part, *sound
        for found in () if sound else part.one_by_one():
            found.require_data(path)


class Part(NamedTuple):
    """Frames that are near to each other, and are read together.

    Attributes:
        numbers: numbers of their records in the shard.
        offsets: their offsets in the shard.
        begins: their offsets in ``data``.
        ends: where they end in ``data``.
        data: the bytes; fewer where the file ends.
        fault: why it cannot be decompressed, or empty.
    """

    numbers: list[int]
    offsets: list[int]
    begins: list[int]
    ends: list[int]
    data: bytes
    fault: str = ""

    def checked(self) -> tuple[list[bytes], list[bytes]] | None:
        """Return the data and the footers of all records; None if one of them is damaged."""
        whole, begins, ends = self.data, self.begins, self.ends
        if len(whole) < ends[-1]:
            return None
        spans = zip(begins, ends, strict=True)
        data = [whole[begin + HEADER_BYTES : end - FOOTER_BYTES] for begin, end in spans]
        footers = [whole[end - FOOTER_BYTES : end] for end in ends]
        headers = b"".join([whole[begin : begin + HEADER_BYTES] for begin in begins])
        is_sound = b"".join(footers) == masked_crc32c_of(data).astype("<u4").tobytes()
        is_sound = is_sound and headers == b"".join(map(header_of, map(len, data)))
        return (data, footers) if is_sound else None

    def frames(self) -> list[bytes]:
        """Return the whole frames."""
        return [self.data[begin:end] for begin, end in zip(self.begins, self.ends, strict=True)]

    def one_by_one(self) -> Iterator[Frame]:
        """Yield the frames, of which some may be damaged."""
        for number, offset, begin, end in zip(*self[:4], strict=True):
            found = _parsed(number, offset, self.data[begin:end], end - begin - FRAME_OVERHEAD)
            yield found._replace(fault=self.fault) if self.fault else found


def _parts(path: AnyPath, compression: Compression, index: RecordIndex, records: IntArray) -> Iterator[Part]:
    starts = index.offsets[records]
    ends = starts + index.lengths[records]
    done = 0
    try:
        for first, last, data in _together(path, compression, starts, ends):
            some = slice(first, last)
            places = starts[some] - starts[first], ends[some] - starts[first]
            numbers, offsets, begins, stops = (
                each.tolist() for each in (records[some], starts[some], *places)
            )
            yield Part(numbers, offsets, begins, stops, data)
            done = last
    except CODEC_ERRORS as error:
        left = records[done:]
        if len(left) == 1:
            span = [0], [int(ends[done] - starts[done])]
            yield Part(left.tolist(), [int(starts[done])], *span, b"", f"{_UNPACKED}: {error}")
            return
        # smaller parts, down to the damaged record
        for half in np.array_split(left, 2):
            yield from _parts(path, compression, index, half)


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
    ends, lengths = (index.offsets + index.lengths)[records], index.lengths[records]
    found = np.zeros(len(records), "<u4")
    done = 0
    try:
        for first, last, data in _together(path, compression, ends - FOOTER_BYTES, ends):
            at = ends[first:last] - (ends[first] - FOOTER_BYTES)
            done = first + int(np.searchsorted(at, len(data), side="right"))
            if done < last:
                break
            octets = np.frombuffer(data, np.uint8)
            found[first:last] = octets[at[:, None] - np.arange(FOOTER_BYTES, 0, -1)].copy().view("<u4")[:, 0]
            tick(int(lengths[first:last].sum()))
    except CODEC_ERRORS:
        # the records from ``done`` on have no footers
        pass
    if done < len(records):
        record = int(records[done])
        offset = int(index.offsets[record])
        raise RecordError(path, record, offset, "its last checksum cannot be read")
    return found


def _together(
    path: AnyPath, compression: Compression, starts: IntArray, ends: IntArray
) -> Iterator[tuple[int, int, bytes]]:
    """Yield the uncompressed bytes of spans of a file that are near to each other.

    These are numbers ``first`` and ``last``, and the bytes from the start of span ``first`` to the end of the
    span before ``last``, or fewer where the file ends.
    """
    num_bytes = range_bytes(path)
    # a request to a bucket costs far more than the bytes of a gap
    gaps = starts[1:] - ends[:-1]
    is_far = (gaps < 0) | (gaps >= num_bytes >> 6)
    # what is read at once fits into memory
    is_far |= np.diff((ends - starts[:1] - 1) // num_bytes) > 0
    cuts = [0, *(np.flatnonzero(is_far) + 1).tolist(), len(starts)] if len(starts) else []
    ranges = [(int(starts[first]), int(ends[last - 1])) for first, last in pairwise(cuts)]
    for (first, last), data in zip(pairwise(cuts), _bytes_of(path, compression, ranges), strict=True):
        yield first, last, data


def _bytes_of(path: AnyPath, compression: Compression, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the uncompressed bytes of ranges, or fewer where the file ends."""
    if compression == "none":
        yield from ranges_of(path, ranges)
        return
    starts = [start for start, _ in ranges]
    with _unpacked(path, compression, starts[0] if starts else 0) as file:
        for start, end in ranges:
            file.seek(start)
            yield read_gradually(file, end - start)


class _Kept(threading.local):
    """The compressed file that a thread has read last, and which file it is."""

    name: tuple[object, ...] = ()
    file: BinaryIO = io.BytesIO()


_KEPT = _Kept()


@contextmanager
def _unpacked(path: AnyPath, compression: Compression, start: int) -> Iterator[BinaryIO]:
    """Return a file of the uncompressed bytes of ``path`` that was not read beyond ``start``.

    It stays open, for the next read by the same thread. A shard that is divided into many would otherwise be
    inflated from its beginning for each of them.
    """
    name = str(path), compression, version(path)
    file, last = _KEPT.file, _KEPT.name
    # two that are read in turns are two files
    _KEPT.file, _KEPT.name = io.BytesIO(), ()
    if last != name or file.tell() > start:
        file.close()
        file, _ = open_unpacked(path, compression, _BUFFER_BYTES)
    try:
        yield file
    except Exception:
        file.close()
        raise
    finally:
        _KEPT.file.close()
        _KEPT.file, _KEPT.name = file, name if not file.closed else ()
