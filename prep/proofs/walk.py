"""Walking the frames of a shard that may be damaged anywhere, to its end, past what is damaged."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.tfrecord import FOOTER, masked_crc32c, read_exactly
from tfshards.schemas import RecordIndex, Shard
from tfshards.schemas.index import FRAME_OVERHEAD
from tfshards.schemas.manifest import Compression

_HEADER = struct.Struct("<QI")
_BUFFER_BYTES = 1 << 20


class Frame(NamedTuple):
    """One frame, sound or not.

    Attributes:
        number: of the record in its shard.
        offset: the byte at which the frame starts, uncompressed.
        data: of the record; None if it cannot be told where they are.
        checksum: of the data, as the frame should have it.
        is_sound: whether the data are what was written, which they may be behind a damaged header.
        fault: what is wrong with the frame, or None.
        is_last: whether nothing can be read behind it.
    """

    number: int
    offset: int
    data: bytes | None
    checksum: int = 0
    is_sound: bool = False
    fault: str | None = None
    is_last: bool = False


def walk_frames(
    path: Path, shard: Shard, compression: Compression, index: RecordIndex | None
) -> Iterator[Frame]:
    """Yield every frame of a shard.

    If only data are damaged, the next frame stands behind them. If a header is, the walk goes on where the
    index says that the next record starts. No memory is taken for a length that the file does not have.

    Args:
        path: of the file.
        shard: what the manifest says of it.
        compression: of the file.
        index: where the records are, if that is known for sure.
    """
    number = offset = 0
    try:
        with _opened(path, compression) as file:
            # of compressed data only the manifest says how many there may be
            end = shard.record_bytes if compression == "gzip" else os.fstat(file.fileno()).st_size
            walk = _Walk(file, end, None if index is None else index.offsets, index)
            while frame := walk.frame(number, offset):
                yield frame
                if frame.is_last:
                    return
                number, offset = walk.behind(frame)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        fault = f"the compressed data are damaged: {error}; the rest of the shard cannot be read"
        yield Frame(number, offset, None, fault=fault, is_last=True)
    except OSError as error:
        yield Frame(number, offset, None, fault=f"cannot be read: {error.strerror}", is_last=True)


def _opened(path: Path, compression: Compression) -> BinaryIO:
    if compression == "gzip":
        return cast("BinaryIO", gzip.open(path))
    return path.open("rb", buffering=_BUFFER_BYTES)


# eq=False: NumPy compares arrays element by element, which is no answer here
@dataclass(frozen=True, eq=False)
class _Walk:
    """A file that is walked.

    Attributes:
        file: stands where the next frame starts.
        end: the byte at which the last record has to end, uncompressed.
        starts: of the frames by the index, shape ``(num_examples,)`` int64; None if it is not known.
        index: see ``walk_frames``.
    """

    file: BinaryIO
    end: int
    starts: npt.NDArray[np.int64] | None
    index: RecordIndex | None

    def frame(self, number: int, offset: int) -> Frame | None:
        """Return the frame at ``offset``, or None at the file's end."""
        header = self.file.read(_HEADER.size)
        if not header:
            return None
        if offset >= self.end:
            fault = f"the manifest says that the records end at byte {self.end}; more follow"
            return Frame(number, offset, None, fault=fault, is_last=True)
        if len(header) < _HEADER.size:
            fault = f"the file ends {len(header)} bytes into the frame's header"
            return Frame(number, offset, None, fault=fault, is_last=True)
        length, crc = _HEADER.unpack(header)
        if crc != masked_crc32c(header[:8]):
            return self._lost(number, offset, "the checksum of the record's length does not hold")
        if offset + FRAME_OVERHEAD + length > self.end:
            return self._lost(number, offset, _cut(length))
        return self._data(number, offset, length)

    def behind(self, frame: Frame) -> tuple[int, int]:
        """Return number and offset of what stands behind a frame that is not the last."""
        if frame.data is not None:
            return frame.number + 1, frame.offset + FRAME_OVERHEAD + len(frame.data)
        place, offset = self._next(frame.offset)
        self.file.seek(offset)
        return place, offset

    def _lost(self, number: int, offset: int, fault: str) -> Frame:
        """Return a frame whose header is damaged, with its data if the index says where these end."""
        if self.starts is None or self.index is None:
            fault += "; what follows cannot be found, since the index is damaged, too"
            return Frame(number, offset, None, fault=fault, is_last=True)
        place = int(np.searchsorted(self.starts, offset))
        if place < len(self.starts) and self.starts[place] == offset:
            length = int(self.index.lengths[place]) - FRAME_OVERHEAD
            if offset + FRAME_OVERHEAD + length <= self.end:
                found = self._data(place, offset, length)
                return found._replace(fault=fault + ("; its data are sound" if found.is_sound else ""))
        return Frame(number, offset, None, fault=fault, is_last=self._next(offset)[1] >= self.end)

    def _data(self, number: int, offset: int, length: int) -> Frame:
        """Return a frame of this length, behind whose header the file stands."""
        data = read_exactly(self.file, length)
        footer = self.file.read(FOOTER.size)
        if len(data) < length or len(footer) < FOOTER.size:
            # compressed, a file tells its end no earlier
            return Frame(number, offset, None, fault=_cut(length), is_last=True)
        checksum = masked_crc32c(data)
        is_sound = FOOTER.unpack(footer)[0] == checksum
        fault = None if is_sound else "the checksum of the record's data does not hold"
        return Frame(number, offset, data, checksum, is_sound, fault)

    def _next(self, offset: int) -> tuple[int, int]:
        """Return number and start of the first record behind ``offset``, by the index, or the end."""
        # without an index, what stands before would have been the last
        assert self.starts is not None
        place = int(np.searchsorted(self.starts, offset, side="right"))
        return place, int(self.starts[place]) if place < len(self.starts) else self.end


def _cut(length: int) -> str:
    return f"says {length} bytes of data; the file ends before"
