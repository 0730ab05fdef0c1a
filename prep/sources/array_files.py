"""Arrays as files that workers can map into memory: found where they are, or copied out of memory and .npz.

No file is unpickled, and no length in a header is believed beyond what the file holds.
"""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.prep.plan import IntArray
from tfshards.schemas import InputError

AnyArray: TypeAlias = npt.NDArray[np.generic]
Chunk: TypeAlias = Mapping[str, AnyArray]
# What a column can be given as: an array, an .npy file, or one member of an .npz file.
ColumnSource: TypeAlias = "AnyArray | str | os.PathLike[str] | Member"

_COPY_BYTES = 1 << 22


@dataclass(frozen=True)
class Member:
    """One array in an .npz file."""

    archive: str
    name: str


@dataclass(frozen=True)
class Column:
    """One array in a file, laid out as ``numpy.memmap`` takes it.

    Attributes:
        path: the file; empty if only the header was looked at.
        offset: bytes before the first element.
        dtype: NumPy's string for it, with the byte order, or ``bfloat16``.
        shape: with the number of examples first.
        fortran: whether the first axis varies fastest.
        identity: says what the content is: size and modification time, or a digest.
        is_original: whether the file is the user's own rather than a copy, so that it might change.
    """

    path: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    fortran: bool
    identity: str
    is_original: bool = False

    def open(self) -> AnyArray:
        """Return the array, mapped read-only; one of bfloat16 as uint16."""
        dtype = np.dtype("<u2" if self.dtype == "bfloat16" else self.dtype)
        if not math.prod(self.shape) * dtype.itemsize:
            return np.zeros(self.shape, dtype)
        return np.memmap(self.path, dtype, "r", self.offset, self.shape, "F" if self.fortran else "C")

    def take(self, numbers: IntArray) -> AnyArray:
        """Return a copy of these rows.

        Raises:
            InputError: the file is gone, or is not the one that was listed.
        """
        self._check_unchanged()
        rows: AnyArray = self.open()[numbers]
        self._check_unchanged()
        return rows

    def _check_unchanged(self) -> None:
        try:
            if not self.is_original or _identity(os.stat(self.path)) == self.identity:
                return
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror}") from None
        raise InputError(f"{self.path}: changed after the build had listed it; run the command again")


def stage_column(name: str, source: ColumnSource, folder: Path, *, preview: bool) -> Column:
    """Return the column, copied into ``folder`` if it is in no file of its own.

    Args:
        name: the feature's name, for messages.
        source: where the array is.
        folder: exists and is empty at first.
        preview: copy scalars only; of other arrays look at the header.

    Raises:
        InputError: the array cannot be read, holds Python objects, has no axis, or is cut or padded.
    """
    if isinstance(source, Member):
        return _stage_member(name, source, folder, preview=preview)
    if isinstance(source, (str, os.PathLike)):
        return _npy_column(Path(source))
    array = np.asarray(source)
    _check(f"array {name!r}", array.dtype, array.shape)
    if preview and array.ndim > 1:
        return Column("", 0, _dtype_name(array.dtype), array.shape, False, "")
    return next(iter(stage_chunks([{name: array}], folder).values()))


def stage_chunks(chunks: Iterable[Chunk], folder: Path) -> dict[str, Column]:
    """Write the concatenation of the chunks into ``folder``, one file a name, and return the columns.

    Raises:
        InputError: there is no chunk, or chunks differ in names, dtype, or shape behind the first axis.
    """
    columns: dict[str, _Growing] = {}
    try:
        for number, chunk in enumerate(chunks):
            if number == 0:
                columns = {name: _Growing(folder / f"{index}.bin") for index, name in enumerate(chunk)}
            elif set(chunk) != set(columns):
                found, wanted = ", ".join(sorted(chunk)), ", ".join(sorted(columns))
                raise InputError(f"chunk {number} has the arrays {found}; the first chunk has {wanted}")
            for name, growing in columns.items():
                growing.append(f"array {name!r} of chunk {number}", np.asarray(chunk[name]))
    finally:
        for growing in columns.values():
            growing.file.close()
    if not columns:
        raise InputError("there are no chunks: give at least one")
    return {name: growing.column() for name, growing in columns.items()}


@dataclass
class _Growing:
    """A column that grows chunk by chunk."""

    path: Path
    dtype: np.dtype[np.generic] | None = None
    item_shape: tuple[int, ...] = ()
    length: int = 0
    file: BinaryIO = field(init=False)
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        self.file = self.path.open("wb")

    def append(self, place: str, array: AnyArray) -> None:
        _check(place, array.dtype, array.shape)
        if self.dtype is None:
            self.dtype, self.item_shape = array.dtype, array.shape[1:]
        if (array.dtype, array.shape[1:]) != (self.dtype, self.item_shape):
            found = f"{array.dtype} {array.shape[1:]}"
            raise InputError(f"{place}: is {found} an example; the first is {self.dtype} {self.item_shape}")
        data = np.ascontiguousarray(array).tobytes()
        self.file.write(data)
        self.digest.update(data)
        self.length += len(array)

    def column(self) -> Column:
        assert self.dtype is not None
        shape = (self.length, *self.item_shape)
        identity = f"sha256:{self.digest.hexdigest()}"
        return Column(str(self.path), 0, _dtype_name(self.dtype), shape, False, identity)


def _npy_column(path: Path) -> Column:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            shape, fortran, dtype = _read_header(file, str(path))
            offset = file.tell()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    _check_size(str(path), status.st_size - offset, dtype, shape)
    return Column(
        os.path.realpath(path), offset, dtype.str, shape, fortran, _identity(status), is_original=True
    )


def _stage_member(name: str, member: Member, folder: Path, *, preview: bool) -> Column:
    place = f"{member.archive}[{member.name}]"
    try:
        status = os.stat(member.archive)
        with zipfile.ZipFile(member.archive) as archive, archive.open(f"{member.name}.npy") as file:
            size = archive.getinfo(f"{member.name}.npy").file_size
            shape, fortran, dtype = _read_header(file, place)
            _check_size(place, size - file.tell(), dtype, shape)
            target = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.bin"
            copied = not (preview and len(shape) > 1)
            if copied:
                _copy(file, target, size - file.tell())
    except InputError:
        raise
    except Exception as error:  # zipfile and its decompressors raise almost anything for damaged bytes
        raise InputError(f"{place}: cannot be read: {error}") from None
    return Column(str(target) if copied else "", 0, dtype.str, shape, fortran, _identity(status))


def _identity(status: os.stat_result) -> str:
    return f"{status.st_size} bytes at {status.st_mtime_ns}"


def _copy(source: IO[bytes], target: Path, size: int) -> None:
    """Copy exactly ``size`` bytes; zipfile compares the checksum when the last one is read."""
    with target.open("wb") as file:
        while size:
            block = source.read(min(size, _COPY_BYTES))
            if not block:
                raise EOFError("ends before its header says")
            file.write(block)
            size -= len(block)
    source.read(1)


def _read_header(file: IO[bytes], place: str) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            raise ValueError(f"format version {version[0]}.{version[1]}; 1.0 and 2.0 are read")
    except OSError:
        raise
    except Exception as error:  # NumPy's parser, and zipfile's decompressors, raise almost anything
        raise InputError(f"{place}: is no .npy array that can be read: {error}") from None
    _check(place, dtype, shape)
    return shape, fortran, dtype


def _check_size(place: str, found: int, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    needed = math.prod(shape) * dtype.itemsize
    if found != needed:
        raise InputError(f"{place}: holds {found} bytes of data; {dtype} {shape} needs {needed}")


def _check(place: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    if not shape:
        raise InputError(f"{place}: is a single value; the first axis must count the examples")
    # only a file's header can say so
    if any(isinstance(dim, bool) or dim < 0 for dim in shape):
        raise InputError(f"{place}: the shape {shape} is none; every dimension must be 0 or more")
    if dtype.hasobject:
        raise InputError(
            f"{place}: holds Python objects, which are never unpickled; convert it to a plain dtype"
        )


def _dtype_name(dtype: np.dtype[np.generic]) -> str:
    # ml_dtypes' bfloat16 has no string that NumPy could read back
    return "bfloat16" if dtype.name == "bfloat16" else dtype.str
