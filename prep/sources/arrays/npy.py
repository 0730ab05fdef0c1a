"""Read the header of an .npy file with NumPy, and compare it with the size of the file."""

from __future__ import annotations

import io
import math
import struct
import threading
from typing import IO, NamedTuple

import numpy as np

from tfshards.schemas import InputError

# NumPy's default limit: longer headers might crash Python's parser.
_MAGIC = b"\x93NUMPY"
_MAX_HEADER_BYTES = 10_000
_MAX_PREFIX_BYTES = 12
# NumPy parses headers as Python literals. In Python 3.11 that fails at times with a SystemError if several
# threads do it: https://github.com/python/cpython/issues/106905
PARSING = threading.Lock()
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class Header(NamedTuple):
    """Header of an .npy file.

    Attributes:
        shape: shape of the array, with the number of examples first.
        fortran: whether the first axis varies fastest.
        dtype: dtype of the elements; it may have fields.
        offset: offset of the first element in the file.
    """

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[np.generic]
    offset: int

    @property
    def num_bytes(self) -> int:
        """Size of the file that the header declares, which may exceed any integer type."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes], where: str, num_bytes: int) -> Header:
    """Return the header of an .npy file.

    Args:
        file: the file, at its start; some bytes after the header are read too.
        where: name of the array, for messages.
        num_bytes: size of the file, which must be the size that the header declares.

    Raises:
        InputError: the header is damaged or declares another size, or the array holds Python objects or is a
            single value.
        OSError, BadZipFile: the file cannot be read.
    """
    # bounded, even if the file declares a longer header
    start = file.read(_MAX_PREFIX_BYTES + _MAX_HEADER_BYTES)
    if not start.startswith(_MAGIC):
        raise InputError("npy-invalid", where=where)
    try:
        header = _parse(io.BytesIO(start))
    except Exception as error:  # NumPy's parser raises almost anything
        raise InputError("npy-unreadable", where=where, error=error) from None
    check_array(where, header.dtype, header.shape)
    if num_bytes != header.num_bytes:
        needed = f"{header.dtype} {header.shape} needs {header.num_bytes - header.offset}"
        raise InputError("npy-size", where=where, num_bytes=num_bytes - header.offset, needed=needed)
    return header


def check_array(where: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    """Raise InputError for an array of Python objects, or without an axis of examples."""
    if not shape:
        raise InputError("npy-single", where=where)
    # only the header of a file can declare these
    if any(isinstance(dim, bool) or dim < 0 for dim in shape):
        raise InputError("npy-shape", where=where, shape=shape)
    if dtype.hasobject:
        raise InputError("npy-objects", where=where)


def _parse(file: io.BytesIO) -> Header:
    version = np.lib.format.read_magic(file)
    if version == (3, 0):
        return _parse_utf8(file)
    if version not in _READERS:
        raise ValueError(f"format version {version[0]}.{version[1]}; 1.0, 2.0 and 3.0 can be read")
    with PARSING:
        shape, fortran, dtype = _READERS[version](file, _MAX_HEADER_BYTES)
    return Header(shape, fortran, dtype, file.tell())


def _parse_utf8(file: io.BytesIO) -> Header:
    """Parse a header of version 3.0: version 2.0 in UTF-8, for which NumPy has no public function."""
    (length,) = struct.unpack("<I", file.read(4))
    # the header is a Python literal, in which escaped characters mean the same
    text = file.read(length).decode("utf-8").encode("ascii", "backslashreplace")
    ascii_header = io.BytesIO(struct.pack("<I", len(text)) + text)
    with PARSING:
        return Header(*np.lib.format.read_array_header_2_0(ascii_header, _MAX_HEADER_BYTES), file.tell())
