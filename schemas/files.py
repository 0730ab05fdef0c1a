"""Local files: their paths, locks, atomic writes, digests, and free disk space."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from tfshards.schemas.argument_types import check_path
from tfshards.schemas.digests import NUM_LAST_BYTES
from tfshards.schemas.errors import InputError, OptionsError
from tfshards.schemas.sizes import size

# Larger blocks no longer fit the caches of the cores, and are slower.
_BLOCK = 1 << 20
# A URL, of which pathlib keeps one slash; a single letter is a drive.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def local_path(path: str | bytes | os.PathLike[str]) -> Path:
    """Return ``path``, which names a local file or folder.

    Raises:
        OptionsError: it is a URL, whose scheme would become the name of a local folder.
    """
    check_path("path", path)
    text = os.fsdecode(path)
    url = _URL.match(text)
    if url:
        remedy = (
            f"give the path without {url[1]}://"
            if url[1].lower() == "file"
            else "copy the files to a local disk, or mount their storage, and give that path"
        )
        raise OptionsError(f"{text} is a URL, but only local paths are supported; {remedy}")
    return Path(text)


def is_locked(folder: Path) -> bool:
    """Return whether a build holds the lock of a folder, as far as its file system supports locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    # not on Windows, where a folder cannot be opened
    import fcntl

    try:
        # a shared lock, which ends at once, since the holder of a lock cannot be queried
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that neither a reader nor a crash leaves a partial file visible.

    Raises:
        OSError: the file cannot be written; an existing file at ``path`` is unchanged.
    """
    write_blocks_atomically(path, [data])


def write_blocks_atomically(path: Path, blocks: Iterable[bytes]) -> None:
    """Write ``blocks`` to ``path``, one after another, as ``write_atomically`` writes data.

    An existing file at ``path`` is also unchanged if iterating over ``blocks`` raises.

    Raises:
        OSError: the file cannot be written; an existing file at ``path`` is unchanged.
    """
    # a unique name, because threads, or hosts that share a disk, may write to one path at the same time
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            for block in blocks:
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Flush the directory ``path`` to disk, so that its entries survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_digest(path: Path, tick: Callable[[int], object] | None = None) -> str:
    """Return the digest of a file, in the form of the manifest.

    Args:
        path: the file.
        tick: called with the number of bytes of each block after it was read.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    block = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while num_bytes := file.readinto(block):
            digest.update(block[:num_bytes])
            if tick:
                tick(num_bytes)
    return f"sha256:{digest.hexdigest()}"


def regular_size(path: Path) -> int:
    """Return the size of a file.

    Raises:
        OSError: it is missing, or is a pipe, a device or a folder, which must not be read.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(None, "is not a regular file", str(path))
    return status.st_size


def last_bytes_of(path: Path) -> str:
    """Return the last bytes of a file in hex, as the manifest has them.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - NUM_LAST_BYTES))
        return file.read().hex()


def bytes_digest(data: bytes) -> str:
    """Return the digest of ``data``, as ``file_digest`` does for a file."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def system_fault(out: Path, error: OSError) -> str:
    """Return the message for an operating system error that ended a build into ``out``."""
    # when renaming fails, the target is the path that matters
    named = next((name for name in (error.filename2, error.filename) if isinstance(name, str)), out)
    why = error.strerror or error
    return f"{named}: {why}; once that is fixed, run the same command to resume"


def require_space(folder: Path, num_bytes: int, what: str) -> None:
    """Raise InputError if the file system of ``folder`` has fewer than ``num_bytes`` free."""
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise InputError(
            f"{folder}: {what} needs about {size(num_bytes)}, but only {size(free)} is free; "
            "free some space, or choose an output on another disk"
        )
