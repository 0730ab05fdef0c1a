"""Locks between processes; one ends with the process that holds it, or when its descriptor is closed.

File systems without locks, such as some of NFS and Lustre, get a file instead, which names host and process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tfshards.schemas.errors import InputError

LOCK_NAME = ".tfshards-lock"
_WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)


def lock(descriptor: int, *, waits: bool = False) -> bool:
    """Lock an open file or folder, and return whether this process has the lock now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(folder: Path) -> Iterator[str]:
    """Lock a folder; see ``Stored.locked``."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        raise _busy(folder) from None
    try:
        try:
            has_lock = lock(descriptor)
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise InputError(
                    f"{folder}: cannot be locked: {error.strerror}; choose a local folder"
                ) from None
            with _lock_file(folder) as path:
                yield f"{folder}: the file system has no locks; the file {path} stands in for one"
            return
        if not has_lock or not _is_still(folder, descriptor):
            # or the other one has just ended and removed the folder, which was empty
            raise _busy(folder)
        yield ""
    finally:
        os.close(descriptor)


def _busy(folder: Path) -> InputError:
    return InputError(f"{folder}: another build is writing to it; wait for its end", code="build-running")


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextmanager
def _lock_file(folder: Path) -> Iterator[Path]:
    """Hold a file that only one process can create; one that a dead process of this host left is replaced."""
    path, host = folder / LOCK_NAME, platform.node()
    for _ in range(2):
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            break
        except FileExistsError:
            holder = _holder(path)
            if holder[0] != host or _is_running(holder[1]):
                raise InputError(
                    f"{folder}: the file system has no locks, and {path} says that the process {holder[1]} "
                    f"of the host {holder[0]!r} is writing there; if it has ended, remove the file"
                ) from None
            path.unlink(missing_ok=True)
    else:
        raise _busy(folder)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{os.getpid()} {host}\n")
        yield path
    finally:
        with suppress(OSError):
            path.unlink()


def _holder(path: Path) -> tuple[str, int]:
    """Return the host and the process in a lock file; it may be empty, if that has just begun."""
    with suppress(OSError, ValueError):
        number, _, host = path.read_text().strip().partition(" ")
        return host, int(number)
    return "", 0


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return process > 0
