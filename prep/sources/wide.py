"""Large values of rows: each row is an example in a file, which is found, and checked, by its origin.

An origin has the name of a file, and offset, length and checksum of the example in it, so that workers on any
machine read only the bytes of their rows.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.records.example import Values, example_encoder
from tfshards.prep.sources.staging_folder import is_staged, staging_gone
from tfshards.schemas import Feature, InputError, Schema
from tfshards.schemas.frames import masked_crc32c
from tfshards.schemas.index import IntArray
from tfshards.schemas.storage import AnyPath, in_flight, read_range
from tfshards.schemas.storage.any_path import in_store, on_disk
from tfshards.schemas.storage.untrusted import open_regular
from tfshards.schemas.storage.verbs import new_file

_NAME_BYTES = 8
# offset, length and masked CRC-32C; origins in a file sort by offset
_NUMBERS = struct.Struct(">QQI")
# What ``WideFile.add`` returns of a row: the number of bytes of its values, their digest, and their origin.
WIDE_COLUMNS = {"size": pa.int64(), "digest": pa.binary(16), "origin": pa.large_binary()}


class Wide(NamedTuple):
    """The large values of all rows, which have been written.

    Attributes:
        names: features that have large values.
        rows: the columns ``WIDE_COLUMNS``.
        sizes: number of bytes of each embedded image by feature; -1 for none.
    """

    names: tuple[str, ...]
    rows: pa.Table
    sizes: Mapping[str, IntArray]

    @property
    def digests(self) -> npt.NDArray[np.uint64]:
        """The digest of each row, shape ``(num_rows, 2)``."""
        return np.frombuffer(self.rows["digest"].combine_chunks().buffers()[1], "<u8").reshape(-1, 2)


class WideFile:
    """A new file of large values.

    Attributes:
        num_bytes: size of the file.
    """

    def __init__(self, folder: AnyPath | None, features: Sequence[Feature], header: bytes = b"") -> None:
        """Create the file in a folder; without one, rows are only described.

        Args:
            folder: the folder.
            features: features that have large values.
            header: a line that ``header_of`` returns.
        """
        self._folder = folder
        self._encode = example_encoder(Schema(tuple(features))) if features else lambda _: ()
        self._name = secrets.token_bytes(_NAME_BYTES)
        self._sink = None if folder is None else new_file(_path(folder, self._name), folder)
        self.num_bytes: int = 0
        self._write(header)

    def add(self, values: Sequence[Values]) -> tuple[int, bytes, bytes]:
        """Write the values of a row, in the order of the features; return its ``WIDE_COLUMNS``."""
        data = b"".join(self._encode(values))
        origin = self._name + _NUMBERS.pack(self.num_bytes, len(data), masked_crc32c(data))
        self._write(data)
        return (len(data), hashlib.sha256(data).digest()[: WIDE_COLUMNS["digest"].byte_width], origin)

    def _write(self, data: bytes) -> None:
        if self._sink is not None:
            self._sink.write(data)
        self.num_bytes += len(data)

    def finish(self) -> None:
        """Finish the file, which other machines may not see before."""
        if self._sink is None:
            return
        self._sink.finish()
        if self._folder and in_store(self._folder) and not is_staged(self._folder):
            # nothing would remove it: a later run has removed the folder while this was uploaded
            _path(self._folder, self._name).unlink()
            raise staging_gone(self._folder)


class WideWriter:
    """Writes the embedded images of a table while it is read, so that memory does not hold them."""

    def __init__(self, folder: Path | None) -> None:
        """Write into a folder; None only describes the images, for a preview."""
        self._folder = folder
        self._file: WideFile | None = None
        self._rows: list[pa.Table] = []
        self._sizes: defaultdict[str, list[IntArray]] = defaultdict(list)

    def write(self, columns: Mapping[str, pa.Array]) -> None:
        """Write the next rows; a row without an image has null. Every call has the same features."""
        if self._file is None:
            features = [Feature(name, "bytes", "bytes", (None,)) for name in columns]
            self._file = WideFile(self._folder, features)
        images = zip(*(column.to_pylist() for column in columns.values()), strict=True)
        # lists of one image or none
        written = [self._file.add([[] if each is None else [each] for each in row]) for row in images]
        parts = {name: [row[at] for row in written] for at, name in enumerate(WIDE_COLUMNS)}
        self._rows.append(pa.table(parts, pa.schema(WIDE_COLUMNS)))
        for name, column in columns.items():
            sizes = pc.fill_null(pc.binary_length(column), -1)
            self._sizes[name].append(sizes.to_numpy().astype(np.int64))

    def close(self) -> Wide | None:
        """Finish the file, and return what is in it; None if nothing was written."""
        if self._file is None:
            return None
        self._file.finish()
        sizes = {name: np.concatenate(parts) for name, parts in self._sizes.items()}
        return Wide((*sizes,), pa.concat_tables(self._rows), sizes)


def _path(folder: AnyPath, origin: bytes) -> AnyPath:
    return folder / f"{origin[:_NAME_BYTES].hex()}.spill"


@contextmanager
def _reading(path: AnyPath) -> Iterator[AnyPath]:
    """Yield a path; an error of the operating system becomes an InputError."""
    try:
        yield path
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; let no other build write to the dataset, and mount "
            "a folder on every worker under the same path"
        ) from None


def header_of(folder: AnyPath, origin: bytes) -> bytes:
    """Return the header of the file with this origin."""
    with _reading(_path(folder, origin)) as path, open_regular(path) as file:
        return file.readline()


def wide_values(folder: AnyPath, origins: Sequence[bytes]) -> list[bytes]:
    """Return the examples at these origins, or raise InputError if they cannot be read or are damaged."""
    if not on_disk(folder):
        return [*in_flight(partial(_value_in_store, folder), origins)]
    found: dict[bytes, bytes] = {}
    # one open file at a time: there are as many files as bundles
    for name, of_file in groupby(sorted(origins), key=lambda origin: origin[:_NAME_BYTES]):
        with _reading(_path(folder, name)) as path, open(str(path), "rb", buffering=0) as file:
            for origin in of_file:
                offset, length, checksum = _NUMBERS.unpack(origin[_NAME_BYTES:])
                found[origin] = _checked(path, os.pread(file.fileno(), length, offset), checksum)
    return [found[origin] for origin in origins]


def _value_in_store(folder: AnyPath, origin: bytes) -> bytes:
    offset, length, checksum = _NUMBERS.unpack(origin[_NAME_BYTES:])
    with _reading(_path(folder, origin)) as path:
        return _checked(path, read_range(path, offset, offset + length), checksum)


def _checked(path: AnyPath, data: bytes, checksum: int) -> bytes:
    if masked_crc32c(data) != checksum:
        raise InputError(f"{path}: values were damaged after they were listed; run the same build again")
    return data
