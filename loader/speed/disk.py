"""How fast files are read from the disk, without the page cache."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tfshards.schemas.storage.untrusted import open_regular

_CHUNK_BYTES = 1 << 20
# as many as the streams that the loader reads at the same time
_NUM_THREADS = 2


def cold_bytes_per_second(files: Sequence[tuple[Path, int]], seconds: float) -> float | None:
    """Return the bytes per second of reading the beginnings of files that are not in the page cache.

    Their pages are taken out of the cache first, and are in it afterwards.

    Args:
        files: paths, and how many bytes of each to read.
        seconds: time after which the rest of the bytes is read without counting.

    Returns:
        The speed; None where the system cannot take pages out of the cache.
    """
    if not hasattr(os, "posix_fadvise"):
        return None
    for path, _ in files:
        with open_regular(path) as file:
            # pages that are not on the disk yet stay
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    chunks = [
        (path, offset, min(_CHUNK_BYTES, num_bytes - offset))
        for path, num_bytes in files
        for offset in range(0, num_bytes, _CHUNK_BYTES)
    ]
    began = time.perf_counter()

    def read(chunk: tuple[Path, int, int]) -> tuple[int, float]:
        path, offset, num_bytes = chunk
        with open_regular(path, buffering=0) as file:
            file.seek(offset)
            return len(file.read(num_bytes)), time.perf_counter() - began

    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        done = list(pool.map(read, chunks))
    counted = [each for each in done if each[1] <= seconds] or done
    return sum(num_bytes for num_bytes, _ in counted) / max(each[1] for each in counted)
