"""``Frames``: the records of a split by their numbers, checked, from files of this machine or from a bucket.

    shard   | header 12 | data | footer 4 | header 12 | data | footer 4 | ...
            ^ offset of a record          ^ offset of the next, which ends it

A header holds the length of the data and its checksum, a footer the checksum of the data. A record is sound
if both checksums are right and the length equals the one in the index.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cache
from typing import NamedTuple

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
from tfshards.schemas.frames import are_sound, footer_of, frame_fault, header_of
from tfshards.schemas.index import FOOTER_BYTES, FRAME_OVERHEAD, HEADER_BYTES
from tfshards.schemas.index import IntArray as Ints
from tfshards.schemas.storage import AnyPath

# What to do about the files of a dataset that are missing or damaged.
REMEDY = (
    "`tfshards verify DATASET --deep` lists all faults, `tfshards verify DATASET --repair` rebuilds indexes, "
    "labels and keys, and names the command that writes shards again; or restore the files from a backup"
)
# Files that are open at the same time: each has a file descriptor, of which processes often have 1,024.
_MOST_OPEN = 256
# Records with fewer bytes between them are read together: a system call takes as long as 4 KiB, a request of
# a bucket longer than 64 KiB.
_LOCAL_GAP, _REMOTE_GAP = 4 << 10, 64 << 10
_MOST_REQUEST_BYTES = 8 << 20
_NUM_THREADS = 32
# A request that is answered after 50 ms brings 256 KiB: 64 of them are 330 MB/s.
_NUM_REQUESTS = 64
# The length in a header.
_LENGTH = np.dtype("<u8")
_SCANNED_BYTES = 256 << 10
# Records of this machine that are longer on average are read one by one.
_LONG_BYTES = 8 << 10


class Place(NamedTuple):
    """Where records are, as int64 vectors of one length."""

    shards: Ints
    offsets: Ints
    lengths: Ints


class Frames:
    """The frames of the records of a split, which are read by the numbers of the examples.

    Indexes are read when a record of their shard is read first. Any number of threads may read.
    """

    def __init__(
        self,
        root: AnyPath,
        shards: Sequence[Shard],
        paths: Sequence[AnyPath],
        *,
        versions: Sequence[str] = (),
        is_whole: bool = True,
    ) -> None:
        """Prepare to read.

        Args:
            root: the dataset.
            shards: the shards of the split.
            paths: what is read: the shards, or uncompressed copies of them.
            versions: the ETags of the objects that are read, if the shards are in a bucket.
            is_whole: whether files of another size than in the manifest are refused.
        """
        self.root: AnyPath = root
        self.shards: Sequence[Shard] = shards
        self.paths: Sequence[AnyPath] = paths
        # of each shard; and whether all are on this machine
        self.is_far: npt.NDArray[np.bool_] = np.array([path.is_far for path in paths], bool)
        self.is_local: bool = not self.is_far.any()
        self.sizes: Ints = np.array([shard.num_examples for shard in shards], np.int64)
        self.ends: Ints = np.cumsum(self.sizes)
        self._versions, self._is_whole = versions, is_whole
        # For each shard the offsets of its records, and its end; not used before the index is read.
        self._offsets = np.empty(int(self.sizes.sum()) + len(shards), np.int64)
        self._is_known = np.zeros(len(shards), np.bool_)
        # Records that are the first ones of their shards; negative numbers are no records.
        self._starts_shard = np.zeros(int(self.sizes.sum()) + 3, np.bool_)
        self._starts_shard[self.ends] = True
        # Records whose headers were found to state the right length.
        self._is_true = np.zeros(int(self.sizes.sum()), np.bool_)
        self._files: OrderedDict[int, _File] = OrderedDict()
        self._lock = threading.Lock()

    def read_from(self, paths: Sequence[AnyPath]) -> Frames:
        """Return the same frames, read from other files of this machine."""
        other = copy(self)
        other.paths, other.is_local, other.is_far = paths, True, np.zeros(len(paths), np.bool_)
        other._files, other._lock = OrderedDict(), threading.Lock()
        other._is_true = np.zeros(len(self), np.bool_)
        return other

    def __len__(self) -> int:
        return len(self._offsets) - len(self.shards)

    def places(self, numbers: Ints) -> Place:
        """Return where the records of examples are."""
        shards = np.searchsorted(self.ends, numbers, side="right")
        self._know(shards)
        # each shard before it has one more offset than records
        rows = numbers + shards
        offsets = self._offsets[rows]
        return Place(shards, offsets, self._offsets[rows + 1] - offsets)

    def read(self, numbers: Ints) -> list[Block]:
        """Return the records with these numbers: short ones by length, others when they are asked for.

        Raises:
            FormatError: a record is damaged, or its shard or index is missing or differs from the manifest.
        """
        place = self.places(numbers)
        lengths = place.lengths
        if self.is_local and (len(numbers) < FEWEST or lengths.mean() > _LONG_BYTES):
            return [Block(np.arange(len(numbers)), self._sound(numbers, self._frames(place)), None)]
        data, starts = self.fetch(place)
        blocks, alone = [], []
        for rows in in_equal_groups(np.argsort(lengths, kind="stable"), lengths) if len(numbers) else []:
            length = int(lengths[rows[0]])
            if len(rows) < FEWEST or length > LONGEST:
                alone.append(rows)
                continue
            frames = _windows(data, length)[starts[rows]].view(np.uint8).reshape(len(rows), length)
            kind = np.dtype((np.void, length - FRAME_OVERHEAD))
            records = np.ndarray((len(rows),), kind, frames, HEADER_BYTES, (length,)).tolist()
            ends = frames[:, :HEADER_BYTES], frames[:, -FOOTER_BYTES:]
            right = are_sound(records, [length - FRAME_OVERHEAD], *ends)
            if not right.all():
                number, row = min((int(numbers[rows[row]]), row) for row in np.flatnonzero(~right).tolist())
                raise self._damaged(number, frames[row].tobytes())
            blocks.append(Block(rows, records, frames[:, HEADER_BYTES:-FOOTER_BYTES]))
        if alone:
            rows = np.concatenate(alone)
            bounds = zip(starts[rows].tolist(), (starts + lengths)[rows].tolist(), strict=True)
            view = data.data
            parts = (view[begin:end] for begin, end in bounds)
            blocks.append(Block(rows, self._sound(numbers[rows], parts), None))
        return blocks

    def _frames(self, place: Place) -> Iterator[memoryview]:
        """Yield frames of local shards, each in the memory of the one before it: in the processor's cache."""
        shards, offsets, lengths = map(np.ndarray.tolist, place)
        memory = memoryview(bytearray(max(lengths, default=0)))
        for shard, offset, length in zip(shards, offsets, lengths, strict=True):
            self._read_into(frame := memory[:length], shard, offset)
            yield frame

    def _sound(self, numbers: Ints, frames: Iterable[memoryview]) -> Iterator[bytes]:
        """Yield the records in frames, or raise FormatError at the first one that is damaged."""
        for number, frame in zip(numbers.tolist(), frames, strict=True):
            record = bytes(frame[HEADER_BYTES:-FOOTER_BYTES])
            ends = bytes(frame[:HEADER_BYTES]), bytes(frame[-FOOTER_BYTES:])
            if ends != (header_of(len(record)), footer_of(record)):
                raise self._damaged(number, bytes(frame))
            yield record

    def _damaged(self, number: int, frame: bytes) -> FormatError:
        problem = Problem(self.place(number), str(frame_fault(frame, len(frame) - FRAME_OVERHEAD)))
        return FormatError(f"{self.root}: a damaged record ({REMEDY})", [problem])

    def records(self, numbers: Ints) -> npt.NDArray[np.object_]:
        """Return the records with these numbers as bytes, in this order; see ``read``."""
        found = np.empty(len(numbers), object)
        for block in self.read(numbers):
            for row, record in zip(block.rows.tolist(), block.records, strict=True):
                found[row] = record
        return found

    def is_sound(self, numbers: Ints) -> npt.NDArray[np.bool_]:
        """Return which of the records can be read, trying each by itself."""

        def can(number: int) -> bool:
            try:
                self.records(np.array([number]))
            except FormatError:
                return False
            return True

        return np.array([can(number) for number in numbers.tolist()], np.bool_)

    def intervals(self, numbers: Ints, kinds: npt.NDArray[np.bool_]) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the intervals of neighbors in one shard, in order.

        Args:
            numbers: shape ``(lanes, n)`` int64: the examples of each lane; a negative one is an interval of
                its own.
            kinds: shape ``(lanes * n,)``: where the examples are; no interval has two kinds.

        Returns:
            The first number and the count of each interval, and for each lane the index of its first
            interval, with the number of all intervals at the end; and the place of each first number in
            ``numbers``.
        """
        flat, width = numbers.reshape(-1), numbers.shape[1]
        is_first = np.ones(len(flat), np.bool_)
        is_first[1:] = (flat[1:] != flat[:-1] + 1) | (flat[1:] < 0) | (kinds[1:] != kinds[:-1])
        is_first |= self._starts_shard[flat]
        is_first[:: max(1, width)] = True
        rows = np.flatnonzero(is_first)
        lanes = np.searchsorted(rows, np.arange(len(numbers) + 1) * width)
        return flat[rows], np.diff(np.append(rows, len(flat))), lanes, rows

    def lies(self, firsts: Ints, counts: Ints) -> Ints:
        """Return the numbers of local records whose headers state another length than the index has.

        A reader that believes a header must not be told of them. A file that cannot be read states nothing.
        Each header is compared once: one that is damaged later does not have the checksum of its length.

        Args:
            firsts: the first numbers of intervals of neighbors in one shard, an int64 vector.
            counts: the numbers of their records.
        """
        found = [np.zeros(0, np.int64)]
        shards = np.searchsorted(self.ends, firsts, side="right")
        self._know(shards)
        for first, count, shard in zip(firsts.tolist(), counts.tolist(), shards.tolist(), strict=True):
            if self._is_true[first : first + count].all():
                continue
            edges = self._offsets[first + shard : first + shard + count + 1]
            stated = self._stated(shard, edges)
            wrong = stated != np.diff(edges) - FRAME_OVERHEAD
            self._is_true[first : first + count] = ~wrong
            if wrong.any():
                found.append(first + np.flatnonzero(wrong))
        return np.concatenate(found)

    def _stated(self, shard: int, edges: Ints) -> Ints:
        """Return the lengths in the headers of neighbors between these offsets; -1 if it cannot be read."""
        count, start, end = len(edges) - 1, int(edges[0]), int(edges[-1])
        stated = np.full(count, -1, np.int64)
        try:
            file = self._file(shard).descriptor
            if end - start > _LOCAL_GAP * count:
                read = b"".join([os.pread(file, _LENGTH.itemsize, offset) for offset in edges[:-1].tolist()])
                stated[:] = np.frombuffer(read, _LENGTH)
                return stated
            # of short records all bytes are read, a part at a time, which stays in the processor's cache
            for first in range(0, count, step := max(1, _SCANNED_BYTES * count // (end - start))):
                last = min(first + step, count)
                data = np.frombuffer(
                    os.pread(file, int(edges[last] - edges[first]), int(edges[first])), np.uint8
                )
                stated[first:last] = _windows(data, _LENGTH.itemsize)[edges[first:last] - edges[first]].view(
                    _LENGTH
                )
        except (FormatError, OSError, ValueError, IndexError):
            # of another length, or gone
            pass
        return stated

    def fetch(
        self,
        place: Place,
        gap: int | None = None,
        make: Callable[[int], Octets] = lambda size: np.empty(size, np.uint8),
    ) -> tuple[Octets, Ints]:
        """Return the bytes of frames, and where in them each begins; neighbors are read together.

        Frames with up to ``gap`` bytes between them are neighbors; by default as many as is fast. ``make``
        returns the memory for a number of bytes.

        Raises:
            FormatError: a file is missing, cut or changed.
        """
        is_far = bool(self.is_far[place.shards].any())
        if gap is None:
            gap = _REMOTE_GAP if is_far else _LOCAL_GAP
        pieces, starts = pieces_of(*place, gap)
        ends = np.cumsum(pieces.lengths)
        data = make(int(ends[-1]) if len(ends) else 0)

        view, begins = data.data, ends - pieces.lengths
        parts = [view[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        places = pieces.shards.tolist(), pieces.offsets.tolist()
        # in a bucket many at the same time
        each = _requests(os.getpid()).map if is_far else map
        deque(each(self._read_into, parts, *places), maxlen=0)
        return data, starts

    def _read_into(self, part: memoryview, shard: int, offset: int) -> None:
        """Fill ``part`` with the bytes of a shard from an offset on; FormatError if it has none."""
        try:
            if self.is_far[shard]:
                version = self._versions[shard] if self._versions else None
                part[:] = self.paths[shard].view_range(offset, offset + len(part), version)
                return
            file = self._file(shard)
            # Linux reads at most 2 GiB at a time
            while (num_read := os.preadv(file.descriptor, [part], offset)) != len(part):
                if not num_read:
                    raise self._fault(shard, f"ends at byte {offset}; it was cut after it was opened")
                part, offset = part[num_read:], offset + num_read
        except OSError as error:
            raise self._fault(shard, f"cannot be read: {error.strerror or error}") from None

    def place(self, number: int) -> str:
        """Return the shard, the record and the offset of an example, as errors name them."""
        shard = int(np.searchsorted(self.ends, number, side="right"))
        record = number - int(self.ends[shard] - self.sizes[shard])
        return f"{self.shards[shard].path} record {record} at offset {self._offsets[number + shard]}"

    def read_indexes(self) -> None:
        """Read all indexes, so that their faults are found now."""
        self._know(np.arange(len(self.shards)))

    def _know(self, shards: Ints) -> None:
        """Read the indexes of shards that are not known yet."""
        if self._is_known[shards].all():
            return
        unknown = _distinct(shards[~self._is_known[shards]])
        with ThreadPoolExecutor(min(_NUM_THREADS, len(unknown))) as threads:
            found = list(threads.map(lambda shard: read_index(self.root, self.shards[shard]), unknown))
        problems = [problem for _, of_shard in found for problem in of_shard]
        if problems:
            raise FormatError(f"{self.root}: the indexes of the shards ({REMEDY})", problems)
        for shard, (index, _) in zip(unknown, found, strict=True):
            assert index is not None  # otherwise there is a problem
            first = int(self.ends[shard] - self.sizes[shard]) + shard
            self._offsets[first] = 0
            np.cumsum(index.lengths, out=self._offsets[first + 1 : first + 1 + len(index.lengths)])
            self._is_known[shard] = True

    def _file(self, shard: int) -> _File:
        """Return the open file of a shard; those that were used last are kept."""
        with self._lock:
            if shard not in self._files:
                self._files[shard] = self._opened(shard)
                if len(self._files) > _MOST_OPEN:
                    # closed when no thread reads it any more
                    self._files.popitem(last=False)
            self._files.move_to_end(shard)
            return self._files[shard]

    def _opened(self, shard: int) -> _File:
        # a copy may be an uncompressed one
        is_copy = self.paths[shard] != self.root / self.shards[shard].path
        expected = self.shards[shard].record_bytes if is_copy else self.shards[shard].num_bytes
        with self.paths[shard].open_regular(buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size != expected and self._is_whole:
                raise self._fault(shard, f"has {size} bytes instead of the {expected} in the manifest")
            return _File(os.dup(file.fileno()))

    def _fault(self, shard: int, fault: str) -> FormatError:
        return FormatError(f"{self.root}: a shard ({REMEDY})", [Problem(self.shards[shard].path, fault)])


@cache
def _requests(_process: int) -> ThreadPoolExecutor:
    """Return the threads that request records; a forked process has none of its parent's threads."""
    return ThreadPoolExecutor(_NUM_REQUESTS, thread_name_prefix="tfshards-fetching")


class _File:
    """An open file, which is closed with its last user."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)


def pieces_of(shards: Ints, offsets: Ints, lengths: Ints, gap: int) -> tuple[Place, Ints]:
    """Return the parts of shards that hold some frames, and where each frame begins in all parts together.

        frames  [a]   [b][c]            [d]
        pieces  [-----------]           [-]     a and b are nearer than the gap

    Args:
        shards: the shard of each frame, int64 vectors like the others.
        offsets: the byte at which it begins.
        lengths: its bytes.
        gap: the bytes between two frames up to which they are read together.
    """
    count = len(shards)
    order = np.lexsort((offsets, shards))
    shards, offsets, ends = shards[order], offsets[order], (offsets + lengths)[order]
    is_new = np.ones(count, np.bool_)
    is_new[1:] = (shards[1:] != shards[:-1]) | (offsets[1:] > ends[:-1] + gap)
    # long pieces are cut, so that several are read at the same time
    firsts = np.flatnonzero(is_new)
    within = offsets - np.repeat(offsets[firsts], np.diff(np.append(firsts, count)))
    is_new[1:] |= within[1:] // _MOST_REQUEST_BYTES != within[:-1] // _MOST_REQUEST_BYTES
    firsts = np.flatnonzero(is_new)
    counts = np.diff(np.append(firsts, count))
    # a frame that is asked for twice ends where it did
    lasts = np.maximum.reduceat(ends, firsts) if count else ends
    pieces = Place(shards[firsts], offsets[firsts], lasts - offsets[firsts])
    begins = np.cumsum(pieces.lengths) - pieces.lengths
    starts = np.empty(count, np.int64)
    starts[order] = offsets - np.repeat(pieces.offsets - begins, counts)
    return pieces, starts


def read_values(root: AnyPath, frames: Frames, columns: Columns, numbers: Ints) -> Values:
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


def _distinct(shards: Ints) -> list[int]:
    """Return each shard once.

    ``np.unique`` imports ``numpy.ma`` when it is called first (NumPy 2.4), which has failed in a thread of a
    forked process.
    """
    found: list[int] = np.flatnonzero(np.bincount(shards)).tolist()
    return found


def _windows(data: Octets, length: int) -> npt.NDArray[np.void]:
    """Return the bytes from each place on, as one element each, of which some may be chosen."""
    kind = np.dtype((np.void, length))
    count = max(0, len(data) - length + 1)
    windows: npt.NDArray[np.void] = np.ndarray((count,), kind, data, 0, (1,))
    return windows
