"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that no reader and no crash sees a part of it.

    Raises:
        OSError: the file cannot be written; what stood at ``path`` still does.
    """
    write_blocks_atomically(path, [data])


def write_blocks_atomically(path: Path, blocks: Iterable[bytes]) -> None:
    """Write ``blocks`` to ``path``, one behind the other, so that no reader and no crash sees a part of them.

    Raises:
        OSError: the file cannot be written; what stood at ``path`` still does, also if ``blocks`` fail.
    """
    # A name of its own for each call: threads, and hosts that share a disk, may write one path at a time.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with beside.open("xb") as file:
            for block in blocks:
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in the directory ``path`` last through a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
