"""Values of rows in files: each row is an example in a file, which is found, and checked, by its origin.

An origin has the name of a file, and offset, length and checksum of the example in it, so that workers on any
machine read only the bytes of their rows.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, groupby

import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.records.example import Values, example_encoder
from tfshards.prep.sources.staging_folder import is_staged, staging_gone
from tfshards.schemas import Feature, InputError, Schema
from tfshards.schemas.example import Decoded, decode_example
from tfshards.schemas.frames import masked_crc32c
from tfshards.schemas.storage import AnyPath, in_flight, read_range
from tfshards.schemas.storage.any_path import in_store, on_disk
from tfshards.schemas.storage.untrusted import open_regular
from tfshards.schemas.storage.verbs import Sink, new_file

_NAME_BYTES = 8
# offset, length and masked CRC-32C; origins in a file sort by offset
_NUMBERS = struct.Struct(">QQI")
# What ``Spill.add`` returns of a row: the number of bytes of its values, their digest, and their origin.
# ``add_images`` also returns columns of the sizes of images, with names that begin with SIZE.
SPILLED = {"size": pa.int64(), "digest": pa.binary(16), "origin": pa.large_binary()}
SIZE = "size/"


class Spill:
    """A new file of values of rows."""

    def __init__(self, folder: AnyPath | None, features: Sequence[Feature]) -> None:
        """Create the file, for values of these features, in a folder; without one, only describe rows."""
        self._folder = folder
        self._encode = example_encoder(Schema(tuple(features))) if features else lambda _: ()
        self._name = secrets.token_bytes(_NAME_BYTES)
        self._sink: Sink | None = None if folder is None else new_file(_path(folder, self._name), folder)
        self._num_bytes = 0

    def add(self, values: Sequence[Values]) -> tuple[int, bytes, bytes]:
        """Write the values of a row, in the order of the features; return its columns ``SPILLED``."""
        data = b"".join(self._encode(values))
        origin = self._name + _NUMBERS.pack(self._num_bytes, len(data), masked_crc32c(data))
        if self._sink is not None:
            self._sink.write(data)
        self._num_bytes += len(data)
        return len(data), hashlib.sha256(data).digest()[: SPILLED["digest"].byte_width], origin

    def add_images(self, columns: Mapping[str, pa.Array]) -> pa.Table:
        """Write the images of some rows, null for none; return ``SPILLED``, and sizes, -1 for none."""
        images = zip(*(column.to_pylist() for column in columns.values()), strict=True)
        # lists of one image or none
        rows = [self.add([[] if each is None else [each] for each in row]) for row in images]
        found = {name: pa.array([row[at] for row in rows], SPILLED[name]) for at, name in enumerate(SPILLED)}
        for name, column in columns.items():
            found[SIZE + name] = pc.fill_null(pc.binary_length(column), -1).cast(pa.int64())
        return pa.table(found)

    def finish(self) -> None:
        """Finish the file, which other machines may not see before."""
        if self._sink is None or self._folder is None:
            return
        self._sink.finish()
        if in_store(self._folder) and not is_staged(self._folder):
            # nothing would remove it: a later run has removed the folder while this was uploaded
            _path(self._folder, self._name).unlink()
            raise staging_gone(self._folder)


def _path(folder: AnyPath, origin: bytes) -> AnyPath:
    return folder / f"{origin[:_NAME_BYTES].hex()}.spill"


def spilled_values(folder: AnyPath, origins: Sequence[bytes]) -> list[dict[str, Decoded]]:
    """Return the values at these origins by feature, as lists.

    Raises:
        InputError: they cannot be read, or are damaged.
    """
    # one open file at a time: there are as many files as bundles; of objects only what is needed
    files = groupby(sorted(origins), key=lambda origin: origin[:_NAME_BYTES])
    parts = ([*of_file] for _, of_file in files) if on_disk(folder) else ([origin] for origin in origins)
    read = partial(_read, folder)
    found = dict(chain.from_iterable(map(read, parts) if on_disk(folder) else in_flight(read, parts)))
    return [decode_example(found[origin]) for origin in origins]


def _read(folder: AnyPath, origins: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return origins in one file, each with the example there."""
    path, numbers = _path(folder, origins[0]), [_NUMBERS.unpack(each[_NAME_BYTES:]) for each in origins]
    try:
        if in_store(path):
            data = [read_range(path, offset, offset + length) for offset, length, _ in numbers]
        else:
            with open_regular(path, buffering=0) as file:
                data = [os.pread(file.fileno(), length, offset) for offset, length, _ in numbers]
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; let no other build write to the dataset, and mount "
            "a folder on every worker under the same path"
        ) from None
    for (_, _, checksum), each in zip(numbers, data, strict=True):
        if masked_crc32c(each) != checksum:
            raise InputError(f"{path}: values were damaged after they were listed; run the same build again")
    return [*zip(origins, data, strict=True)]
