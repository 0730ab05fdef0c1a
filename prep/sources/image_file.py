"""One image file: read as it was listed, and brought into the form in which it is stored."""

from __future__ import annotations

import os

from tfshards.prep.image_options import ImageOptions
from tfshards.prep.images import Normalised, normalise
from tfshards.prep.sources.listing import Rejected, Row
from tfshards.prep.whitelist import ImageError
from tfshards.schemas import InputError


def read_image(path: bytes, row: Row, options: ImageOptions) -> Normalised | Rejected:
    """Return the image in a file, or why it is rejected.

    Raises:
        InputError: the file cannot be read, is gone, or is not what was listed.
    """
    if row.size > options.max_bytes:
        return Rejected("too large", f"{row.size} bytes; at most {options.max_bytes}")
    data = read_unchanged(path, row)
    try:
        return normalise(data, options, os.path.splitext(path)[1].lower())
    except ImageError as fault:
        return Rejected(fault.reason, fault.detail)


def read_unchanged(path: bytes, row: Row) -> bytes:
    """Return the file's bytes.

    Raises:
        InputError: it cannot be read, or its size or modification time is not the one in ``row``.
    """
    try:
        # os.open, not open: a third of the system calls, and small files are all there is to this
        # and without waiting, should the file have become a pipe
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = _read_all(descriptor, row.size)
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InputError(f"{os.fsdecode(path)}: cannot be read: {error.strerror}") from None
    if (status.st_size, status.st_mtime_ns, len(data)) != (row.size, row.stamp, row.size):
        raise InputError(f"{os.fsdecode(path)}: changed after the build had listed it; run the command again")
    return data


def _read_all(descriptor: int, size: int) -> bytes:
    """Return ``size`` bytes, or fewer if the file ends before."""
    data = os.read(descriptor, size)
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data
