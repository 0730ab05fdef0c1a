"""Read the frames of records by their numbers, and check them: local files by mmap, buckets by ranges."""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.schemas import Feature, FormatError, Problem, Shard
from tfshards.schemas.columns import (
    FEWEST,
    LONGEST,
    Block,
    Columns,
    Octets,
    UnparsedError,
    Values,
    in_equal_groups,
)
from tfshards.schemas.companions import read_index
from tfshards.schemas.frames import header_of, masked_crc32c_of
from tfshards.schemas.index import FOOTER_BYTES, FRAME_OVERHEAD, HEADER_BYTES, RecordIndex
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.reader import in_flight
from tfshards.schemas.storage.untrusted import open_regular, read_range

IntArray: TypeAlias = npt.NDArray[np.int64]

# What to do about the files of a dataset that are missing or damaged.
REMEDY = (
    "`tfshards verify DATASET --deep` lists all faults, `tfshards verify DATASET --repair` rebuilds indexes, "
    "labels and keys, and names the command that writes shards again; or restore the files from a backup"
)
# Files that are mapped at the same time: each has a file descriptor, of which processes often have 1,024.
_MOST_MAPPED = 256
# Ranges of a bucket with fewer bytes between them are one request.
_GAP_BYTES = 64 << 10
_MOST_REQUEST_BYTES = 8 << 20
_NUM_THREADS = 16


class Frames:
    """The frames of the records of a split, which are read by the numbers of the examples.

    Indexes are read when a record of their shard is read first. Any number of threads may read.
    """

    def __init__(
        self,
        root: AnyPath,
        shards: Sequence[Shard],
        *,
        is_checked: bool,
        indexes: Sequence[RecordIndex] = (),
        copies: Sequence[AnyPath] = (),
    ) -> None:
        """Prepare to read.

        Args:
            root: the dataset.
            shards: the shards of the split.
            is_checked: whether checksums are compared.
            indexes: the indexes of the shards, if they are known.
            copies: the files that are read instead of the shards, if there are any.
        """
        sizes = np.array([shard.num_examples for shard in shards], np.int64)
        self._root, self._shards, self._is_checked = root, shards, is_checked
        self._paths = copies or [root / shard.path for shard in shards]
        self._is_mapped = all(isinstance(path, Path) for path in self._paths)
        self._ends: IntArray = np.cumsum(sizes)
        # memory that is not used before an index is read
        self._offsets = np.empty(int(sizes.sum()), np.int64)
        self._lengths = np.empty(int(sizes.sum()), np.int64)
        self._is_known = np.zeros(len(shards), np.bool_)
        self._maps: OrderedDict[int, mmap.mmap] = OrderedDict()
        self._lock = threading.Lock()
        for shard, index in enumerate(indexes):
            self._keep(shard, index)

    def __len__(self) -> int:
        return len(self._offsets)

    def read(self, numbers: IntArray) -> list[Block]:
        """Return the records with these numbers, grouped by length.

        Raises:
            FormatError: a record is damaged, or its shard or index is missing or differs from the manifest.
        """
        shards = np.searchsorted(self._ends, numbers, side="right")
        self._know(shards)
        offsets, lengths = self._offsets[numbers], self._lengths[numbers]
        if not self._is_mapped:
            fetched = self._fetched(shards.tolist(), offsets.tolist(), lengths.tolist())
            return [self._sound(numbers, _alone(np.arange(len(numbers)), fetched))]
        maps = self._mapped(_distinct(shards))
        blocks, alone = [], []
        for rows in in_equal_groups(np.lexsort((shards, lengths)), lengths):
            length = int(lengths[rows[0]]) if len(rows) else 0
            if len(rows) < FEWEST or length > LONGEST:
                alone.append(rows)
                continue
            of_shards = in_equal_groups(rows, shards)
            windows = (_windows(maps[int(shards[some[0]])], length) for some in of_shards)
            chosen = [window[offsets[some]] for window, some in zip(windows, of_shards, strict=True)]
            blocks.append(self._sound(numbers, _together(rows, np.concatenate(chosen))))
        if alone:
            rows = np.concatenate(alone)
            views = {shard: memoryview(mapped) for shard, mapped in maps.items()}
            places = zip(shards[rows].tolist(), offsets[rows].tolist(), lengths[rows].tolist(), strict=True)
            frames = [(views[shard], offset, length) for shard, offset, length in places]
            blocks.append(self._sound(numbers, _alone(rows, frames)))
        return blocks

    def place(self, number: int) -> str:
        """Return the shard, the record and the offset of an example, as errors name them."""
        shard = int(np.searchsorted(self._ends, number, side="right"))
        record = number - int(self._ends[shard]) + self._shards[shard].num_examples
        return f"{self._shards[shard].path} record {record} at offset {self._offsets[number]}"

    def _know(self, shards: npt.NDArray[np.intp]) -> None:
        """Read the indexes of shards that are not known yet."""
        unknown = _distinct(shards[~self._is_known[shards]])
        if not unknown:
            return
        with ThreadPoolExecutor(min(_NUM_THREADS, len(unknown))) as threads:
            found = list(threads.map(lambda shard: read_index(self._root, self._shards[shard]), unknown))
        problems = [problem for _, of_shard in found for problem in of_shard]
        if problems:
            raise FormatError(f"{self._root}: the indexes of the shards ({REMEDY})", problems)
        for shard, (index, _) in zip(unknown, found, strict=True):
            if index is not None:
                self._keep(shard, index)

    def _keep(self, shard: int, index: RecordIndex) -> None:
        rows = slice(int(self._ends[shard]) - self._shards[shard].num_examples, self._ends[shard])
        self._offsets[rows], self._lengths[rows] = index.offsets, index.lengths
        self._is_known[shard] = True

    def _mapped(self, shards: Sequence[int]) -> dict[int, mmap.mmap]:
        """Return the maps of files; those that were used last are kept."""
        found = {}
        with self._lock:
            for shard in shards:
                if shard not in self._maps:
                    self._maps[shard] = self._map(shard)
                self._maps.move_to_end(shard)
                found[shard] = self._maps[shard]
            while len(self._maps) > _MOST_MAPPED:
                # closed when no thread reads it any more
                self._maps.popitem(last=False)
        return found

    def _map(self, shard: int) -> mmap.mmap:
        expected = self._shards[shard].num_bytes
        try:
            with open_regular(self._paths[shard], buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                if size == expected:
                    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            fault = f"has {size} bytes instead of the {expected} in the manifest"
        except OSError as error:
            fault = f"cannot be read: {error.strerror}"
        raise self._fault(shard, fault)

    def _fault(self, shard: int, fault: str) -> FormatError:
        problem = Problem(self._shards[shard].path, fault)
        return FormatError(f"{self._root}: a shard ({REMEDY})", [problem])

    def _fetched(
        self, shards: Sequence[int], offsets: Sequence[int], lengths: Sequence[int]
    ) -> list[tuple[memoryview, int, int]]:
        """Return frames from a bucket, see ``_alone``, neighbors by one request each."""
        order = sorted(range(len(shards)), key=lambda row: (shards[row], offsets[row]))
        requests = [*_requests(order, shards, offsets, lengths)]

        def fetch(rows: Sequence[int]) -> bytes:
            start, shard = offsets[rows[0]], shards[rows[0]]
            end = max(offsets[row] + lengths[row] for row in rows)
            try:
                return read_range(self._paths[shard], start, end)
            except OSError as error:
                raise self._fault(shard, f"cannot be read: {error.strerror or error}") from None

        frames = [(memoryview(b""), 0, 0)] * len(order)
        for rows, data in zip(requests, in_flight(fetch, requests), strict=True):
            for row in rows:
                frames[row] = memoryview(data), offsets[row] - offsets[rows[0]], lengths[row]
        return frames

    def _sound(self, numbers: IntArray, read: tuple[Block, Octets, Octets]) -> Block:
        """Return the block, or raise FormatError if the length of a record, or a checksum, is wrong."""
        block, headers, footers = read
        if not self._is_checked:
            return block
        # google_crc32c takes bytes only; a copy that is freed at once costs little
        masked = masked_crc32c_of(map(bytes, block.records))
        right = masked == np.ascontiguousarray(footers).view("<u4")[:, 0]
        expected = [*map(header_of, map(len, block.records if block.data is None else block.records[:1]))]
        if expected:
            joined = np.frombuffer(b"".join(expected), np.uint8).reshape(-1, HEADER_BYTES)
            right &= (headers == joined).all(axis=1)
        if not right.all():
            which = self.place(int(numbers[block.rows[~right]].min()))
            problem = Problem(which, "its length or a checksum is wrong")
            raise FormatError(f"{self._root}: a damaged record ({REMEDY})", [problem])
        return block


def read_values(root: AnyPath, frames: Frames, columns: Columns, numbers: npt.NDArray[np.int64]) -> Values:
    """Return the values of the examples with these numbers, in their order; see ``Columns.parse``.

    Raises:
        FormatError: a record is damaged, or does not fit the schema.
    """
    try:
        return columns.parse(frames.read(numbers), len(numbers))
    except UnparsedError as error:
        problem = Problem(frames.place(int(numbers[error.row])), str(error))
        raise FormatError(f"{root}: a record ({REMEDY})", [problem]) from None


def all_values(root: AnyPath, frames: Frames, feature: Feature, together: int = 1024) -> Sequence[object]:
    """Return the value of a feature of each example."""
    columns, found = Columns([feature]), list[object]()
    for start in range(0, len(frames), together):
        numbers = np.arange(start, min(start + together, len(frames)), dtype=np.int64)
        found += read_values(root, frames, columns, numbers)[feature.name].tolist()
    return found


def _distinct(shards: npt.NDArray[np.intp]) -> list[int]:
    """Return each shard once.

    ``np.unique`` imports ``numpy.ma`` when it is called first (NumPy 2.4), which has failed in a thread of a
    forked process.
    """
    found: list[int] = np.flatnonzero(np.bincount(shards)).tolist()
    return found


def _windows(mapped: mmap.mmap, length: int) -> npt.NDArray[np.void]:
    """Return the bytes from each place of a file on, as one element each, of which some may be chosen."""
    kind = np.dtype((np.void, length))
    windows: npt.NDArray[np.void] = np.ndarray((len(mapped) - length + 1,), kind, mapped, 0, (1,))
    return windows


def _together(rows: IntArray, frames: npt.NDArray[np.void]) -> tuple[Block, Octets, Octets]:
    """Return the records of frames of one length, with their headers and footers."""
    length = frames.dtype.itemsize
    matrix = frames.view(np.uint8).reshape(len(rows), length)
    kind = np.dtype((np.void, length - FRAME_OVERHEAD))
    records = np.ndarray((len(rows),), kind, matrix, HEADER_BYTES, (length,)).tolist()
    data = matrix[:, HEADER_BYTES:-FOOTER_BYTES]
    return Block(rows, records, data), matrix[:, :HEADER_BYTES], matrix[:, -FOOTER_BYTES:]


def _alone(rows: IntArray, frames: Sequence[tuple[memoryview, int, int]]) -> tuple[Block, Octets, Octets]:
    """Return the records of frames of any length, with their headers and footers.

    A frame is the bytes that have it, and where it starts and how long it is there; nothing is copied.
    """
    inner = [(data, start + HEADER_BYTES, start + length - FOOTER_BYTES) for data, start, length in frames]
    ends = (
        (data[begin - HEADER_BYTES : begin], data[end : end + FOOTER_BYTES]) for data, begin, end in inner
    )
    outer = np.frombuffer(b"".join(chain.from_iterable(ends)), np.uint8).reshape(-1, FRAME_OVERHEAD)
    records = [data[begin:end] for data, begin, end in inner]
    return Block(rows, records, None), outer[:, :HEADER_BYTES], outer[:, HEADER_BYTES:]


def _requests(
    order: Sequence[int], shards: Sequence[int], offsets: Sequence[int], lengths: Sequence[int]
) -> Iterator[list[int]]:
    """Yield the rows of each request, which are near to each other in one shard."""
    rows: list[int] = []
    for row in order:
        if rows and (
            shards[row] != shards[rows[-1]]
            or offsets[row] > offsets[rows[-1]] + lengths[rows[-1]] + _GAP_BYTES
            or offsets[row] > offsets[rows[0]] + _MOST_REQUEST_BYTES
        ):
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows
