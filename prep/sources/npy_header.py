"""The header of an .npy file: read without unpickling, and without believing a length in it.

Format: numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
"""

from __future__ import annotations

import io
import math
import struct
from typing import IO, NamedTuple
from zipfile import BadZipFile

import numpy as np

from tfshards.schemas import InputError

# NumPy's own limit: longer ones might crash Python's parser.
_MAX_HEADER_BYTES = 10_000
_LENGTH_FORMATS = {(1, 0): "<H", (2, 0): "<I", (3, 0): "<I"}


class Header(NamedTuple):
    """What the data behind a header are.

    Attributes:
        shape: with the number of examples first.
        fortran: whether the first axis varies fastest.
        dtype: of the elements; it may have fields.
    """

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[np.generic]

    @property
    def num_bytes(self) -> int:
        """The bytes that the data need, as a number without limit."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes], place: str, num_bytes: int) -> Header:
    """Return the header that ``file`` begins with; what follows it are the data.

    Args:
        file: of an .npy, at its start.
        place: names the array in messages.
        num_bytes: of the whole file; the header and what it declares must be exactly that.

    Raises:
        InputError: it is no header, declares more or less than there is, or is of objects or a single value.
        OSError, BadZipFile: the file cannot be read.
    """
    try:
        header = _parse(file)
    except (OSError, BadZipFile):
        raise
    except Exception as error:  # NumPy's parser, and zipfile's decompressors, raise almost anything
        raise InputError(f"{place}: is no .npy array that can be read: {error}") from None
    check_array(place, header.dtype, header.shape)
    found = num_bytes - file.tell()
    if found != header.num_bytes:
        declared = f"{header.dtype} {header.shape} needs {header.num_bytes}"
        raise InputError(f"{place}: holds {found} bytes of data; {declared}")
    return header


def check_array(place: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    """Raise InputError if an array of these holds Python objects, or has no axis of examples."""
    if not shape:
        raise InputError(f"{place}: is a single value; the first axis must count the examples")
    # only a file's header can say so
    if any(isinstance(dim, bool) or dim < 0 for dim in shape):
        raise InputError(f"{place}: the shape {shape} is none; every dimension must be 0 or more")
    if dtype.hasobject:
        raise InputError(
            f"{place}: holds Python objects, which are never unpickled; convert it to a plain dtype"
        )


def _parse(file: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(file)
    if version not in _LENGTH_FORMATS:
        raise ValueError(f"format version {version[0]}.{version[1]}; 1.0, 2.0 and 3.0 are read")
    length_format = _LENGTH_FORMATS[version]
    (length,) = struct.unpack(length_format, _exactly(file, struct.calcsize(length_format)))
    if length > _MAX_HEADER_BYTES:
        raise ValueError(f"the header has {length} bytes; at most {_MAX_HEADER_BYTES} are read")
    text = _exactly(file, length)
    if version == (3, 0):
        # the same in UTF-8; it is a Python literal, so that escapes mean the same
        text = text.decode("utf-8").encode("ascii", "backslashreplace")
    whole = io.BytesIO(struct.pack("<I", len(text)) + text)
    return Header(*np.lib.format.read_array_header_2_0(whole))


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = b""
    while len(data) < count:
        block = file.read(count - len(data))
        if not block:
            raise EOFError("EOF: the header is cut")
        data += block
    return data
