"""Arrays in .npy files that workers map into memory: headers, and rows of one file or of several splits."""

from __future__ import annotations

import io
import math
import os
import struct
import threading
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.prep.sources.fetching import changed, unreadable
from tfshards.schemas import InputError
from tfshards.schemas.errors import listed
from tfshards.schemas.index import IntArray

# NumPy's default limit: longer headers might crash Python's parser.
_MAGIC = b"\x93NUMPY"
_MAX_HEADER_BYTES = 10_000
_MAX_PREFIX_BYTES = 12
# NumPy parses headers as Python literals. In Python 3.11 that fails at times with a SystemError if several
# threads do it: https://github.com/python/cpython/issues/106905
PARSING = threading.Lock()
# names of fields in a message
_SHOWN = 5


class NpyHeader(NamedTuple):
    """Header of an .npy file: offset of the first element, and whether the first axis varies fastest."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[np.generic]
    offset: int

    @property
    def num_bytes(self) -> int:
        """Size of the file that the header declares, which may exceed any integer type."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes], where: str, num_bytes: int) -> NpyHeader:
    """Return the header of an .npy file, which is at its start, or raise InputError if it is not sound."""
    # bounded, even if the file declares a longer header
    start = file.read(_MAX_PREFIX_BYTES + _MAX_HEADER_BYTES)
    if not start.startswith(_MAGIC):
        raise InputError("npy-invalid", where=where)
    try:
        header = _parse(start)
    except Exception as error:  # NumPy's parser raises almost anything
        raise InputError("npy-unreadable", where=where, error=error) from None
    check_array(where, header.dtype, header.shape)
    if num_bytes != header.num_bytes:
        needed = f"{header.dtype} {header.shape} needs {header.num_bytes - header.offset}"
        raise InputError("npy-size", where=where, num_bytes=num_bytes - header.offset, needed=needed)
    return header


def check_array(where: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    """Raise InputError for an array of Python objects, with fields, or without an axis of examples."""
    if not shape:
        raise InputError("npy-single", where=where)
    # only the header of a file can declare these
    if any(isinstance(dim, bool) or dim < 0 for dim in shape):
        raise InputError("npy-shape", where=where, shape=shape)
    if dtype.hasobject:
        raise InputError("npy-objects", where=where)
    if dtype.names is not None:
        raise InputError("array-structured", where=where, names=listed(dtype.names, _SHOWN))


def _parse(start: bytes) -> NpyHeader:
    file = io.BytesIO(start)
    version, offset = np.lib.format.read_magic(file), 0
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"format version {version[0]}.{version[1]}; 1.0, 2.0 and 3.0 can be read")
    if version == (3, 0):
        # version 2.0 in UTF-8, for which NumPy has no public function; the header is a Python literal, in
        # which escaped characters mean the same
        (length,) = struct.unpack("<I", file.read(4))
        text = file.read(length).decode("utf-8").encode("ascii", "backslashreplace")
        offset, file = file.tell(), io.BytesIO(struct.pack("<I", len(text)) + text)
    parse = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with PARSING:
        shape, fortran, dtype = parse(file, _MAX_HEADER_BYTES)
    return NpyHeader(shape, fortran, dtype, offset or file.tell())


AnyArray: TypeAlias = npt.NDArray[np.generic]
_BFLOAT16 = "bfloat16"


class Layout(NamedTuple):
    """The dtype and the shape of an array: NumPy's string, or ``bfloat16``, which NumPy cannot read back."""

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Layout:
        """Return the layout of an array in memory."""
        return cls(_BFLOAT16 if dtype.name == _BFLOAT16 else dtype.str, shape)

    @property
    def name(self) -> str:
        """The name of the dtype, without the byte order."""
        return _BFLOAT16 if self.is_bfloat16 else self.stored.newbyteorder("=").name

    @property
    def kind(self) -> str:
        """NumPy's letter for the kind of the dtype."""
        return "V" if self.is_bfloat16 else self.stored.kind

    @property
    def is_bfloat16(self) -> bool:
        """Whether the values are of bfloat16."""
        return self.dtype == _BFLOAT16

    @property
    def is_text(self) -> bool:
        """Whether the values are byte strings or text."""
        return self.kind in "SU"

    @property
    def stored(self) -> np.dtype[np.generic]:
        """The dtype of the values in a file: uint16 for bfloat16."""
        return np.dtype("<u2" if self.is_bfloat16 else self.dtype)

    @property
    def row_bytes(self) -> int:
        """Number of bytes of one row."""
        return math.prod(self.shape[1:]) * self.stored.itemsize


@dataclass(frozen=True)
class MappedFile:
    """An array in one .npy file.

    Attributes:
        path: the file; empty if only the header was read.
        summary: values that identify the layout, and the content of a copy.
        identity: size and time of the user's own file or object; empty for a copy of what does not change.
        is_copy: whether the file is a copy of an object.
    """

    path: str
    layout: Layout
    summary: tuple[object, ...]
    identity: str = ""
    is_copy: bool = False

    @classmethod
    def of(
        cls, path: str, header: NpyHeader, content: str, *, identity: str = "", is_copy: bool = False
    ) -> MappedFile:
        """Return the array in an .npy file.

        ``content`` identifies the content of a copy, or ``identity`` that of the user's own file or object.
        """
        layout = Layout(header.dtype.str, header.shape)
        return cls(path, layout, (*layout, header.fortran, content), identity, is_copy)

    def take(self, numbers: IntArray) -> AnyArray:
        """Return a copy of these rows, see ``MappedArray``."""
        self.check_unchanged()
        if not math.prod(self.layout.shape) * self.layout.stored.itemsize:
            return np.zeros((len(numbers), *self.layout.shape[1:]), self.layout.stored)
        rows: AnyArray = np.asarray(map_file(self.path)[numbers])
        self.check_unchanged()
        return rows

    def check_unchanged(self) -> None:
        """Raise InputError if the file is missing, or has changed since it was listed."""
        if not self.identity or self.is_copy:
            return
        try:
            found = file_identity(os.stat(self.path))
        except OSError as error:
            raise unreadable(self.path, error) from None
        if found != self.identity:
            raise changed(Path(self.path))


@dataclass(frozen=True)
class MappedArray:
    """The arrays of all splits, concatenated along axis 0; byte orders and lengths of strings may differ."""

    parts: tuple[MappedFile, ...]

    @cached_property
    def layout(self) -> Layout:
        """Layout of the concatenated array, with a dtype that holds the values of every part."""
        layouts = [part.layout for part in self.parts]
        first = layouts[0]
        if len(layouts) == 1:
            return first
        widest = max(layouts, key=lambda layout: layout.stored.itemsize)
        native = widest.dtype if widest.is_bfloat16 else widest.stored.newbyteorder("=").str
        return Layout(native, (sum(layout.shape[0] for layout in layouts), *first.shape[1:]))

    @property
    def num_rows(self) -> int:
        """The number of examples, which may exceed any integer type."""
        return self.layout.shape[0]

    def take(self, numbers: IntArray) -> AnyArray:
        """Return a copy of these rows; bfloat16 values are returned as uint16."""
        if len(self.parts) == 1:
            return self.parts[0].take(numbers)
        ends = np.cumsum([part.layout.shape[0] for part in self.parts])
        indexes = np.searchsorted(ends, numbers, side="right")
        rows: AnyArray = np.empty((len(numbers), *self.layout.shape[1:]), self.layout.stored)
        for index in np.unique(indexes).tolist():
            part, chosen = self.parts[index], indexes == index
            rows[chosen] = part.take(numbers[chosen] - (ends[index] - part.layout.shape[0]))
        return rows

    def whole(self) -> AnyArray:
        """Return a copy of all rows. Use it only for scalars, since other arrays may not fit into memory."""
        return self.take(np.arange(self.num_rows, dtype=np.int64))

    def check_unchanged(self) -> None:
        """Raise InputError if a file is missing, or has changed since it was listed."""
        for part in self.parts:
            part.check_unchanged()

    @property
    def identity(self) -> str:
        """Sizes and modification times of the user's own files; empty for copies."""
        return ", ".join(filter(None, (part.identity for part in self.parts)))

    @property
    def summary(self) -> tuple[object, ...]:
        """Values that identify the layout, and the content of copies."""
        summaries = tuple(part.summary for part in self.parts)
        return summaries[0] if len(summaries) == 1 else summaries


def map_file(path: str) -> AnyArray:
    """Return the array in an .npy file, mapped read-only."""
    try:
        with PARSING:
            array: AnyArray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, OverflowError) as error:
        # for example because the file was truncated after its header was checked
        raise InputError("array-unmappable", path=path, error=error) from None
    return array


def file_identity(status: os.stat_result) -> str:
    """Return a text that changes with the file."""
    return f"{status.st_size} bytes at {status.st_mtime_ns}"
