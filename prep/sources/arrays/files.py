"""Provide arrays as files that workers can map: .npy files are used in place, other arrays are copied.

Files are never unpickled, and lengths in headers are compared with the size of the file.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, TypeAlias, TypeVar, cast

import numpy as np

from tfshards.prep.imaging.formats import is_encoded
from tfshards.prep.sources.arrays.mapped import (
    AnyArray,
    Layout,
    MappedArray,
    MappedFile,
    check_array,
    fields_within,
    file_identity,
    join_parts,
    mapped_fields,
    read_header,
)
from tfshards.prep.sources.arrays.npz import Member, opened_member
from tfshards.prep.sources.fetching import stamp_of, unreadable
from tfshards.schemas import InputError
from tfshards.schemas.files import require_space
from tfshards.schemas.storage import RemotePath, any_path
from tfshards.schemas.storage.untrusted import open_regular

# A dict of arrays by name, or a structured array.
Chunk: TypeAlias = "Mapping[str, AnyArray] | AnyArray"
AnyPath: TypeAlias = "str | os.PathLike[str]"
Item = TypeVar("Item")
# An array with the name (), or the fields of a structured array by their names, outermost first.
Fields: TypeAlias = "Mapping[tuple[str, ...], Item]"

_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Files:
    """Files, or members of .npz files, that are one array, concatenated along axis 0 in this order.

    With ``is_named``, fields of a structured array become features ``NAME/FIELD`` rather than ``FIELD``.
    """

    paths: tuple[str | Member, ...]
    is_named: bool = True


# How an array can be given: as values, as a member of an .npz file, or as an .npy file or several, its parts.
GivenArray: TypeAlias = "AnyArray | AnyPath | Sequence[AnyPath] | Files | Member"


def stage_arrays(
    given: Mapping[str, GivenArray] | AnyArray | Iterable[Chunk], folder: Path, *, preview: bool
) -> dict[str, MappedArray]:
    """Return the mapped arrays by feature name: one for each array, or for each field of a structured one.

    Arrays that are not in .npy files on a disk are copied into ``folder``, which is empty; for a ``preview``
    only arrays of scalars, of which the others have only headers.
    """
    if isinstance(given, np.ndarray):
        given = _features(plain_arrays("", given))
    if not isinstance(given, Mapping):
        return _stage_chunks(given, folder)
    staged: list[tuple[str, MappedArray]] = []
    for index, (name, array) in enumerate(given.items()):
        below = folder / str(index)
        below.mkdir()
        if files := _as_files(name, array):
            staged += _stage_files(name, files, below, preview=preview)
        else:
            if isinstance(array, (list, tuple)) and any(map(is_encoded, array[:1])):
                raise InputError("array-of-images", name=name)
            staged += _stage_values(name, cast("AnyArray", array), below, preview=preview)
    return _features(staged)


def _features(items: Iterable[tuple[str, Item]]) -> dict[str, Item]:
    """Return features by their names, which must differ."""
    found: dict[str, Item] = {}
    for name, item in items:
        if name in found:
            raise InputError("two-features", name=name)
        found[name] = item
    return found


def _named(name: str, fields: Fields[Item]) -> dict[str, Item]:
    """Return the fields by the names of their features."""
    if not fields:
        raise InputError("array-no-fields", name=name)
    return _features(("/".join((name, *path) if name else path), item) for path, item in fields.items())


def plain_arrays(name: str, array: AnyArray) -> Iterable[tuple[str, AnyArray]]:
    """Return the array with its name, or each field of a structured array, as a view."""
    if isinstance(array, np.ma.MaskedArray):
        raise InputError("array-masked", name=name)
    array = np.asarray(array)
    if array.dtype.names is not None:
        check_array(f"array {name!r}", array.dtype, array.shape)
    return _named(name, dict(fields_within(array))).items()


def _stage_values(
    name: str, array: AnyArray, folder: Path, *, preview: bool
) -> Iterator[tuple[str, MappedArray]]:
    for index, (feature, values) in enumerate(plain_arrays(name, array)):
        check_array(f"array {feature!r}", values.dtype, values.shape)
        if preview and values.ndim > 1:
            layout = Layout.of(values.dtype, values.shape)
            yield feature, MappedArray((MappedFile("", layout, (*layout, False, "")),))
        else:
            require_space(folder, values.nbytes, "the copy of the arrays")
            part = folder / str(index)
            part.mkdir()
            yield from _stage_chunks([{feature: values}], part).items()


def _stage_chunks(chunks: Iterable[Chunk], folder: Path) -> dict[str, MappedArray]:
    """Write the concatenation of the chunks into ``folder``, one file per feature, and return the arrays."""
    growing: dict[str, _GrowingFile] = {}
    try:
        for number, chunk in enumerate(chunks):
            named = {"": chunk} if isinstance(chunk, np.ndarray) and chunk.dtype.names else chunk
            if not isinstance(named, Mapping):
                raise InputError("chunk-type", number=number, kind=type(chunk).__name__)
            arrays = _features(item for name, array in named.items() for item in plain_arrays(name, array))
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
        check_array(where, array.dtype, array.shape)
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

    def finish(self) -> MappedArray:
        """Write the final number of rows into the header, and return the array."""
        self.file.seek(0)
        layout = self._write_header()
        self.file.close()
        summary = (*layout, False, f"sha256:{self.digest.hexdigest()}")
        return MappedArray((MappedFile(str(self.path), layout, summary),))

    def _write_header(self) -> Layout:
        layout = Layout.of(self.dtype, (self.length, *self.item_shape))
        header = {"descr": layout.stored.str, "fortran_order": False, "shape": layout.shape}
        np.lib.format.write_array_header_2_0(self.file, header)
        return layout


def _as_files(name: str, given: GivenArray) -> Files | None:
    if isinstance(given, Files):
        return given
    if isinstance(given, Member):
        return Files((given,))
    if isinstance(given, (str, os.PathLike)):
        return Files((os.fspath(given),))
    if not isinstance(given, (list, tuple)) or not all(isinstance(p, (str, os.PathLike)) for p in given):
        return None
    paths = tuple(os.fspath(path) for path in given)
    odd = [path for path in paths if not path.endswith(".npy")]
    if odd or not paths:
        found = f"{odd[0]!r} is not one" if odd else "it is empty"
        raise InputError("array-list", name=name, found=found)
    return Files(paths)


def _stage_files(
    name: str, files: Files, folder: Path, *, preview: bool
) -> Iterable[tuple[str, MappedArray]]:
    parts: dict[str, list[tuple[str, MappedFile]]] = {}
    for index, given in enumerate(files.paths):
        fields = _stage_file(given, folder / f"{index}.npy", preview=preview)
        found = _named(name if files.is_named or () in fields else "", fields)
        if index and set(found) != set(parts):
            listed, wanted = ", ".join(sorted(found)), ", ".join(sorted(parts))
            raise InputError("parts-fields", path=given, listed=listed, paths=files.paths[0], wanted=wanted)
        for feature, each in found.items():
            parts.setdefault(feature, []).append((str(given), each))
    return [(feature, join_parts(feature, each)) for feature, each in parts.items()]


def _stage_file(given: str | Member, target: Path, *, preview: bool) -> Fields[MappedFile]:
    """Return the array in a file, or its fields; what is not in a local .npy file is copied to ``target``."""
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
    return mapped_fields(os.path.realpath(path), header, "", identity=file_identity(status))


def _copy(
    file: IO[bytes],
    where: str,
    size: int,
    target: Path,
    *,
    preview: bool,
    content: str = "",
    identity: str = "",
) -> Fields[MappedFile]:
    """Copy an .npy file, but of an array of more than scalars only its header in a preview."""
    header = read_header(file, where, size)
    file.seek(0)
    is_whole = not preview or len(header.shape) == 1
    if is_whole:
        require_space(target.parent, size, "the copy of the arrays")
    with target.open("wb") as copy:
        for block in iter(partial(file.read, _COPY_BYTES), b"") if is_whole else [file.read(header.offset)]:
            try:
                copy.write(block)
            except OSError as error:
                raise InputError("copy-unwritable", target=target, why=error.strerror) from None
        if not is_whole:
            # a sparse file of the right size, because only the layout of the fields is read
            copy.truncate(size)
    if target.stat().st_size != size:
        raise OSError("is shorter than its header declares")
    fields = mapped_fields(str(target), header, content, identity=identity, is_copy=bool(identity))
    if is_whole:
        return fields
    target.unlink()
    return {names: replace(array, path="") for names, array in fields.items()}
