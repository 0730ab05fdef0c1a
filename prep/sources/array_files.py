"""Arrays as files that workers can map into memory: found where they are, or copied out of memory and .npz.

No file is unpickled, and no length in a header is believed beyond what the file holds.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.sources.columns import (
    AnyArray,
    Column,
    FileColumn,
    file_identity,
    join_parts,
    split_fields,
)
from tfshards.prep.sources.npy_header import check_array, read_header
from tfshards.prep.sources.npz import Member, copied_bytes, stage_member
from tfshards.schemas import InputError

# A dict of arrays by name, or a structured array.
Chunk: TypeAlias = "Mapping[str, AnyArray] | AnyArray"
AnyPath: TypeAlias = "str | os.PathLike[str]"

_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Files:
    """Files of .npy arrays that are one array, concatenated along axis 0 in this order.

    Attributes:
        paths: one or more.
        is_named: whether fields of a structured array become features ``NAME/FIELD`` rather than ``FIELD``.
    """

    paths: tuple[str, ...]
    is_named: bool = True


# What a column can be given as: an array, an .npy file or several that are one, or a member of an .npz file.
ColumnSource: TypeAlias = "AnyArray | AnyPath | Sequence[AnyPath] | Files | Member"


def stage_column(name: str, source: ColumnSource, folder: Path, *, preview: bool) -> dict[str, Column]:
    """Return the columns by feature: one, or of a structured array one a field.

    Args:
        name: of the array; fields become ``NAME/FIELD``, and fields of fields ``NAME/FIELD/FIELD``.
        source: where the array is; what is in no file of its own is copied into ``folder``.
        folder: exists and is empty at first.
        preview: copy scalars only; of other arrays look at the header.

    Raises:
        InputError: the array cannot be read, holds Python objects, has no axis, or is cut or padded.
    """
    if isinstance(source, Member):
        header, column = stage_member(source, folder / "member.bin", copies=not preview)
        fields = split_fields(column, header.dtype)
        return dict(_named_fields(name, fields))
    files = _as_files(name, source)
    if files:
        return _file_columns(name, files)
    arrays = _unique(plain_arrays(name, cast("AnyArray", source)))
    columns: dict[str, Column] = {}
    for feature, array in arrays.items():
        check_array(f"array {feature!r}", array.dtype, array.shape)
        if preview and array.ndim > 1:
            columns[feature] = FileColumn("", 0, _dtype_name(array.dtype), array.shape, False, "")
        else:
            part = folder / f"{len(columns)}"
            part.mkdir()
            columns.update(stage_chunks([{feature: array}], part))
    return columns


def bytes_to_copy(source: ColumnSource) -> int:
    """Return how many bytes ``stage_column`` copies at most.

    Raises:
        InputError: an archive cannot be read.
    """
    if isinstance(source, Member):
        return copied_bytes(source)
    return source.nbytes if isinstance(source, np.ndarray) else 0


def plain_arrays(name: str, array: AnyArray) -> Iterator[tuple[str, AnyArray]]:
    """Yield the array by its name; of a structured array each field, likewise, as a view.

    Raises:
        InputError: an array is masked, has objects or no fields.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(f"array {name!r}: is masked, which no record can say; use array.filled(VALUE)")
    array = np.asarray(array)
    if array.dtype.names is None:
        yield name, array
        return
    check_array(f"array {name!r}", array.dtype, array.shape)
    if not array.dtype.names:
        raise InputError(f"array {name!r}: is a structured array without fields")
    structured = cast("npt.NDArray[np.void]", array)
    for field_name in array.dtype.names:
        yield from plain_arrays(f"{name}/{field_name}" if name else field_name, structured[field_name])


def fields_of(array: AnyArray) -> dict[str, AnyArray]:
    """Return the fields of a structured array as features of their own.

    Raises:
        InputError: see ``plain_arrays``; or two would have one name.
    """
    return _unique(plain_arrays("", array))


def stage_chunks(chunks: Iterable[Chunk], folder: Path) -> dict[str, Column]:
    """Write the concatenation of the chunks into ``folder``, one file a feature, and return the columns.

    Raises:
        InputError: there is no chunk, or chunks differ in names, dtype, or shape behind the first axis.
    """
    columns: dict[str, _Growing] = {}
    try:
        for number, chunk in enumerate(chunks):
            arrays = _chunk_arrays(number, chunk)
            if number == 0:
                columns = {name: _Growing(folder / f"{index}.bin") for index, name in enumerate(arrays)}
            elif set(arrays) != set(columns):
                found, wanted = ", ".join(sorted(arrays)), ", ".join(sorted(columns))
                raise InputError(f"chunk {number} has the arrays {found}; the first chunk has {wanted}")
            for name, growing in columns.items():
                growing.append(f"array {name!r} of chunk {number}", arrays[name])
    finally:
        for growing in columns.values():
            growing.file.close()
    if not columns:
        raise InputError("there are no chunks: give at least one")
    return {name: growing.column() for name, growing in columns.items()}


def _chunk_arrays(number: int, chunk: Chunk) -> dict[str, AnyArray]:
    if isinstance(chunk, np.ndarray) and chunk.dtype.names:
        return fields_of(chunk)
    if not isinstance(chunk, Mapping):
        raise InputError(
            f"chunk {number} is of type {type(chunk).__name__}; give dicts of arrays, or structured arrays"
        )
    return _unique(item for name, array in chunk.items() for item in plain_arrays(name, array))


def _unique(arrays: Iterable[tuple[str, AnyArray]]) -> dict[str, AnyArray]:
    found: dict[str, AnyArray] = {}
    for name, array in arrays:
        if name in found:
            raise InputError(two_features(name))
        found[name] = array
    return found


def two_features(name: str) -> str:
    """Return the message for two arrays, or fields, of which each would be the feature ``name``."""
    return f"there are two arrays or fields {name!r}; name the arrays with NAME=FILE.npy, or rename the field"


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
        check_array(place, array.dtype, array.shape)
        if self.dtype is None:
            self.dtype, self.item_shape = array.dtype, array.shape[1:]
        if (array.dtype, array.shape[1:]) != (self.dtype, self.item_shape):
            found = f"{array.dtype} {array.shape[1:]}"
            raise InputError(f"{place}: is {found} an example; the first is {self.dtype} {self.item_shape}")
        # a few rows at a time: the array may be mapped, and larger than memory
        step = max(1, _COPY_BYTES * len(array) // max(1, array.nbytes))
        for start in range(0, len(array), step):
            data = array[start : start + step].tobytes()
            self.file.write(data)
            self.digest.update(data)
        self.length += len(array)

    def column(self) -> FileColumn:
        assert self.dtype is not None
        shape = (self.length, *self.item_shape)
        identity = f"sha256:{self.digest.hexdigest()}"
        return FileColumn(str(self.path), 0, _dtype_name(self.dtype), shape, False, identity)


def _as_files(name: str, source: ColumnSource) -> Files | None:
    if isinstance(source, Files):
        return source
    if isinstance(source, (str, os.PathLike)):
        return Files((os.fspath(source),))
    if not isinstance(source, (list, tuple)) or not all(isinstance(p, (str, os.PathLike)) for p in source):
        return None
    paths = tuple(os.fspath(path) for path in source)
    odd = [path for path in paths if not path.endswith(".npy")]
    if odd or not paths:
        found = f"{odd[0]!r} is none" if odd else "it is empty"
        raise InputError(
            f"array {name!r}: a list must hold the paths of .npy files, but {found}; "
            "give values as a NumPy array"
        )
    return Files(paths)


def _file_columns(name: str, files: Files) -> dict[str, Column]:
    parts: dict[str, list[tuple[str, FileColumn]]] = {}
    for index, path in enumerate(files.paths):
        column, dtype = _npy_column(Path(path))
        fields = split_fields(column, dtype)
        is_plain = () in fields
        found = dict(_named_fields(name if files.is_named or is_plain else "", fields))
        if index and set(found) != set(parts):
            listed, wanted = ", ".join(sorted(found)), ", ".join(sorted(parts))
            raise InputError(f"{path}: holds {listed}; {files.paths[0]} holds {wanted}; parts must be alike")
        for feature, each in found.items():
            parts.setdefault(feature, []).append((path, each))
    return {feature: join_parts(feature, each) for feature, each in parts.items()}


def _named_fields(
    name: str, fields: Mapping[tuple[str, ...], FileColumn]
) -> Iterator[tuple[str, FileColumn]]:
    if not fields:
        raise InputError(f"array {name!r}: is a structured array without fields")
    names = ["/".join((name, *path) if name else path) for path in fields]
    for feature in names:
        if names.count(feature) > 1:
            raise InputError(two_features(feature))
    yield from zip(names, fields.values(), strict=True)


def _npy_column(path: Path) -> tuple[FileColumn, np.dtype[np.generic]]:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            header = read_header(file, str(path), status.st_size)
            offset = file.tell()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    column = FileColumn(
        os.path.realpath(path),
        offset,
        header.dtype.str,
        header.shape,
        header.fortran,
        file_identity(status),
        is_original=True,
    )
    return column, header.dtype


def _dtype_name(dtype: np.dtype[np.generic]) -> str:
    # ml_dtypes' bfloat16 has no string that NumPy could read back
    return "bfloat16" if dtype.name == "bfloat16" else dtype.str
