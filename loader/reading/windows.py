"""``Windows``: what the order needs next, fetched from a bucket, as files that TensorFlow reads."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections import defaultdict, deque
from typing import IO

import numpy as np
import numpy.typing as npt

from tfshards.loader.reading.cache import FirstRecords
from tfshards.loader.reading.frames import Frames, Place, intervals_of
from tfshards.schemas import FormatError
from tfshards.schemas.columns import Octets
from tfshards.schemas.index import FRAME_OVERHEAD
from tfshards.schemas.index import IntArray as Ints

# Bytes that are fetched together: one such window is read, the next one is fetched.
WINDOW_BYTES = 256 << 20
# Takes the place of the number of an example whose record TensorFlow must not read.
UNREADABLE = -3


class Windows:
    """Fetches the records of chunks, and keeps the last two chunks of each reader."""

    def __init__(self, frames: Frames, cache: FirstRecords | None) -> None:
        """Prepare to fetch; with a cache, what it has is not fetched."""
        self._frames, self._cache = frames, cache
        self._open: dict[int, deque[_MemoryFile]] = defaultdict(lambda: deque(maxlen=2))
        self._lock = threading.Lock()
        cached = [] if cache is None else [str(path) for path in cache.frames.paths]
        self._cached_paths = np.array([*cached, os.devnull], object)

    def chunk(self, reader: int, numbers: Ints) -> tuple[npt.NDArray[np.object_], Ints, Ints]:
        """Return files, intervals and lanes of a ``Chunk``.

        Args:
            reader: who reads it.
            numbers: shape ``(lanes, n)`` int64: the examples of each lane.
        """
        flat = numbers.reshape(-1)
        rows = np.flatnonzero(flat >= 0)
        is_cached = np.zeros(len(flat), np.bool_)
        if self._cache is not None:
            is_cached[rows] = self._cache.has(flat[rows])
            rows = rows[~is_cached[rows]]
        place = self._frames.places(flat[rows])
        window, starts = self._fetched(place)
        is_read = starts >= 0
        flat[rows[~is_read]] = UNREADABLE
        if self._cache is not None:
            kept = Place(*(each[is_read] for each in place))
            self._cache.keep(flat[rows[is_read]], kept, window.data, starts[is_read])
        with self._lock:
            self._open[reader].append(window)
        files = np.append(self._cached_paths, np.array([window.path], object))
        where = np.zeros(len(flat), np.int64)
        where[rows] = starts
        firsts, counts, lanes, heads = intervals_of(numbers, self._frames.ends, is_cached)
        shards, offsets, _ = self._frames.places(np.maximum(firsts, 0))
        of_cache = is_cached[heads]
        offsets = np.where(firsts < 0, 0, np.where(of_cache, offsets, where[heads]))
        # the file after the cached ones is empty
        file = np.where(of_cache, shards, np.where(firsts < 0, len(files) - 2, len(files) - 1))
        return files, np.stack([file, offsets, counts], axis=1), lanes

    def _fetched(self, place: Place) -> tuple[_MemoryFile, Ints]:
        """Return a file of the bytes of frames, and where each begins; -1 if it is missing, or lies."""
        window = _MemoryFile()
        try:
            # what lies between is fetched when it is due
            data, starts = self._frames.fetch(place, gap=0, make=window.make)
        except FormatError:
            # whoever misses a record asks for it alone, and names it
            return window, np.full(len(place.shards), -1, np.int64)
        stated = np.zeros(len(starts), np.int64)
        for byte in range(8):
            stated |= data[starts + byte].astype(np.int64) << 8 * byte
        return window, np.where(stated == place.lengths - FRAME_OVERHEAD, starts, -1)


class _MemoryFile:
    """Bytes as a file, in memory where the system has such files, which is gone with its last user."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self._file: IO[bytes] = os.fdopen(os.memfd_create("tfshards"), "w+b", buffering=0)
            self.path = f"/proc/self/fd/{self._file.fileno()}"
        else:
            self._file = tempfile.NamedTemporaryFile(prefix="tfshards-", buffering=0)  # noqa: SIM115
            self.path = self._file.name
        self.data: Octets = np.zeros(0, np.uint8)

    def make(self, size: int) -> Octets:
        """Return the bytes of the file, of this size, as an array that is written to."""
        if size:
            os.ftruncate(self._file.fileno(), size)
            self.data = np.frombuffer(mmap.mmap(self._file.fileno(), size), np.uint8)
        return self.data

    def __del__(self) -> None:
        self._file.close()
