"""Arrays as files that workers can map: .npy files are used in place, and other arrays are copied.

Nothing is unpickled, and no length that a file states is believed before it is compared with the file.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import threading
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.prep.records.example import Values
from tfshards.prep.sources.fetching import changed, local_copy, stamp_of, unreadable
from tfshards.schemas import Feature, InputError, TfshardsError
from tfshards.schemas.compression import CODECS
from tfshards.schemas.files import require_space
from tfshards.schemas.index import IntArray
from tfshards.schemas.storage import AnyPath, RemotePath, any_path
from tfshards.schemas.storage.untrusted import open_regular, size_of

_COPY_BYTES = 1 << 20
# More than NumPy's limit.
_MAX_HEADER_BYTES = 1 << 14
# NumPy parses headers as Python literals. In Python 3.11 that fails at times with a SystemError if several
# threads do it: https://github.com/python/cpython/issues/106905
_PARSING = threading.Lock()
_BFLOAT16 = "bfloat16"
AnyArray: TypeAlias = npt.NDArray[np.generic]


class ArrayFile(NamedTuple):
    """The elements of an array in a file; axis 0 counts the rows.

    Attributes:
        path: path of the file; one without a folder is in that of the staged rows.
        dtype: NumPy's string of the dtype.
        shape: shape of the array.
        offset: offset of the first element.
        order: "C", or "F" if the first axis varies fastest.
        stamp: of a file of the user, its modification time in nanoseconds, which must not change, or the
            stamp of an object.
        content: what identifies the content of a copy.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int = 0
    order: Literal["C", "F"] = "C"
    stamp: int = 0
    content: str = ""

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """The number of bytes of a row."""
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    @property
    def identity(self) -> str:
        """What determines the content, except for changes of a file of the user."""
        return repr((self.dtype, self.shape, self.order, self.content))

    def check_unchanged(self) -> None:
        """Raise InputError if this is a file of the user that has changed since it was listed, or OSError."""
        if os.path.isabs(self.path) and os.stat(self.path).st_mtime_ns != self.stamp:
            raise changed(Path(self.path))

    def mapped(self, path: Path) -> AnyArray:
        """Return the array, mapped read-only from where the file is; it needs no memory without elements."""
        if not math.prod(self.shape) * np.dtype(self.dtype).itemsize:
            return np.broadcast_to(np.zeros((), self.dtype), self.shape)
        return np.memmap(path, self.dtype, "r", self.offset, self.shape, self.order)


class Member(NamedTuple):
    """One array in an .npz file, which has a path or a URL."""

    archive: str
    name: str


# Rows of several arrays, by name.
Chunk: TypeAlias = Mapping[str, AnyArray]


class OpenArray(NamedTuple):
    """An array that can be read.

    Attributes:
        values: the array, mapped or in memory; for a preview, arrays of more than scalars may be zeros.
        dtype: name of the dtype of its elements; ``values`` of bfloat16, which NumPy lacks, are uint16.
        file: the file that workers map.
    """

    values: AnyArray
    dtype: str
    file: ArrayFile

    @property
    def is_text(self) -> bool:
        """Whether the elements are byte strings or text."""
        return self.values.dtype.kind in "SU"


def open_file(given: str | Member, copy: Path | None) -> OpenArray:
    """Return the array in a file; one that is not in a local .npy file is copied to ``copy``.

    Without a path for the copy, only what a preview needs is read.
    """
    if isinstance(given, Member):
        with _archive(given.archive) as archive:
            info = archive.getinfo(f"{given.name}.npy")
            with archive.open(info) as member:
                where, content = f"{given.archive}[{given.name}]", f"CRC-32 {info.CRC:08x}"
                return _read(member, where, info.file_size, copy, content=content)
    path = any_path(given)
    try:
        with open_regular(path) as file:
            if isinstance(path, RemotePath):
                # all that is read is of one version
                status = file.raw.status  # type: ignore[attr-defined]
                return _read(file, given, status.st_size, copy, stamp=stamp_of(status))
            found = os.fstat(file.fileno())
            array, _ = _header(file, given, found.st_size)
            array = array._replace(path=os.path.realpath(path), stamp=found.st_mtime_ns)
            return OpenArray(array.mapped(path), np.dtype(array.dtype).name, array)
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise InputError(f"{given}: cannot be mapped into memory: {error}") from None


def _read(file: IO[bytes], where: str, size: int, copy: Path | None, **known: Any) -> OpenArray:  # noqa: ANN401
    """Return the array in an .npy file that is read forwards; ``known`` is what identifies its content."""
    array, data = _header(file, where, size)
    array, dtype = array._replace(**known), np.dtype(array.dtype)
    if copy is None:
        is_small = len(array.shape) == 1 and dtype.itemsize
        values = np.frombuffer(data + file.read(), dtype) if is_small else _zeros(dtype, array.shape)
        return OpenArray(values, dtype.name, array)
    require_space(copy.parent, size, "the copy of the arrays")
    with copy.open("wb") as target:
        while data:
            target.write(data)
            data = file.read(_COPY_BYTES)
    array = array._replace(path=copy.name, offset=0)
    return OpenArray(array.mapped(copy), dtype.name, array)


def _header(file: IO[bytes], where: str, size: int) -> tuple[ArrayFile, bytes]:
    """Return the array that an .npy file of this size declares, and the first bytes of its elements."""
    # bounded, even if the file declares a longer header
    start = io.BytesIO(file.read(_MAX_HEADER_BYTES))
    try:
        is_first = np.lib.format.read_magic(start) == (1, 0)
        parse = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        with _PARSING:
            shape, is_fortran, dtype = parse(start)
    except Exception as error:  # NumPy's parser raises almost anything
        raise InputError(f"{where}: is not an .npy file that NumPy reads: {error}") from None
    _check_type(where, dtype, shape)
    declared = start.tell() + math.prod(shape) * dtype.itemsize
    if declared != size or min(shape) < 0:
        raise InputError(f"{where}: has {size} bytes; with the shape {shape} in its header it has {declared}")
    return ArrayFile("", dtype.str, shape, start.tell(), "F" if is_fortran else "C"), start.read()


def _check_type(where: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    """Raise InputError for an array of Python objects, with fields, or without an axis of examples."""
    if dtype.hasobject:
        raise InputError(
            f"{where}: holds Python objects, which are never unpickled || convert it to a plain dtype; "
            "prep.Examples(...) takes dicts of single values, such as encoded images"
        )
    if dtype.names is not None:
        raise InputError(
            f"{where}: has the fields {', '.join(dtype.names[:5])}, but each feature needs an array || from "
            "Python, with a = numpy.load(FILE, mmap_mode='r'): prep.Arrays({name: a[name] for name in "
            "a.dtype.names})"
        )
    if not shape:
        raise InputError(f"{where}: is a single value; the first axis must count the examples")


def members(path: str) -> list[str]:
    """Return the names of the arrays in an .npz file."""
    with _archive(path) as archive:
        names = sorted(name.removesuffix(".npy") for name in archive.namelist())
    if repeated := [name for name, after in pairwise(names) if name == after]:
        raise InputError(f"{path}: has several members {repeated[0]!r}")
    return names


@contextmanager
def _archive(path: str) -> Iterator[zipfile.ZipFile]:
    """Yield an .npz file, or raise InputError, also if it declares more bytes than it can hold."""
    try:
        with open_regular(any_path(path)) as file, zipfile.ZipFile(file) as archive:
            # of all members together, because they may share their bytes
            declared = sum(info.file_size for info in archive.infolist())
            most = size_of(file) * CODECS["gzip"].max_ratio
            if declared > most:
                raise InputError(f"{path}: declares {declared} bytes of arrays, but can hold at most {most}")
            yield archive
    except TfshardsError:
        raise
    except FileNotFoundError as error:
        raise unreadable(path, error) from None
    except Exception as error:  # zipfile and its decompressors raise almost anything for damaged bytes
        raise InputError(f"{path}: cannot be unpacked: {error}") from None


def copy_chunks(
    chunks: Iterable[Chunk], needed: Collection[str], folder: Path | None
) -> dict[str, OpenArray]:
    """Return the ``needed`` arrays of all chunks, concatenated, after copying them into a folder.

    Without a folder, only what a preview needs is kept.
    """
    names: list[str] | None = None
    copies: dict[str, _Copy] = {}
    with ExitStack() as stack:
        for number, chunk in enumerate(chunks):
            found = sorted(chunk) if isinstance(chunk, Mapping) else type(chunk).__name__
            names = sorted(chunk) if names is None and isinstance(chunk, Mapping) else names
            if found != names:
                wanted = "a dict of arrays" if names is None else f"{names}, as in the first one"
                raise InputError(f"chunk {number} of the arrays is {found}, but must be {wanted}")
            for name in (name for name in chunk if name in needed):
                array = _in_memory(f"array {name!r} of chunk {number}", chunk[name])
                if name not in copies:
                    path = None if folder is None else folder / f"{len(copies)}.values"
                    file = stack.enter_context(open(path or os.devnull, "wb"))
                    copies[name] = _Copy(path, file, array[:0])
                copies[name].append(f"array {name!r} of chunk {number}", array)
    return {name: copy.opened() for name, copy in copies.items()}


def _in_memory(where: str, array: object) -> AnyArray:
    """Return values as an array, or raise InputError if NumPy would make an array of other values."""
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(f"{where}: is masked, which records cannot store; use array.filled(VALUE)")
    if isinstance(array, (list, tuple)) and any(
        isinstance(each, (str, bytes, os.PathLike)) for each in array
    ):
        raise InputError(
            f"{where}: is a list of paths, text or bytes, but must be an array or one .npy file || give its "
            "parts as chunks, prep.Arrays({'NAME': numpy.load(path, mmap_mode='r')} for path in paths), text "
            "as numpy.array(...), and encoded images to prep.Examples(...)"
        )
    found: AnyArray = np.asarray(array)
    _check_type(where, found.dtype, found.shape)
    return found


@dataclass
class _Copy:
    """The elements of an array that grows chunk by chunk, in a file, or for a preview in none.

    Attributes:
        path: the file; None for a preview, which keeps only scalars.
        file: the same, open, or the null device.
        like: an array without rows.
    """

    path: Path | None
    file: BinaryIO
    like: AnyArray
    num_rows: int = 0
    scalars: list[AnyArray] = field(default_factory=list)
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def append(self, where: str, array: AnyArray) -> None:
        if (array.dtype, array.shape[1:]) != (self.like.dtype, self.like.shape[1:]):
            like = f"{self.like.dtype} {self.like.shape[1:]}"
            raise InputError(
                f"{where} holds {array.dtype} {array.shape[1:]} per example, the first one {like}"
            )
        if self.path is not None:
            require_space(self.path.parent, array.nbytes, "the copy of the arrays")
        elif array.ndim == 1:
            self.scalars.append(_plain(array))
        # a few rows at a time: the array may be mapped, and larger than memory
        step = max(1, _COPY_BYTES * len(array) // max(1, array.nbytes))
        for start in range(0, len(array), step):
            data = array[start : start + step].tobytes()
            self.file.write(data)
            self.digest.update(data)
        self.num_rows += len(array)

    def opened(self) -> OpenArray:
        dtype, shape = _plain(self.like).dtype, (self.num_rows, *self.like.shape[1:])
        name, path = self.like.dtype.name, self.path.name if self.path else ""
        array = ArrayFile(path, dtype.str, shape, content=f"sha256:{self.digest.hexdigest()}")
        if self.path is not None:
            return OpenArray(array.mapped(self.path), name, array)
        return OpenArray(np.concatenate(self.scalars) if self.scalars else _zeros(dtype, shape), name, array)


def _plain(array: AnyArray) -> AnyArray:
    """Return values of bfloat16 as uint16, and others as they are."""
    return array.view(np.uint16) if array.dtype.name == _BFLOAT16 else array


def _zeros(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> AnyArray:
    """Return zeros that need no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


class MappedArrays:
    """Arrays in files, each of which is mapped into memory when it is first read.

    Files whose path has no folder are in the given one, which may be one of a store.
    """

    def __init__(self, folder: AnyPath) -> None:
        self._folder = folder
        self._arrays: dict[ArrayFile, AnyArray] = {}

    def values(self, feature: Feature, files: Sequence[ArrayFile], numbers: IntArray) -> Sequence[Values]:
        """Return the values of rows in files of arrays, as the encoder takes them."""
        rows = self._rows(files[0], numbers) if len(files) == 1 else self._joined_rows(files, numbers)
        if feature.kind == "raw":
            data = rows.astype(rows.dtype.newbyteorder("<"), copy=False).tobytes()
            step = feature.num_bytes
            return [data[row * step : (row + 1) * step] for row in range(len(rows))]
        if feature.dtype == "bfloat16":
            # its bits are the upper half of a float32
            rows = (rows.astype(np.uint32) << 16).view(np.float32)
        values: Sequence[Values] = (rows.reshape(len(rows), -1) if feature.shape else rows).tolist()
        return values

    def _joined_rows(self, files: Sequence[ArrayFile], numbers: IntArray) -> AnyArray:
        """Return a copy of rows of arrays that follow each other, whose byte orders may differ."""
        ends = np.cumsum([file.num_rows for file in files])
        places = np.searchsorted(ends, numbers, side="right")
        rows: AnyArray = np.empty(
            (len(numbers), *files[0].shape[1:]), np.dtype(files[0].dtype).newbyteorder("=")
        )
        for index in np.unique(places).tolist():
            chosen, before = places == index, ends[index] - files[index].num_rows
            rows[chosen] = self._rows(files[index], numbers[chosen] - before)
        return rows

    def _rows(self, file: ArrayFile, numbers: IntArray) -> AnyArray:
        """Return a copy of rows, or raise InputError if a file of the user has changed meanwhile."""
        path = Path(file.path) if os.path.isabs(file.path) else self._folder / file.path
        try:
            file.check_unchanged()
            if file not in self._arrays:
                with local_copy(path) as local:
                    self._arrays[file] = file.mapped(local)
            rows: AnyArray = np.asarray(self._arrays[file][numbers])
            # again, because the file may have changed before the rows were read
            file.check_unchanged()
        except OSError as error:
            raise unreadable(path, error) from None
        return rows
