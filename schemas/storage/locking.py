"""Locks between processes; one ends with the process that holds it, or when its descriptor is closed."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tfshards.schemas.errors import InputError
from tfshards.schemas.storage.any_path import AnyPath, RemotePath

_WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)


def lock(descriptor: int, *, is_shared: bool = False, waits: bool = False) -> bool:
    """Lock an open file or folder, and return whether this process has the lock now.

    Several processes may hold a shared lock.
    """
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind if waits else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(folder: AnyPath) -> Iterator[str]:
    """Lock a folder against other processes that lock it, and yield what to tell the user about the lock.

    Object stores have no locks, nor have some file systems of NFS and Lustre.

    Raises:
        InputError: another process holds the lock, or the folder is gone.
    """
    if isinstance(folder, RemotePath):
        yield ""
        return
    busy = InputError(f"{folder}: another build is writing to it; wait for its end", code="build-running")
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        raise busy from None
    notice = ""
    try:
        try:
            # or the other one has just ended and removed the folder, which was empty
            if not lock(descriptor) or not os.path.samestat(os.stat(folder), os.fstat(descriptor)):
                raise busy
        except FileNotFoundError:
            raise busy from None
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise InputError(
                    f"{folder}: cannot be locked: {error.strerror}; choose a local folder"
                ) from None
            notice = f"{folder}: the file system has no locks; let no other build write there until the end"
        yield notice
    finally:
        os.close(descriptor)
