"""The image files that a table names: where they are, how large, and which ones it leaves out."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tfshards.prep.plan import IntArray
from tfshards.prep.sources.tree import images_in
from tfshards.schemas import InputError

_SHOWN = 3


def key_order(columns: dict[str, pa.ChunkedArray], images: Sequence[str]) -> pa.Array | None:
    """Return the rows in the order of the first image's paths, or None if they are no keys.

    They are none if there is no image, or if two rows have the same one: then the rows' numbers are.
    """
    if not images:
        return None
    paths: list[bytes] = columns[f"path/{images[0]}"].to_pylist()
    if len(set(paths)) < len(paths) or any(not path or b"\0" in path for path in paths):
        return None
    return pa.array(sorted(range(len(paths)), key=paths.__getitem__), pa.int64())


def stat_images(root: bytes, rows: pa.Table, images: Sequence[str], *, follow_links: bool) -> pa.Table:
    """Return the rows with ``size/NAME`` and ``stamp/NAME`` of each image; -1 for both where no file is.

    Raises:
        InputError: a path leads out of ``root``.
    """
    real: dict[bytes, bool] = {}
    for name in images:
        sizes, stamps = [], []
        for path in rows[f"path/{name}"].to_pylist():
            full = os.path.join(root, path)
            if not (follow_links or _is_inside(root, full, real)):
                raise InputError(
                    f"{os.fsdecode(path)!r} lies outside of {os.fsdecode(root)}; give the folder that holds "
                    "all images with --root, or allow it with --follow-links"
                )
            size, stamp = _stat(full)
            sizes.append(size)
            stamps.append(stamp)
        rows = rows.append_column(f"size/{name}", pa.array(sizes, pa.int64()))
        rows = rows.append_column(f"stamp/{name}", pa.array(stamps, pa.int64()))
    return rows


def combined(rows: pa.Table, images: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Return the bytes of all images of each row, and one number for their modification times.

    Both have shape ``(num_rows,)`` int64. The number is the time where there is one image, else a hash.
    """
    sizes = np.zeros(rows.num_rows, dtype=np.int64)
    stamps = np.zeros(rows.num_rows, dtype=np.int64)
    for index, name in enumerate(images):
        size, stamp = rows[f"size/{name}"].to_numpy(), rows[f"stamp/{name}"].to_numpy()
        sizes += np.maximum(size, 0)
        if index == 0:
            stamps = stamp.copy()
        else:
            # both are told apart by it, and so are sizes that only their sum would hold
            together = np.stack([stamps, size, stamp], axis=1)
            stamps = np.array([_hash(three.tobytes()) for three in together], dtype=np.int64)
    return sizes, stamps


def unmentioned(root: bytes, rows: pa.Table, images: Sequence[str], *, follow_links: bool) -> list[str]:
    """Return a line if image files below ``root`` are in no row."""
    named = {os.path.normpath(path) for name in images for path in rows[f"path/{name}"].to_pylist()}
    found = {file.key for file in images_in(root, Counter(), follow_links=follow_links)}
    left = sorted(found - named)
    if not left:
        return []
    shown = ", ".join(repr(os.fsdecode(key)) for key in left[:_SHOWN])
    return [f"{len(left)} image files below {os.fsdecode(root)} are in no row of the table, such as {shown}"]


def _is_inside(root: bytes, full: bytes, real: dict[bytes, bool]) -> bool:
    """Whether a file lies in ``root``, links followed; ``real`` remembers folders."""
    folder, name = os.path.split(os.path.normpath(full))
    if folder not in real:
        real[folder] = os.path.join(os.path.realpath(folder), b"").startswith(os.path.join(root, b""))
    if name in (b"", b"..") or not real[folder]:
        return False
    whole = os.path.join(folder, name)
    return not os.path.islink(whole) or os.path.realpath(whole).startswith(os.path.join(root, b""))


def _stat(path: bytes) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return -1, -1
    except OSError as error:
        raise InputError(f"{os.fsdecode(path)}: cannot be read: {error.strerror}") from None
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else (-1, -1)


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1
