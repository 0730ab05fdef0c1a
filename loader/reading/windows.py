"""``Windows``: what the order needs next, fetched from a bucket, as files that TensorFlow reads."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections import defaultdict, deque
from typing import IO

import numpy as np

from tfshards.loader.reading.cache import FirstRecords
from tfshards.loader.reading.frames import Frames, Place
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
        """Prepare to fetch what is in a bucket; with a cache, all that it lacks."""
        self._frames, self._cache = frames, cache
        # the files of what is not fetched
        self.near: Frames = frames if cache is None else cache.frames
        self._open: dict[int, deque[_MemoryFile]] = defaultdict(lambda: deque(maxlen=2))
        self._lock = threading.Lock()

    def fetch(self, reader: int, numbers: Ints) -> tuple[str, Ints]:
        """Return a file with the records of a chunk that are not in ``near``, and where in it each begins.

        Args:
            reader: who reads it.
            numbers: the examples, int64; ``UNREADABLE`` is put in the place of those that cannot be fetched.

        Returns:
            The path, and an int64 vector of offsets, -1 for what is not in the file.
        """
        flat = numbers.reshape(-1)
        rows = np.flatnonzero(flat >= 0)
        place = self._frames.places(flat[rows])
        is_far = self._frames.is_far[place.shards] if self._cache is None else ~self._cache.has(flat[rows])
        rows, place = rows[is_far], Place(*(each[is_far] for each in place))
        window, starts = self._fetched(place)
        is_read = starts >= 0
        if self._cache is not None:
            kept = Place(*(each[is_read] for each in place))
            self._cache.keep(flat[rows[is_read]], kept, window.data, starts[is_read])
        flat[rows[~is_read]] = UNREADABLE
        with self._lock:
            self._open[reader].append(window)
        where = np.full(len(flat), -1, np.int64)
        where[rows] = starts
        return window.path, where

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
