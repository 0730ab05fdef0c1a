"""Locks of files and folders between processes; no other module knows how the operating system has them.

A lock ends with the process that holds it, or when its descriptor is closed. On Linux and macOS it is
``flock``, of files and folders. Windows locks ranges of files that are open for writing, and no folders.
"""

from __future__ import annotations

import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def lock(descriptor: int, *, is_shared: bool = False, waits: bool = False) -> bool:
    """Lock an open file or folder, and return whether this process has the lock now.

    Without locks in this operating system it returns True: what relies on them, such as two builds of one
    dataset at a time, is not protected. Several processes may hold a shared lock.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(
            descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB)
        )
    except BlockingIOError:
        return False
    return True


def is_locked(folder: object) -> bool:
    """Return whether a build holds the lock of a folder; object stores, and some disks, have no locks."""
    if not isinstance(folder, Path):
        return False
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        # A shared lock, which ends at once, since the holder of a lock cannot be queried.
        return not lock(descriptor, is_shared=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
