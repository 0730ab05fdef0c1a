"""Arrays in .npy files that workers map into memory: headers, and rows in one file or in parts."""

from __future__ import annotations

import io
import math
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from tfshards.schemas import InputError
from tfshards.schemas.index import IntArray

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


class NpyHeader(NamedTuple):
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


def read_header(file: IO[bytes], where: str, num_bytes: int) -> NpyHeader:
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


def _parse(file: io.BytesIO) -> NpyHeader:
    version = np.lib.format.read_magic(file)
    if version == (3, 0):
        return _parse_utf8(file)
    if version not in _READERS:
        raise ValueError(f"format version {version[0]}.{version[1]}; 1.0, 2.0 and 3.0 can be read")
    with PARSING:
        shape, fortran, dtype = _READERS[version](file, _MAX_HEADER_BYTES)
    return NpyHeader(shape, fortran, dtype, file.tell())


def _parse_utf8(file: io.BytesIO) -> NpyHeader:
    """Parse a header of version 3.0: version 2.0 in UTF-8, for which NumPy has no public function."""
    (length,) = struct.unpack("<I", file.read(4))
    # the header is a Python literal, in which escaped characters mean the same
    text = file.read(length).decode("utf-8").encode("ascii", "backslashreplace")
    ascii_header = io.BytesIO(struct.pack("<I", len(text)) + text)
    with PARSING:
        return NpyHeader(*np.lib.format.read_array_header_2_0(ascii_header, _MAX_HEADER_BYTES), file.tell())


AnyArray: TypeAlias = npt.NDArray[np.generic]


class ArrayLayout(Protocol):
    """What the feature of an array depends on.

    Attributes:
        dtype: NumPy's string for the dtype, with the byte order, or ``bfloat16``.
        shape: shape with the number of examples first.
    """

    @property
    def dtype(self) -> str:
        """See the class."""

    @property
    def shape(self) -> tuple[int, ...]:
        """See the class."""


class MappedArray(ArrayLayout, Protocol):
    """One feature of every example, laid out as in the class above."""

    def take(self, numbers: IntArray) -> AnyArray:
        """Return a copy of these rows; bfloat16 values are returned as uint16.

        Raises:
            InputError: a file is missing, or has changed since it was listed.
        """

    def check_unchanged(self) -> None:
        """Raise InputError if a file is missing, or has changed since it was listed."""

    @property
    def identity(self) -> str:
        """Size and modification time of the user's own files; empty for copies."""

    def summary(self) -> tuple[object, ...]:
        """Return values that identify the layout, and the content of copies."""


@dataclass(frozen=True)
class MappedFile:
    """An array in one .npy file, or a field of a structured array.

    Attributes:
        path: the file; empty if only the header was read.
        dtype: see ``MappedArray``; a dtype without fields.
        shape: see ``MappedArray``.
        layout: values that identify the layout, and the content of a copy.
        fields: names of the field, from the outermost to the innermost; empty for the whole array.
        identity: size and modification time of the user's own file, which may change; empty for a copy of
            what does not.
        is_copy: whether the file is a copy of an object with this identity.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    layout: tuple[object, ...]
    fields: tuple[str, ...] = ()
    identity: str = ""
    is_copy: bool = False

    def open(self) -> AnyArray:
        """Return the array, mapped read-only; bfloat16 values are returned as uint16.

        Raises:
            InputError: the file is missing, or has changed since it was listed.
        """
        self.check_unchanged()
        dtype = np.dtype("<u2" if self.dtype == "bfloat16" else self.dtype)
        if not math.prod(self.shape) * dtype.itemsize:
            return np.zeros(self.shape, dtype)
        array = map_file(self.path)
        for name in self.fields:
            array = cast("npt.NDArray[np.void]", array)[name]
        return array

    def take(self, numbers: IntArray) -> AnyArray:
        """Return a copy of these rows, see ``MappedArray``."""
        rows: AnyArray = np.asarray(self.open()[numbers])
        self.check_unchanged()
        return rows

    def check_unchanged(self) -> None:
        """Raise InputError if the file is missing, or has changed since it was listed."""
        try:
            if not self.identity or self.is_copy or file_identity(os.stat(self.path)) == self.identity:
                return
        except OSError as error:
            raise InputError("unreadable", path=self.path, why=error.strerror) from None
        raise InputError("changed-file", path=self.path)

    def summary(self) -> tuple[object, ...]:
        """Return values that identify the layout, and the content of copies."""
        return self.layout


@dataclass(frozen=True)
class MappedParts:
    """Several arrays concatenated along axis 0; rows are read from the part that holds them.

    Attributes:
        parts: arrays with the same shape after the first axis, and the same dtype except for the byte order
            and the length of strings.
    """

    parts: tuple[MappedFile, ...]

    @property
    def dtype(self) -> str:
        """Dtype that holds the values of every part, in native byte order."""
        widest = max((np.dtype(part.dtype) for part in self.parts), key=lambda dtype: dtype.itemsize)
        native: str = widest.newbyteorder("=").str
        return native

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the concatenated array, with the number of examples first."""
        return (sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:])

    def take(self, numbers: IntArray) -> AnyArray:
        """Return a copy of these rows, see ``MappedArray``."""
        ends = np.cumsum([part.shape[0] for part in self.parts])
        indexes = np.searchsorted(ends, numbers, side="right")
        rows: AnyArray = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        for index in np.unique(indexes).tolist():
            part, chosen = self.parts[index], indexes == index
            rows[chosen] = part.take(numbers[chosen] - (ends[index] - part.shape[0]))
        return rows

    def check_unchanged(self) -> None:
        """Raise InputError if a file is missing, or has changed since it was listed."""
        for part in self.parts:
            part.check_unchanged()

    @property
    def identity(self) -> str:
        """Sizes and modification times of the user's own files."""
        return ", ".join(filter(None, (part.identity for part in self.parts)))

    def summary(self) -> tuple[object, ...]:
        """Return values that identify the layout, and the content of copies."""
        return tuple(part.summary() for part in self.parts)


def map_file(path: str) -> AnyArray:
    """Return the array in an .npy file, mapped read-only.

    Raises:
        InputError: the file cannot be mapped.
    """
    try:
        with PARSING:
            array: AnyArray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, OverflowError) as error:
        # for example because the file was truncated after its header was checked
        raise InputError("array-unmappable", path=path, error=error) from None
    return array


def mapped_fields(
    path: str, header: NpyHeader, content: str, *, identity: str = "", is_copy: bool = False
) -> dict[tuple[str, ...], MappedFile]:
    """Return the array in an .npy file with the name ``()``, or the fields of a structured array by name.

    Args:
        path: the file.
        header: its header.
        content: text that identifies the content; empty for the user's own file.
        identity: identity of the file if it is the user's own file, or an exact copy of it.
        is_copy: whether it is an exact copy.
    """
    if header.dtype.names is None:
        layout = (header.dtype.str, header.shape, header.fortran, content)
        return {(): MappedFile(path, header.dtype.str, header.shape, layout, (), identity, is_copy)}
    whole = map_file(path)
    # offsets in a copy are relative to the start of its data, whose position may differ between copies
    start = _address(whole) - (header.offset if identity else 0)
    return {
        names: MappedFile(
            path,
            field.dtype.str,
            field.shape,
            (field.dtype.str, field.shape, False, content, _address(field) - start, field.strides),
            names,
            identity,
            is_copy,
        )
        for names, field in fields_within(whole)
    }


def fields_within(array: AnyArray, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], AnyArray]]:
    """Yield the innermost fields of a structured array, as views with their names; or any other array."""
    if array.dtype.names is None:
        yield names, array
    else:
        for name in array.dtype.names:
            field = cast("npt.NDArray[np.void]", array)[name]
            yield from fields_within(field, (*names, name))


def _address(array: AnyArray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def whole(array: MappedArray) -> AnyArray:
    """Return a copy of all rows. Use it only for scalars, since other arrays may not fit into memory."""
    return array.take(np.arange(array.shape[0], dtype=np.int64))


def file_identity(status: os.stat_result) -> str:
    """Return a text that changes with the file."""
    return f"{status.st_size} bytes at {status.st_mtime_ns}"


def join_parts(name: str, parts: Sequence[tuple[str, MappedFile]]) -> MappedArray:
    """Return several arrays as one, concatenated along axis 0.

    Args:
        name: name of the feature, for messages.
        parts: one or more arrays, each with the name of its file.

    Raises:
        InputError: the parts differ in dtype, or in shape after the first axis.
    """
    (first_path, first), *others = parts
    if not others:
        return first
    for path, part in others:
        if _item(part) != _item(first):
            found, wanted = (f"{np.dtype(each.dtype)} {each.shape[1:]}" for each in (part, first))
            raise InputError(
                "parts-shape", path=path, name=name, found=found, first_path=first_path, wanted=wanted
            )
    return MappedParts(tuple(part for _, part in parts))


def _item(array: MappedFile) -> tuple[object, ...]:
    dtype = np.dtype(array.dtype)
    kind = dtype.kind if dtype.kind in "SU" else dtype.newbyteorder("=")
    return kind, array.shape[1:]
