"""Provide arrays as files that workers can map: .npy files are used in place, other arrays are copied.

Files are never unpickled, and lengths in headers are compared with the size of the file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeAlias, TypeVar, cast

import numpy as np

from tfshards.prep.sources.arrays.mapped import (
    AnyArray,
    MappedArray,
    MappedFile,
    check_array,
    fields_within,
    file_identity,
    join_parts,
    mapped_fields,
    read_header,
)
from tfshards.prep.sources.arrays.npz import (
    Member,
    copied_bytes,
    copied_object_bytes,
    stage_member,
    stage_object,
)
from tfshards.schemas import InputError
from tfshards.schemas.storage import any_path, is_remote
from tfshards.schemas.storage.untrusted import open_regular

# A dict of arrays by name, or a structured array.
Chunk: TypeAlias = "Mapping[str, AnyArray] | AnyArray"
AnyPath: TypeAlias = "str | os.PathLike[str]"
Item = TypeVar("Item")

_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Files:
    """Files of .npy arrays that are one array, concatenated along axis 0 in this order.

    Attributes:
        paths: one or more paths.
        is_named: whether fields of a structured array become features ``NAME/FIELD`` rather than ``FIELD``.
    """

    paths: tuple[str, ...]
    is_named: bool = True


# How an array can be given: as values, as an .npy file or several that are its parts, or as a member of an
# .npz file.
GivenArray: TypeAlias = "AnyArray | AnyPath | Sequence[AnyPath] | Files | Member"


def stage_array(name: str, given: GivenArray, folder: Path, *, preview: bool) -> dict[str, MappedArray]:
    """Return the mapped arrays by feature name: one, or one per field of a structured array.

    Args:
        name: name of the array; fields become ``NAME/FIELD``, and fields of fields ``NAME/FIELD/FIELD``.
        given: the array; unless it is in .npy files on a disk, it is copied into ``folder``.
        folder: an empty folder.
        preview: copy only arrays of scalars, and read only the headers of other arrays.

    Raises:
        InputError: the array cannot be read, holds Python objects, has no axis, or its file has another size
            than the header declares.
    """
    if isinstance(given, Member):
        return dict(_named_fields(name, stage_member(given, folder / "member.npy", preview=preview)))
    files = _as_files(name, given)
    if files:
        return _stage_files(name, files, folder, preview=preview)
    arrays = _unique(plain_arrays(name, cast("AnyArray", given)))
    staged: dict[str, MappedArray] = {}
    for feature, array in arrays.items():
        check_array(f"array {feature!r}", array.dtype, array.shape)
        if preview and array.ndim > 1:
            layout = (_dtype_name(array.dtype), array.shape, False, "")
            staged[feature] = MappedFile("", _dtype_name(array.dtype), array.shape, layout)
        else:
            part = folder / f"{len(staged)}"
            part.mkdir()
            staged.update(stage_chunks([{feature: array}], part))
    return staged


def bytes_to_copy(name: str, given: GivenArray) -> int:
    """Return the number of bytes that ``stage_array`` copies, without the headers of the files it writes.

    Raises:
        InputError: an archive or an object cannot be read, or a list holds anything but paths.
    """
    if isinstance(given, Member):
        return copied_bytes(given)
    if isinstance(given, np.ndarray):
        return given.nbytes
    files = _as_files(name, given)
    return sum(copied_object_bytes(path) for path in files.paths if is_remote(path)) if files else 0


def plain_arrays(name: str, array: AnyArray) -> Iterator[tuple[str, AnyArray]]:
    """Yield the array with its name, or each field of a structured array, as a view.

    Raises:
        InputError: the array is masked, holds Python objects, or is structured without fields.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise InputError("array-masked", name=name)
    array = np.asarray(array)
    if array.dtype.names is not None:
        check_array(f"array {name!r}", array.dtype, array.shape)
    yield from _named_fields(name, dict(fields_within(array)))


def fields_of(array: AnyArray) -> dict[str, AnyArray]:
    """Return the fields of a structured array by their names.

    Raises:
        InputError: see ``plain_arrays``; or two fields would have the same name.
    """
    return _unique(plain_arrays("", array))


def stage_chunks(chunks: Iterable[Chunk], folder: Path) -> dict[str, MappedArray]:
    """Write the concatenation of the chunks into ``folder``, one file per feature, and return the arrays.

    Raises:
        InputError: there is no chunk, or chunks differ in names, dtype, or shape after the first axis.
    """
    growing: dict[str, _GrowingFile] = {}
    try:
        for number, chunk in enumerate(chunks):
            arrays = _chunk_arrays(number, chunk)
            if number == 0:
                growing = {name: _GrowingFile(folder / f"{index}.npy") for index, name in enumerate(arrays)}
            elif set(arrays) != set(growing):
                found, wanted = ", ".join(sorted(arrays)), ", ".join(sorted(growing))
                raise InputError("chunk-names", number=number, found=found, wanted=wanted)
            for name, file in growing.items():
                file.append(f"array {name!r} of chunk {number}", arrays[name])
        if not growing:
            raise InputError("chunks-none")
        return {name: file.finish() for name, file in growing.items()}
    finally:
        for file in growing.values():
            file.close()


def _chunk_arrays(number: int, chunk: Chunk) -> dict[str, AnyArray]:
    if isinstance(chunk, np.ndarray) and chunk.dtype.names:
        return fields_of(chunk)
    if not isinstance(chunk, Mapping):
        raise InputError("chunk-type", number=number, kind=type(chunk).__name__)
    return _unique(item for name, array in chunk.items() for item in plain_arrays(name, array))


def _unique(arrays: Iterable[tuple[str, AnyArray]]) -> dict[str, AnyArray]:
    found: dict[str, AnyArray] = {}
    for name, array in arrays:
        if name in found:
            raise InputError("two-features", name=name)
        found[name] = array
    return found


def _named_fields(name: str, fields: Mapping[tuple[str, ...], Item]) -> Iterator[tuple[str, Item]]:
    """Yield the fields with the names of their features."""
    if not fields:
        raise InputError("array-no-fields", name=name)
    names = ["/".join((name, *path) if name else path) for path in fields]
    for feature in names:
        if names.count(feature) > 1:
            raise InputError("two-features", name=feature)
    yield from zip(names, fields.values(), strict=True)


@dataclass
class _GrowingFile:
    """An .npy file that grows chunk by chunk.

    NumPy pads the header for this purpose, so its size does not depend on the number of rows.
    """

    path: Path
    dtype: np.dtype[np.generic] | None = None
    item_shape: tuple[int, ...] = ()
    length: int = 0
    file: BinaryIO = field(init=False)
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        self.file = self.path.open("wb")

    def append(self, where: str, array: AnyArray) -> None:
        check_array(where, array.dtype, array.shape)
        if self.dtype is None:
            self.dtype, self.item_shape = array.dtype, array.shape[1:]
            self._write_header()
        if (array.dtype, array.shape[1:]) != (self.dtype, self.item_shape):
            found = f"{array.dtype} {array.shape[1:]}"
            wanted = f"{self.dtype} {self.item_shape}"
            raise InputError("chunk-shape", where=where, found=found, wanted=wanted)
        # a few rows at a time: the array may be mapped, and larger than memory
        step = max(1, _COPY_BYTES * len(array) // max(1, array.nbytes))
        for start in range(0, len(array), step):
            data = array[start : start + step].tobytes()
            self.file.write(data)
            self.digest.update(data)
        self.length += len(array)

    def finish(self) -> MappedFile:
        """Write the final number of rows into the header, and return the array."""
        assert self.dtype is not None
        self.file.seek(0)
        self._write_header()
        self.close()
        dtype, shape = _dtype_name(self.dtype), (self.length, *self.item_shape)
        return MappedFile(
            str(self.path), dtype, shape, (dtype, shape, False, f"sha256:{self.digest.hexdigest()}")
        )

    def close(self) -> None:
        self.file.close()

    def _write_header(self) -> None:
        assert self.dtype is not None
        name = _dtype_name(self.dtype)
        header = {
            "descr": "<u2" if name == "bfloat16" else name,
            "fortran_order": False,
            "shape": (self.length, *self.item_shape),
        }
        np.lib.format.write_array_header_2_0(self.file, header)


def _as_files(name: str, given: GivenArray) -> Files | None:
    if isinstance(given, Files):
        return given
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


def _stage_files(name: str, files: Files, folder: Path, *, preview: bool) -> dict[str, MappedArray]:
    parts: dict[str, list[tuple[str, MappedFile]]] = {}
    for index, path in enumerate(files.paths):
        given = any_path(path)
        fields = (
            _fields_of_file(given)
            if isinstance(given, Path)
            else stage_object(given, folder / f"object-{index}.npy", preview=preview)
        )
        is_plain = () in fields
        found = dict(_named_fields(name if files.is_named or is_plain else "", fields))
        if index and set(found) != set(parts):
            listed, wanted = ", ".join(sorted(found)), ", ".join(sorted(parts))
            raise InputError("parts-fields", path=path, listed=listed, paths=files.paths[0], wanted=wanted)
        for feature, each in found.items():
            parts.setdefault(feature, []).append((path, each))
    return {feature: join_parts(feature, each) for feature, each in parts.items()}


def _fields_of_file(path: Path) -> dict[tuple[str, ...], MappedFile]:
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            header = read_header(file, str(path), status.st_size)
    except OSError as error:
        raise InputError("unreadable", path=path, why=error.strerror) from None
    identity = file_identity(status)
    return mapped_fields(os.path.realpath(path), header, "", identity=identity)


def _dtype_name(dtype: np.dtype[np.generic]) -> str:
    # NumPy cannot read back the string of ml_dtypes' bfloat16
    return "bfloat16" if dtype.name == "bfloat16" else dtype.str
