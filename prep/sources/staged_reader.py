"""Read staged rows, and the images that they hold or name."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache, partial
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from tfshards.prep.imaging.reasons import Reason
from tfshards.prep.records.example import Values
from tfshards.prep.sources.array_files import AnyArray, ArrayFile, mapped
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Rejected, Row, pieces_of
from tfshards.prep.sources.features import numbers_of
from tfshards.prep.sources.fetching import FILES_AHEAD, unreadable
from tfshards.prep.sources.image_paths import location_of
from tfshards.prep.sources.keys import LazyKeys, find_key, to_bytes, to_text
from tfshards.schemas import Feature, InputError, Schema
from tfshards.schemas.columns import from_bits, raw_bytes
from tfshards.schemas.example import Decoded, decode_example
from tfshards.schemas.frames import masked_crc32c
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath, LocalPath, any_path, in_flight

if TYPE_CHECKING:
    # Pillow, which only images need, takes as long to import as many rows of numbers to write
    from tfshards.prep.sources.pictures import EncodedImage, ImageRules

ROWS_NAME = "rows.arrow"
# Columns of rows.arrow, besides ``SPILLED``. Prefixes keep the names of features apart from them.
KEY, SPLIT, FAULT, GROUP = "key", "split", "fault", "group"
# The number of the row in the source, for arrays.
ROW = "row"
VALUE, IMAGE = "value/", "image/"
# What is known of values of a row that are in a .spill file: the number of their bytes, their digest, and
# their origin: the name of the file, and offset, length and masked CRC-32C of the values in it, so that
# workers on any machine read only the bytes of their rows. Origins in a file sort by offset.
SPILLED = {"size": pa.int64(), "digest": pa.binary(16), "origin": pa.large_binary()}
NAME_BYTES, NUMBERS = 8, struct.Struct(">QQI")


class _StagedRow(NamedTuple):
    """One row as it is staged.

    Attributes:
        key: its key.
        values: values by feature; of an image the bytes that the row holds, or None.
        files: the file of each image as it was listed, or None.
        fault: why the row is rejected, or None.
    """

    key: bytes
    values: dict[str, Values]
    files: Mapping[str, Mapping[str, Any] | None]
    fault: str | None

    def num_bytes(self) -> int:
        """Return the number of bytes to fetch for the row."""
        files = ((self.values.get(name), file) for name, file in self.files.items())
        return sum(max(file["size"], 0) for held, file in files if held is None and file)


@dataclass(frozen=True)
class StagedReader:
    """The reader of staged rows.

    Attributes:
        folder: folder, or its URL, of the staged files.
        root: folder, or its URL, to which paths of images are relative.
        schema: schema of the dataset.
        rules: how images and coordinates are stored; None in a source that has neither.
        spilled: features whose values, or some of whose images, are in .spill files.
        arrays: files of arrays by feature.
        recorded: what manifests record of the source.
        has_remote_images: whether images may be in object stores.
        staged: the listing; workers do not have it.
    """

    folder: str
    root: bytes
    schema: Schema
    rules: ImageRules | None
    spilled: tuple[str, ...]
    arrays: Mapping[str, tuple[ArrayFile, ...]]
    recorded: Mapping[str, Json]
    has_remote_images: bool
    staged: Listing | None = field(repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the listing, which may be large, and without what was mapped."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"staged": None}

    @cached_property
    def _files(self) -> _StagedFiles:
        # mapped no longer than the reader exists: deleted files occupy disk space as long as they are mapped
        folder = any_path(self.folder)
        return _fetched_files(folder, os.getpid()) if folder.is_far else _StagedFiles(folder)

    @cached_property
    def images(self) -> tuple[str, ...]:
        """The features that are images or masks."""
        return tuple(feature.name for feature in self.schema.features if feature.is_encoded)

    def in_place(self) -> dict[str, Path]:
        """Return the files of the user that are read in place, by the name of a copy of each."""
        files = (file for files in self.arrays.values() for file in files)
        return {file.name: Path(file.path) for file in files if file.path}

    def moved(self, folder: AnyPath) -> StagedReader:
        """Return the reader of copies of all files in another folder."""
        arrays = {name: tuple(file.copied() for file in files) for name, files in self.arrays.items()}
        return replace(self, folder=str(folder), arrays=arrays)

    def listing(self) -> Listing:
        """Return the listing."""
        assert self.staged is not None, "only the process that staged the rows has the listing"
        return self.staged

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        if self.rules is None or not self.images:
            return {**self.recorded}
        from tfshards.prep.sources.pictures import decoders_of

        options = self.rules.options
        decoders = decoders_of(options, has_masks=bool(self.rules.masks))
        return {**self.recorded, **options.to_json(), **decoders}

    def read(self, rows: Sequence[Row], schema: Schema) -> Iterator[Outcome]:
        """Yield the values of each row, or why it is rejected."""
        names = [name for name in schema.names if name != "key"]
        if self.rules is None or not (self.images or self.rules.coordinates):
            for piece in pieces_of(rows):
                _, columns = self._columns(piece, schema)
                keys = [to_bytes(row.key) for row in piece]
                yield from map(Accepted, zip(*(columns[name] for name in names), keys, strict=True))
            return
        from tfshards.prep.sources.pictures import convert_images

        def fetch(row: _StagedRow) -> tuple[_StagedRow, dict[str, EncodedImage]]:
            # the row itself is needed again with what was fetched for it
            return row, {} if row.fault else {name: self._image(row, name) for name in self.images}

        staged = (row for piece in pieces_of(rows) for row in self._staged(piece, schema))
        ahead = in_flight(fetch, staged, FILES_AHEAD, num_bytes=_StagedRow.num_bytes)
        for row, images in ahead if self.has_remote_images else map(fetch, staged):
            if row.fault is not None:
                yield Rejected(Reason.ANNOTATION, row.fault)
            else:
                yield convert_images(self.rules, images, {**row.values, "key": row.key}, schema.names)

    def _columns(self, rows: Sequence[Row], schema: Schema) -> tuple[IntArray, dict[str, Sequence[Any]]]:
        """Return the numbers of staged rows, and values by feature; of embedded images the bytes."""
        files = self._files
        numbers = files.find(rows)
        places = np.array(files.values(ROW, numbers), np.int64) if ROW in files.rows.column_names else numbers
        spilled = files.spilled(numbers) if self.spilled else []
        columns: dict[str, Sequence[Any]] = {}
        for feature in schema.features:
            name = feature.name
            if feature == schema.label:
                # an append to relabeled examples compares rows with the labels that these have
                columns[name] = [row.label for row in rows]
            elif name in self.spilled:
                lists = [values[name] for values in spilled]
                # a row of a table may hold no image
                columns[name] = [next(iter(each), None) for each in lists] if feature.is_single else lists
            elif name in self.arrays:
                columns[name] = files.of_arrays(feature, self.arrays[name], places)
            elif name != "key" and name not in self.images:
                columns[name] = files.values(VALUE + name, numbers)
        return numbers, columns

    def _staged(self, rows: Sequence[Row], schema: Schema) -> Iterator[_StagedRow]:
        """Yield rows as they are staged."""
        numbers, columns = self._columns(rows, schema)
        of_images = {name: self._files.values(IMAGE + name, numbers) for name in self.images}
        for at, fault in enumerate(self._files.values(FAULT, numbers)):
            values, files = ({name: column[at] for name, column in of.items()} for of in (columns, of_images))
            yield _StagedRow(to_bytes(rows[at].key), values, files, fault)

    def _image(self, row: _StagedRow, name: str) -> EncodedImage:
        """Read an image of a row."""
        from tfshards.prep.sources.pictures import read_image

        held, file = row.values.get(name), row.files[name]
        path, size = (file["path"], file["size"]) if file else (row.key, -1)
        if held is not None:
            return cast("bytes", held)
        if file is None or size < 0:
            lacks = ["the row holds no image"] if name in self.spilled else []
            lacks += [f"there is no file {to_text(path)!r}"] if path else []
            return Rejected(Reason.MISSING, ", and ".join(lacks) or "the row names no file")
        where = location_of(self.root, path) or os.path.join(self.root, path)
        return read_image(where, size, file["stamp"])


class _StagedFiles:
    """The staged files in a folder, each of which is mapped into memory when it is first read."""

    def __init__(self, folder: AnyPath) -> None:
        self._folder = folder
        self._arrays: dict[ArrayFile, AnyArray] = {}

    @cached_property
    def rows(self) -> pa.Table:
        """The rows in the order of their keys."""
        return mapped_table(self._folder / ROWS_NAME)

    @cached_property
    def _keys(self) -> ArrowKeys | None:
        return ArrowKeys(self.rows[KEY]) if KEY in self.rows.column_names else None

    def find(self, rows: Sequence[Row]) -> IntArray:
        """Return the numbers of some rows, which are also their keys if they have no other ones."""
        keys = self._keys
        found = (int(row.key) if keys is None else find_key(keys, to_bytes(row.key)) for row in rows)
        return np.fromiter(found, np.int64, len(rows))

    def values(self, name: str, numbers: IntArray) -> Sequence[Any]:
        """Return the values of some rows in a column of ``rows``; None for each without this column."""
        if name not in self.rows.column_names:
            return [None] * len(numbers)
        return _values(self.rows[name], numbers)

    def of_arrays(self, feature: Feature, files: Sequence[ArrayFile], numbers: IntArray) -> Sequence[Values]:
        """Return the values of rows in files of arrays, as the encoder takes them."""
        starts = np.cumsum([0, *(file.num_rows for file in files)])
        places = np.searchsorted(starts, numbers, side="right") - 1
        # of arrays that follow each other, whose byte orders may differ
        parts = [
            self._array(files[index], numbers[places == index] - starts[index])
            for index in np.unique(places).tolist()
        ]
        # from the order of the files to that of the numbers
        rows: AnyArray = np.concatenate(parts)[np.argsort(np.argsort(places, kind="stable"))]
        if feature.is_raw:
            data = raw_bytes(rows)
            step = feature.num_bytes
            return [data[row * step : (row + 1) * step] for row in range(len(rows))]
        if feature.dtype == "bfloat16":
            rows = from_bits(rows)
        values: Sequence[Values] = (rows.reshape(len(rows), -1) if feature.shape else rows).tolist()
        return values

    def _array(self, file: ArrayFile, numbers: IntArray) -> AnyArray:
        """Return a copy of rows, or raise InputError if a file of the user has changed meanwhile."""
        path = LocalPath(file.path) if file.path else self._folder / file.name
        try:
            file.check_unchanged()
            if file not in self._arrays:
                with path.local_copy() as local:
                    self._arrays[file] = mapped(local)
            rows: AnyArray = np.asarray(self._arrays[file][numbers])
            # again, because the file may have changed before the rows were read
            file.check_unchanged()
        except OSError as error:
            raise unreadable(path, error) from None
        return rows

    def spilled(self, numbers: IntArray) -> list[dict[str, Decoded]]:
        """Return the values of some rows that are in other files, by feature, as lists.

        Raises:
            InputError: they cannot be read, or are damaged.
        """
        folder, origins = self._folder, self.values("origin", numbers)
        # one open file at a time: there are as many files as bundles; of objects only what is needed
        files = groupby(sorted(origins), key=lambda origin: origin[:NAME_BYTES])
        parts = ([*of_file] for _, of_file in files) if not folder.is_far else ([each] for each in origins)
        found = dict(chain.from_iterable(folder.each(partial(_read_spilled, folder), parts)))
        return [decode_example(found[origin]) for origin in origins]


def spill_path(folder: AnyPath, origin: bytes) -> AnyPath:
    """Return the path of the file with this origin, or this name."""
    return folder / f"{origin[:NAME_BYTES].hex()}.spill"


def _read_spilled(folder: AnyPath, origins: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return origins in one file, each with the example there."""
    path, numbers = spill_path(folder, origins[0]), [NUMBERS.unpack(each[NAME_BYTES:]) for each in origins]
    try:
        if path.is_far:
            data = [bytes(path.read_range(offset, offset + length)) for offset, length, _ in numbers]
        else:
            with path.open_regular(buffering=0) as file:
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


def _values(column: pa.ChunkedArray, numbers: IntArray) -> Sequence[Any]:
    """Return the values of some rows of a staged column."""
    if column.num_chunks == 1 and not column.null_count:
        # Without functions of Arrow: the first one imports pandas, which takes as long as thousands of rows.
        chunk = column.chunk(0)
        if column.type == pa.int64():
            return cast("list[int]", numbers_of(chunk)[numbers].tolist())
        if column.type == pa.large_binary():
            texts = ArrowKeys(column)
            return [texts.at(number) for number in numbers.tolist()]
    found: list[Any] = column.take(pa.array(numbers)).to_pylist()
    return found


# Of objects, every process has a copy.
@lru_cache(maxsize=1)
def _fetched_files(folder: AnyPath, _process: int) -> _StagedFiles:
    return _StagedFiles(folder)


def mapped_table(path: AnyPath) -> pa.Table:
    """Return a staged table, mapped into memory rather than read; one in a store is fetched."""
    with path.local_copy() as local, open(local, "rb") as file:
        # not Arrow's memory map, which asks the system to read each batch as a whole
        return pa.ipc.open_file(pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))).read_all()


class ArrowKeys(LazyKeys):
    """A sorted column of keys in a staged file."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        self._column = array
        # as_py is several times slower
        _, offsets, data = array.buffers()
        self._offsets = memoryview(offsets).cast("q")[array.offset :]
        self._data = memoryview(data or b"")

    def __len__(self) -> int:
        return len(self._column)

    def at(self, number: int) -> bytes:
        """Return a key by its number."""
        return bytes(self._data[self._offsets[number] : self._offsets[number + 1]])
