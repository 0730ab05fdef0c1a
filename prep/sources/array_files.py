"""Arrays as .npy files that workers map: local files are used in place, and other arrays are copied.

Nothing is unpickled, and no length that a file states is believed before it is compared with the file.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import threading
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.prep.sources.classes import repeated
from tfshards.prep.sources.fetching import changed, unreadable
from tfshards.schemas import InputError, TfshardsError
from tfshards.schemas.columns import without_bfloat16
from tfshards.schemas.compression import MAX_RATIO
from tfshards.schemas.digests import HASH, digest_of
from tfshards.schemas.storage import LocalPath, any_path
from tfshards.schemas.storage.reader import stamp_of
from tfshards.schemas.storage.stored import size_of

_COPY_BYTES = 1 << 20
# NumPy parses headers as Python literals. In Python 3.11 that fails at times with a SystemError if several
# threads do it: https://github.com/python/cpython/issues/106905
_PARSING = threading.Lock()
AnyArray: TypeAlias = npt.NDArray[np.generic]
# Rows of several arrays, by name.
Chunk: TypeAlias = Mapping[str, AnyArray]


class ArrayFile(NamedTuple):
    """An array in an .npy file; axis 0 counts the rows.

    Attributes:
        name: name of the file in the folder of the staged rows, if it is there.
        num_rows: number of rows.
        row_bytes: number of bytes of a row.
        identity: what determines the content, except for changes of what ``stamp`` is of.
        path: path of a file of the user that is used in place; empty for a copy.
        stamp: modification time of a file of the user in nanoseconds, or the stamp of a copied object.
    """

    name: str
    num_rows: int
    row_bytes: int
    identity: str
    path: str = ""
    stamp: int = 0

    def check_unchanged(self) -> None:
        """Raise InputError if this is a file of the user that has changed since it was listed, or OSError."""
        if self.path and os.stat(self.path).st_mtime_ns != self.stamp:
            raise changed(os.fsencode(self.path))

    def copied(self) -> ArrayFile:
        """Return the file as a copy of it, which was made just now; raises as ``check_unchanged``."""
        self.check_unchanged()
        return self._replace(path="")


class OpenArray(NamedTuple):
    """An array that can be read.

    Attributes:
        values: the array, mapped into memory.
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


class Member(NamedTuple):
    """One array in an .npz file, which has a path or a URL."""

    archive: str
    name: str


def open_file(given: str | Member, copy: LocalPath) -> OpenArray:
    """Return the array in a file; one that is not in a local .npy file is copied to ``copy``."""
    if isinstance(given, Member):
        with _archive(given.archive) as archive:
            info = archive.getinfo(f"{given.name}.npy")
            with archive.open(info) as member:
                _write_copy(member, info.file_size, copy)
        where, content = f"{given.archive}[{given.name}]", f"CRC-32 {info.CRC:08x}"
        if copy.stat().st_size != info.file_size:
            # whose checksum was not compared
            raise InputError(f"{where}: is shorter than the {info.file_size} bytes that its archive declares")
        return _opened(copy, where, content)
    path = any_path(given)
    try:
        with path.open_regular() as file:
            if not path.is_far:
                stamp, array = os.fstat(file.fileno()).st_mtime_ns, _opened(Path(str(path)), given)
                used = array.file._replace(name=copy.name, path=path.real_name(), stamp=stamp)
                return array._replace(file=used)
            # all that is read is of one version
            status = file.raw.status  # type: ignore[attr-defined]
            _write_copy(file, status.st_size, copy)
            array = _opened(copy, given)
            return array._replace(file=array.file._replace(stamp=stamp_of(status)))
    except OSError as error:
        raise unreadable(path, error) from None


def _write_copy(file: IO[bytes], size: int, path: LocalPath) -> None:
    path.parent.require_space(size, "the copy of the arrays")
    with path.open("wb") as target:
        shutil.copyfileobj(file, target, _COPY_BYTES)


def _opened(path: Path, where: str, content: str = "", dtype: str = "") -> OpenArray:
    """Return the array in an .npy file; ``content`` identifies that of a copy."""
    try:
        values = mapped(path)
        declared, size = values.offset + values.nbytes, path.stat().st_size
    except Exception as error:  # NumPy's parser raises almost anything
        raise InputError(
            f"{where}: is not an .npy file that NumPy maps into memory: {error}; save a plain dtype with "
            "numpy.save; prep.Examples(...) takes dicts of other values"
        ) from None
    _check_type(where, values.dtype, values.shape)
    if declared != size:
        shape = values.shape
        raise InputError(f"{where}: has {size} bytes; with the shape {shape} in its header it has {declared}")
    order = "C" if values.flags.c_contiguous else "F"
    return _described(values, path.name, order, content, dtype)


def _described(values: AnyArray, name: str, order: str, content: str, dtype: str) -> OpenArray:
    """Return an array that is in a file of this name, or would be, in order C or F of its axes."""
    row_bytes = math.prod(values.shape[1:]) * values.itemsize
    identity = repr((values.dtype.str, values.shape, order, content))
    return OpenArray(values, dtype or values.dtype.name, ArrayFile(name, len(values), row_bytes, identity))


def mapped(path: Path) -> np.memmap[tuple[int, ...], np.dtype[np.generic]]:
    """Return the array in an .npy file, mapped into memory."""
    # a shape may have more elements than can be counted
    with _PARSING, np.errstate(over="ignore"):
        return np.lib.format.open_memmap(path, "r")


def _check_type(where: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    """Raise InputError for an array of Python objects, with fields, or without an axis of examples."""
    if dtype.hasobject:
        raise InputError(
            f"{where}: holds Python objects, which are never unpickled; convert it to a plain dtype; "
            "prep.Examples(...) takes dicts of single values, such as encoded images"
        )
    if dtype.names is not None:
        raise InputError(
            f"{where}: has the fields {', '.join(dtype.names[:5])}, but each feature needs an array; from "
            "Python give prep.Arrays({name: a[name] for name in a.dtype.names})"
        )
    if not shape:
        raise InputError(f"{where}: is a single value; the first axis must count the examples")


def members(path: str) -> list[str]:
    """Return the names of the arrays in an .npz file."""
    with _archive(path) as archive:
        found = sorted(archive.namelist())
    for name in [*repeated(found), *(name for name in found if not name.endswith(".npy"))]:
        raise InputError(f"{path}: the member {name!r} is repeated, or not an .npy file; remove it")
    return [name.removesuffix(".npy") for name in found]


@contextmanager
def _archive(path: str) -> Iterator[zipfile.ZipFile]:
    """Yield an .npz file, or raise InputError, also if it declares more bytes than it can hold."""
    try:
        with any_path(path).open_regular() as file, zipfile.ZipFile(file) as archive:
            # of all members together, because they may share their bytes
            declared = sum(info.file_size for info in archive.infolist())
            most = size_of(file) * MAX_RATIO
            if declared > most:
                raise InputError(f"{path}: declares {declared} bytes of arrays, but can hold at most {most}")
            yield archive
    except TfshardsError:
        raise
    except FileNotFoundError as error:
        raise unreadable(path, error) from None
    except Exception as error:  # zipfile and its decompressors raise almost anything for damaged bytes
        raise InputError(f"{path}: cannot be unpacked: {error}") from None


def copy_chunks(chunks: Iterable[Chunk], needed: Set[str], folder: LocalPath | None) -> dict[str, OpenArray]:
    """Return the ``needed`` arrays of all chunks, concatenated, after copying them into a folder.

    Without a folder there must be one chunk, whose arrays are only described.
    """
    names: list[str] = []
    firsts: dict[str, AnyArray] = {}
    counts: Counter[str] = Counter()
    digests: dict[str, hashlib._Hash] = defaultdict(HASH)
    paths: dict[str, LocalPath] = {}
    for number, chunk in enumerate(chunks):
        if not isinstance(chunk, Mapping) or (number and sorted(chunk) != names):
            found = sorted(chunk) if isinstance(chunk, Mapping) else type(chunk).__name__
            raise InputError(f"chunk {number} of the arrays is {found}, but must be a dict of arrays {names}")
        names = sorted(chunk)
        for name in sorted(needed & chunk.keys()):
            where = f"array {name!r} of chunk {number}"
            array = _in_memory(where, chunk[name])
            first = firsts.setdefault(name, array)
            like, own = (f"{each.dtype} {each.shape[1:]}" for each in (first, array))
            if own != like:
                raise InputError(f"{where} holds {own} per example, the first one {like}")
            if folder is not None:
                folder.require_space(array.nbytes, "the copy of the arrays")
                if name not in paths:
                    paths[name] = folder / f"chunks-{len(paths)}.npy"
                    _write_header(paths[name], first, 0)
            # a few rows at a time: the array may be mapped, and larger than memory
            step = max(1, _COPY_BYTES * len(array) // max(1, array.nbytes))
            with paths[name].open("ab") if folder else nullcontext() as file:
                for start in range(0, len(array), step):
                    data = array[start : start + step].tobytes()
                    digests[name].update(data)
                    if file is not None:
                        file.write(data)
            counts[name] += len(array)
    opened: dict[str, OpenArray] = {}
    for name, first in firsts.items():
        content, dtype = digest_of(digests[name]), first.dtype.name
        if folder is None:
            opened[name] = _described(without_bfloat16(first), "", "C", content, dtype)
        else:
            _write_header(paths[name], first, counts[name])
            opened[name] = _opened(paths[name], f"array {name!r}", content, dtype)
    return opened


def _write_header(path: LocalPath, first: AnyArray, num_rows: int) -> None:
    """Write the header of rows like those of an array; its length does not depend on their number."""
    descr, shape = without_bfloat16(first).dtype.str, (num_rows, *first.shape[1:])
    with path.open("r+b" if num_rows else "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})


def _in_memory(where: str, array: object) -> AnyArray:
    """Return values as an array, or raise InputError if NumPy would make an array of other values."""
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(f"{where}: is masked, which records cannot store; use array.filled(VALUE)")
    try:
        if isinstance(array, (list, tuple)) and any(
            isinstance(each, (str, bytes, os.PathLike)) for each in array
        ):
            raise ValueError("is a list of paths, text or bytes")
        found: AnyArray = np.asarray(array)
    except ValueError as error:
        raise InputError(
            f"{where}: {error}; give text as numpy.array(...), parts of an array as chunks, prep.Arrays({{"
            "'NAME': numpy.load(path, mmap_mode='r')} for path in paths), and lists of different lengths, "
            "or of encoded images, to prep.Examples(...)"
        ) from None
    _check_type(where, found.dtype, found.shape)
    return found
