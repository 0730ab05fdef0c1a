"""The frames of records in TFRecord files: written, and read by the index of a shard or in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from tfshards.schemas import InputError, TfshardsError
from tfshards.schemas.compression import CODEC_ERRORS, Compression
from tfshards.schemas.frames import are_sound, footer_of, frame_fault, header_of, masked_crc32c, stated_length
from tfshards.schemas.index import (
    FOOTER_BYTES,
    FRAME_OVERHEAD,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    IntArray,
    RecordIndex,
)
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.reader import in_flight
from tfshards.schemas.storage.stored import read_gradually

_BUFFER_BYTES = 1 << 20
# What is read at once: by one request, and as many as fit the caches of a core.
_REQUEST_BYTES, _READ_BYTES = 1 << 22, 1 << 19
# Ranges of an object that are requested before they are needed.
_RANGES_AHEAD = 4


def frame(*record: bytes) -> tuple[bytes, ...]:
    """Return the frame of a record in parts: the header, the parts of the record, the footer."""
    length = sum(map(len, record))
    if length > MAX_RECORD_BYTES:
        raise InputError(
            f"an example has {length} bytes, but TFRecord readers parse at most {MAX_RECORD_BYTES}; store "
            "smaller values"
        )
    return header_of(length), *record, footer_of(*record)


class RecordError(TfshardsError):
    """A record of a shard is damaged.

    ``record`` is the number of the first damaged one, ``offset`` that of its frame in the uncompressed bytes.
    """

    def __init__(self, path: AnyPath, record: int, offset: int, fault: str) -> None:
        self.path: AnyPath = path
        self.record: int = record
        self.offset: int = offset
        self.fault: str = fault
        super().__init__(f"{path}: record {record} at byte {offset}: {fault}", code="record-damaged")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.record, self.offset, self.fault)


class Frame(NamedTuple):
    """One frame, sound or damaged.

    Attributes:
        number: the number of its record in the shard.
        offset: the offset of the frame in the uncompressed bytes.
        data: the record; None if the file has another record there, or ends before.
        checksum: the masked CRC-32C that the frame of ``data`` should have.
        fault: what is wrong with the frame.
    """

    number: int
    offset: int
    data: bytes | None
    checksum: int = 0
    fault: str | None = None

    @classmethod
    def of(cls, number: int, offset: int, found: bytes, length: int) -> Frame:
        """Return the frame in the bytes at its place, fewer where the file ends."""
        fault = frame_fault(found, length)
        if len(found) < length + FRAME_OVERHEAD or stated_length(found[:HEADER_BYTES]) not in (None, length):
            return cls(number, offset, None, fault=fault)
        data = found[HEADER_BYTES:-FOOTER_BYTES]
        return cls(number, offset, data, masked_crc32c(data), fault)

    def require_data(self, path: AnyPath) -> bytes:
        """Return the data; raise RecordError about the file ``path`` if the frame has a fault."""
        if self.data is None or self.fault is not None:
            raise RecordError(path, self.number, self.offset, self.fault or "")
        return self.data


def read_in_order(
    path: AnyPath, compression: Compression, index: RecordIndex | None = None
) -> Iterator[Frame]:
    """Yield every frame of a file, sound or damaged, up to the first one that is not there or has no length.

    The index has the lengths of damaged frames, so that they hide no others. A length that exceeds the file,
    or what it can hold compressed, allocates no memory.
    """
    number = offset = 0
    lengths = None if index is None else (index.lengths - FRAME_OVERHEAD).tolist()
    try:
        file, most_bytes = path.open_unpacked(compression, _BUFFER_BYTES)
        with file:
            while (header := file.read(HEADER_BYTES)) or (lengths and number < len(lengths)):
                if lengths is None:
                    length = stated_length(header) if len(header) == HEADER_BYTES else 0
                    why = "the checksum of the record's length does not match; what follows cannot be located"
                else:
                    length = lengths[number] if number < len(lengths) else None
                    why = f"the records should end at byte {offset}, but more bytes follow"
                if length is None:
                    yield Frame(number, offset, None, fault=why)
                    return
                fits = length <= min(most_bytes - offset - FRAME_OVERHEAD, MAX_RECORD_BYTES)
                rest = read_gradually(file, length + FOOTER_BYTES) if fits else b""
                data = rest[:-FOOTER_BYTES]
                checksum = masked_crc32c(data)
                is_whole = len(rest) == length + FOOTER_BYTES and header == header_of(length)
                if is_whole and rest[-FOOTER_BYTES:] == checksum.to_bytes(FOOTER_BYTES, "little"):
                    yield Frame(number, offset, data, checksum)
                else:
                    yield (found := Frame.of(number, offset, header + rest, length))
                    if found.data is None:
                        return
                number, offset = number + 1, offset + FRAME_OVERHEAD + length
    except CODEC_ERRORS as error:
        fault = f"the compressed data are damaged: {error}; the records after it cannot be read"
        yield Frame(number, offset, None, fault=fault)


# By the index


class Part(NamedTuple):
    """Sound records that are near to each other, and are read together.

    Attributes:
        numbers: their numbers in the shard.
        offsets: the offsets of their frames, uncompressed.
        data: their bytes.
        footers: the footers of their frames.
    """

    numbers: list[int]
    offsets: list[int]
    data: list[bytes]
    footers: list[bytes]

    def frames(self) -> list[bytes]:
        """Return the whole frames."""
        return [
            b"".join((header_of(len(data)), data, footer))
            for data, footer in zip(self.data, self.footers, strict=True)
        ]


def read_parts(
    path: AnyPath, compression: Compression, index: RecordIndex, records: IntArray
) -> Iterator[Part]:
    """Yield some records of a shard in parts.

    Args:
        path: the shard.
        compression: its compression; a compressed shard is inflated up to the last of the records.
        index: its index.
        records: numbers of the records, shape ``(n,)``; ascending order is fastest.

    Raises:
        RecordError: a record is damaged.
    """
    starts, ends = index.offsets[records], (index.offsets + index.lengths)[records]
    for first, last, whole in _together(path, compression, starts, ends):
        numbers, offsets = records[first:last].tolist(), starts[first:last].tolist()
        spans = [
            (begin - offsets[0], end - offsets[0])
            for begin, end in zip(offsets, ends[first:last].tolist(), strict=True)
        ]
        if len(whole) >= spans[-1][1]:
            data = [whole[begin + HEADER_BYTES : end - FOOTER_BYTES] for begin, end in spans]
            headers = b"".join([whole[begin : begin + HEADER_BYTES] for begin, _ in spans])
            footers = [whole[end - FOOTER_BYTES : end] for _, end in spans]
            rows = [np.frombuffer(b, np.uint8).reshape(len(data), -1) for b in (headers, b"".join(footers))]
            if are_sound(data, [*map(len, data)], *rows).all():
                yield Part(numbers, offsets, data, footers)
                continue
        # in what cannot be unpacked up to its end, the damage is at the first record that has no bytes
        in_order = () if compression == "none" else read_in_order(path, compression)
        one_by_one = (
            Frame.of(number, offset, whole[begin:end], end - begin - FRAME_OVERHEAD)
            for number, offset, (begin, end) in zip(numbers, offsets, spans, strict=True)
        )
        for found in chain(in_order, one_by_one):
            found.require_data(path)


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
    for first, last, data in _together(path, compression, ends - FOOTER_BYTES, ends):
        at = ends[first:last] - (ends[first] - FOOTER_BYTES)
        read = first + int(np.searchsorted(at, len(data), side="right"))
        if read < last:
            record = int(records[read])
            offset = int(index.offsets[record])
            raise RecordError(path, record, offset, "its last checksum cannot be read")
        octets = np.frombuffer(data, np.uint8)
        found[first:last] = octets[at[:, None] - np.arange(FOOTER_BYTES, 0, -1)].copy().view("<u4")[:, 0]
        tick(int(lengths[first:last].sum()))
    return found


def _together(
    path: AnyPath, compression: Compression, starts: IntArray, ends: IntArray
) -> Iterator[tuple[int, int, bytes]]:
    """Yield the uncompressed bytes of spans of a file that are near to each other.

    These are numbers ``first`` and ``last``, and the bytes from the start of span ``first`` to the end of the
    span before ``last``: fewer where the file ends, and none where it cannot be decompressed.
    """
    num_bytes = _REQUEST_BYTES if path.is_far else _READ_BYTES
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
    if path.is_far and compression == "none":
        yield from in_flight(lambda each: bytes(path.read_range(*each)), ranges, _RANGES_AHEAD)
        return
    if compression == "none":
        # a mapped file that is shortened meanwhile would end the process
        with path.open_regular(buffering=0) as plain:
            for start, end in ranges:
                plain.seek(start)
                yield read_gradually(plain, end - start)
        return
    name, file = _open_at(path, ranges[0][0] if ranges else 0)
    try:
        for start, end in ranges:
            file.seek(start)
            yield read_gradually(file, end - start)
        _KEPT.last = name, file
    except CODEC_ERRORS:
        yield b""


# The compressed file that a thread has read last. A shard that is divided into many would otherwise be
# inflated from its beginning for each of them.
_KEPT = threading.local()


def _open_at(path: AnyPath, start: int) -> tuple[tuple[object, ...], BinaryIO]:
    """Return a file of the uncompressed bytes of ``path`` not read beyond ``start``, and what names it."""
    name = str(path), path.version()
    last: tuple[tuple[object, ...], BinaryIO] | None = getattr(_KEPT, "last", None)
    # two that are read in turns are two files
    _KEPT.last = None
    if last and last[0] == name and last[1].tell() <= start:
        return last
    return name, path.open_unpacked("gzip", _BUFFER_BYTES)[0]
