"""Files: locks, atomic writes, digests and free space; what only disks have is not done for object stores."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from tfshards.schemas.digests import NUM_LAST_BYTES
from tfshards.schemas.errors import InputError, OptionsError
from tfshards.schemas.option import check_path
from tfshards.schemas.storage import AnyPath, check_expanded, is_remote, without_user, write_new
from tfshards.schemas.storage.untrusted import open_regular, size_of

# Larger blocks no longer fit the caches of the cores, and are slower.
_BLOCK = 1 << 20


def local_path(path: str | bytes | os.PathLike[str]) -> Path:
    """Return ``path``, or raise OptionsError if it is a URL, whose scheme would name a local folder."""
    check_path("path", path)
    text = os.fsdecode(path)
    if is_remote(path):
        raise OptionsError("url-not-supported", text=without_user(text))
    check_expanded(text)
    return Path(text)


def file_sizes(root: AnyPath, names: Collection[str]) -> dict[str, int | OSError]:
    """Return the size of each file, or why it cannot be read; objects are listed, not asked for.

    ``names`` are paths relative to ``root``, at most one folder deep.
    """
    if isinstance(root, Path):
        return {name: _size(root / name) for name in names}
    folders = {name.rpartition("/")[0] for name in names}
    try:
        sizes = {
            f"{folder}/{path.name}" if folder else path.name: status.st_size
            for folder in folders
            for path, status in (root / folder).files()
        }
    except OSError as error:
        return dict.fromkeys(names, error)
    missing = FileNotFoundError(errno.ENOENT, "there is no such object")
    return {name: sizes.get(name, missing) for name in names}


def _size(path: Path) -> int | OSError:
    try:
        return path.stat().st_size
    except OSError as error:
        return error


def write_atomically(path: AnyPath, data: bytes) -> None:
    """Write a file so that neither a reader nor a crash sees a part of it; if it fails, the old one stays."""
    write_blocks_atomically(path, [data])


def write_blocks_atomically(path: AnyPath, blocks: Iterable[bytes]) -> None:
    """Write blocks as ``write_atomically`` does; if iterating over them raises, the old file stays, too."""
    if not isinstance(path, Path):
        # An upload becomes an object as a whole.
        write_new(path, blocks)
        return
    # a unique name, because threads, or hosts that share a disk, may write to one path at the same time
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        write_durably(temporary, blocks)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_durably(path: Path, blocks: Iterable[bytes]) -> None:
    """Write a new file, and flush it to disk."""
    with path.open("xb") as file:
        file.writelines(blocks)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: AnyPath) -> None:
    """Flush the directory ``path`` to disk, so that its entries survive a power failure."""
    # Windows cannot open a directory, and has no such call.
    if isinstance(path, Path) and os.name != "nt":
        sync_file(path)


def sync_file(path: Path) -> None:
    """Flush a file to disk that was written by other means."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_digest(path: AnyPath, tick: Callable[[int], object] | None = None) -> str:
    """Return the digest of a file, in the form of the manifest; see ``read_once``."""
    return read_once(path, tick)[1]


def read_once(path: AnyPath, tick: Callable[[int], object] | None = None) -> tuple[int, str, str]:
    """Return the size of a file, its digest in the form of the manifest, and its last bytes in hex.

    ``tick`` is called with the number of bytes of each block after it was read.
    """
    digest = hashlib.sha256()
    block = memoryview(bytearray(_BLOCK))
    size, last = 0, b""
    with open_regular(path, buffering=0) as file:
        while num_bytes := file.readinto(block):  # type: ignore[attr-defined]
            digest.update(block[:num_bytes])
            size += num_bytes
            last = (last + block[:num_bytes][-NUM_LAST_BYTES:])[-NUM_LAST_BYTES:]
            if tick:
                tick(num_bytes)
    return size, f"sha256:{digest.hexdigest()}", last.hex()


def size_and_last_bytes(path: AnyPath) -> tuple[int, str]:
    """Return the size of a file, and its last bytes in hex, as the manifest has them."""
    with open_regular(path, buffering=0) as file:
        num_bytes = size_of(file)
        file.seek(max(0, num_bytes - NUM_LAST_BYTES))
        return num_bytes, file.read(NUM_LAST_BYTES).hex()


def bytes_digest(data: bytes) -> str:
    """Return the digest of ``data``, as ``file_digest`` does for a file."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def system_fault(out: AnyPath, error: OSError) -> str:
    """Return the message for an operating system error that ended a build into ``out``."""
    # when renaming fails, the target is the path that matters
    named = next((name for name in (error.filename2, error.filename) if isinstance(name, str)), out)
    why = error.strerror or error
    return f"{named}: {why}; once that is fixed, run the same command to resume"


def require_space(folder: AnyPath, num_bytes: int, what: str) -> None:
    """Raise InputError if the file system of ``folder`` has fewer than ``num_bytes`` free."""
    if not isinstance(folder, Path):
        return
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise InputError("disk-full", folder=folder, what=what, num_bytes=num_bytes, free=free)
