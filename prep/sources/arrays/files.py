"""Provide arrays as files that workers can map: .npy files are used in place, other arrays are copied.

Files are never unpickled, and lengths in headers are compared with the size of the file.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, TypeAlias

import numpy as np

from tfshards.prep.imaging.formats import is_encoded
from tfshards.prep.sources.arrays.mapped import (
    AnyArray,
    Layout,
    MappedFile,
    check_array,
    file_identity,
    read_header,
)
from tfshards.prep.sources.arrays.npz import Member, opened_member
from tfshards.prep.sources.fetching import stamp_of, unreadable
from tfshards.schemas import InputError
from tfshards.schemas.files import require_space
from tfshards.schemas.storage import RemotePath, any_path
from tfshards.schemas.storage.untrusted import open_regular

_COPY_BYTES = 1 << 20


# How an array can be given: as values, as an .npy file, or as a member of an .npz file.
GivenArray: TypeAlias = "AnyArray | str | os.PathLike[str] | Member"


def stage_arrays(
    given: Mapping[str, GivenArray] | Iterable[Mapping[str, AnyArray]], folder: Path, *, preview: bool
) -> dict[str, MappedFile]:
    """Return the mapped arrays by name.

    Arrays that are not in .npy files on a disk are copied into ``folder``, which is empty; for a ``preview``
    only arrays of scalars, of which the others have only headers.
    """
    if not isinstance(given, Mapping):
        return _stage_chunks(given, folder)
    staged: dict[str, MappedFile] = {}
    for index, (name, array) in enumerate(given.items()):
        below = folder / str(index)
        below.mkdir()
        if isinstance(array, (str, os.PathLike, Member)):
            path = array if isinstance(array, Member) else os.fspath(array)
            staged[name] = _stage_file(path, below / "0.npy", preview=preview)
        else:
            _check_list(name, array)
            staged[name] = _stage_values(name, array, below, preview=preview)
    return staged


def _check_list(name: str, array: object) -> None:
    """Raise InputError for a list of what NumPy would make an array of other values."""
    if isinstance(array, (list, tuple)):
        if any(map(is_encoded, array[:1])):
            raise InputError("array-of-images", name=name)
        if any(isinstance(each, (str, os.PathLike)) for each in array):
            raise InputError("array-list", name=name)


def _checked(name: str, where: str, array: AnyArray) -> AnyArray:
    if isinstance(array, np.ma.MaskedArray):
        raise InputError("array-masked", name=name)
    array = np.asarray(array)
    check_array(where, array.dtype, array.shape)
    return array


def _stage_values(name: str, array: AnyArray, folder: Path, *, preview: bool) -> MappedFile:
    array = _checked(name, f"array {name!r}", array)
    if preview and array.ndim > 1:
        layout = Layout.of(array.dtype, array.shape)
        return MappedFile("", layout, (*layout, False, ""))
    require_space(folder, array.nbytes, "the copy of the arrays")
    return _stage_chunks([{name: array}], folder)[name]


def _stage_chunks(chunks: Iterable[Mapping[str, AnyArray]], folder: Path) -> dict[str, MappedFile]:
    """Write the concatenation of the chunks into ``folder``, one file per feature, and return the arrays."""
    growing: dict[str, _GrowingFile] = {}
    try:
        for number, chunk in enumerate(chunks):
            if not isinstance(chunk, Mapping):
                raise InputError("chunk-type", number=number, kind=type(chunk).__name__)
            arrays = {
                name: _checked(name, f"array {name!r} of chunk {number}", array)
                for name, array in chunk.items()
            }
            for name, array in arrays.items() if number == 0 else ():
                path = folder / f"{len(growing)}.npy"
                growing[name] = _GrowingFile(path, path.open("wb"), array.dtype, array.shape[1:])
            if set(arrays) != set(growing):
                found, wanted = ", ".join(sorted(arrays)), ", ".join(sorted(growing))
                raise InputError("chunk-names", number=number, found=found, wanted=wanted)
            for name, file in growing.items():
                file.append(f"array {name!r} of chunk {number}", arrays[name])
        if not growing:
            raise InputError("chunks-none")
        return {name: file.finish() for name, file in growing.items()}
    finally:
        for file in growing.values():
            file.file.close()


@dataclass
class _GrowingFile:
    """An .npy file that grows chunk by chunk: NumPy pads the header, so that its size stays."""

    path: Path
    file: BinaryIO
    dtype: np.dtype[np.generic]
    item_shape: tuple[int, ...]
    length: int = 0
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def append(self, where: str, array: AnyArray) -> None:
        if (array.dtype, array.shape[1:]) != (self.dtype, self.item_shape):
            found, wanted = f"{array.dtype} {array.shape[1:]}", f"{self.dtype} {self.item_shape}"
            raise InputError("chunk-shape", where=where, found=found, wanted=wanted)
        if not self.file.tell():
            self._write_header()
        # a few rows at a time: the array may be mapped, and larger than memory
        step = max(1, _COPY_BYTES * len(array) // max(1, array.nbytes))
        for start in range(0, len(array), step):
            data = array[start : start + step].tobytes()
            self.file.write(data)
            self.digest.update(data)
        self.length += len(array)

    def finish(self) -> MappedFile:
        """Write the final number of rows into the header, and return the array."""
        self.file.seek(0)
        layout = self._write_header()
        self.file.close()
        summary = (*layout, False, f"sha256:{self.digest.hexdigest()}")
        return MappedFile(str(self.path), layout, summary)

    def _write_header(self) -> Layout:
        layout = Layout.of(self.dtype, (self.length, *self.item_shape))
        header = {"descr": layout.stored.str, "fortran_order": False, "shape": layout.shape}
        np.lib.format.write_array_header_2_0(self.file, header)
        return layout


def _stage_file(given: str | Member, target: Path, *, preview: bool) -> MappedFile:
    """Return the array in a file; what is not in a local .npy file is copied to ``target``."""
    if isinstance(given, Member):
        with opened_member(given) as (member, info):
            content = f"CRC-32 {info.CRC:08x}"
            return _copy(member, str(given), info.file_size, target, preview=preview, content=content)
    path = any_path(given)
    try:
        if isinstance(path, RemotePath):
            raw = path.reader()
            size = raw.status.st_size
            identity = f"{size} bytes at {stamp_of(raw.status)}"
            with io.BufferedReader(raw) as file:
                return _copy(file, given, size, target, preview=preview, identity=identity)
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            header = read_header(file, given, status.st_size)
    except OSError as error:
        raise unreadable(path, error) from None
    return MappedFile.of(os.path.realpath(path), header, "", identity=file_identity(status))


def _copy(
    file: IO[bytes],
    where: str,
    size: int,
    target: Path,
    *,
    preview: bool,
    content: str = "",
    identity: str = "",
) -> MappedFile:
    """Copy an .npy file; in a preview only the header of an array of more than scalars is read."""
    header = read_header(file, where, size)
    if preview and len(header.shape) > 1:
        return MappedFile.of("", header, content, identity=identity, is_copy=bool(identity))
    file.seek(0)
    require_space(target.parent, size, "the copy of the arrays")
    with target.open("wb") as copy:
        for block in iter(partial(file.read, _COPY_BYTES), b""):
            try:
                copy.write(block)
            except OSError as error:
                raise InputError("copy-unwritable", target=target, why=error.strerror) from None
    if target.stat().st_size != size:
        raise OSError("is shorter than its header declares")
    return MappedFile.of(str(target), header, content, identity=identity, is_copy=bool(identity))
