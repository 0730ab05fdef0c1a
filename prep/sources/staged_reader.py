"""Read staged rows, and the images that they hold or name."""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tfshards.prep.imaging.options import MAX_BYTES
from tfshards.prep.imaging.pixels import resized_pixels
from tfshards.prep.records.example import Values
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Rejected, Row, pieces_of
from tfshards.prep.sources.fetching import changed, fetched_ahead, read_as_listed, unreadable
from tfshards.prep.sources.image_paths import location_of
from tfshards.prep.sources.keys import LazyKeys, to_bytes, to_text
from tfshards.prep.sources.pictures import EncodedImage, ImageRules, content_of, convert_images, decoders_of
from tfshards.schemas import Feature, Schema
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.reasons import Reason
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.untrusted import open_regular

ROWS_NAME, WIDE_NAME = "rows.arrow", "wide.arrow"
# Columns of rows.arrow. Prefixes keep the names of features apart from these.
KEY, SPLIT, FAULT, WIDTH, HEIGHT, ROW = "key", "split", "fault", "width", "height", "row"
VALUE, IMAGE = "value/", "image/"
_COPY_BYTES = 1 << 20
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


class _Staged(NamedTuple):
    """One row as it is staged: values by feature, and its images before they are read."""

    key: bytes
    values: dict[str, Values]
    images: list[tuple[str, bytes, int, int, bytes | None]]
    stated: tuple[int, int] | None
    fault: str | None


@dataclass(frozen=True)
class StagedReader:
    """The reader of staged rows.

    Attributes:
        folder: folder, or its URL, of the staged files.
        root: folder, or its URL, to which paths of images are relative.
        schema: schema of the dataset.
        rules: how images are stored.
        images: features that are images or masks.
        wide: features of which ``wide.arrow`` has values.
        arrays: files of arrays by feature.
        recorded: what manifests record of the source.
        has_remote_images: whether images may be in object stores.
        staged: the listing; workers do not have it.
    """

    folder: str
    root: bytes
    schema: Schema
    rules: ImageRules
    images: tuple[str, ...]
    wide: tuple[str, ...]
    arrays: Mapping[str, tuple[ArrayFile, ...]]
    recorded: Mapping[str, Json]
    has_remote_images: bool
    staged: Listing | None = field(repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the listing, which may be large, and without what was mapped."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"staged": None}

    # What is mapped stays so as long as the reader exists, and no longer: a deleted file occupies disk space
    # while it is mapped.
    @cached_property
    def _table(self) -> pa.Table:
        return mapped_table(any_path(self.folder) / ROWS_NAME)

    @cached_property
    def _wide_file(self) -> _Wide:
        path = any_path(self.folder) / WIDE_NAME
        return _Wide(str(path)) if isinstance(path, Path) else _fetched_wide(str(path), os.getpid())

    @cached_property
    def _mapped(self) -> dict[ArrayFile, AnyArray]:
        return {}

    def moved(self, folder: AnyPath) -> StagedReader:
        """Return the reader of the same files in another folder."""
        return replace(self, folder=str(folder))

    def listing(self) -> Listing:
        """Return the listing."""
        assert self.staged is not None, "only the process that staged the rows has the listing"
        return self.staged

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        if not self.images:
            return {**self.recorded}
        options = self.rules.options
        decoders = decoders_of(options, has_masks=bool(self.rules.masks))
        return {**self.recorded, **options.to_json(), **decoders}

    def read(self, rows: Sequence[Row], schema: Schema) -> Iterator[Outcome]:
        """Yield the values of each row, or why it is rejected."""
        names = [name for name in schema.names if name != "key"]
        if not (self.images or self.rules.coordinates):
            for piece in pieces_of(rows):
                _, columns = self._columns(piece, schema)
                keys = [row.key.encode("utf-8", "surrogateescape") for row in piece]
                yield from map(Accepted, zip(*(columns[name] for name in names), keys, strict=True))
            return
        staged = (row for piece in pieces_of(rows) for row in self._staged(piece, schema))
        if self.has_remote_images:
            # the rows themselves are needed again with what was fetched for them
            fetched = fetched_ahead(lambda row: (row, self._contents(row)), staged, _num_bytes)
        else:
            fetched = ((row, self._contents(row)) for row in staged)
        for row, images in fetched:
            if row.fault is not None:
                yield Rejected(Reason.ANNOTATION, row.fault)
                continue
            conversions = convert_images(self.rules, images, row.values, row.stated)
            if isinstance(conversions, Rejected):
                yield conversions
            else:
                yield Accepted([*(row.values[name] for name in names), row.key], conversions)

    def _columns(self, rows: Sequence[Row], schema: Schema) -> tuple[IntArray, dict[str, Sequence[Any]]]:
        """Return the numbers of staged rows, and values by feature; of embedded images the bytes."""
        table = self._table
        keys = ArrowKeys(table[KEY]) if KEY in table.column_names else None
        found = [keys.find(to_bytes(row.key)) if keys else int(row.key) for row in rows]
        numbers = places = np.array(found, np.int64)
        if ROW in table.column_names:
            places = np.array(_values(table[ROW], numbers), np.int64)
        columns: dict[str, Sequence[Any]] = {}
        for feature in schema.features:
            name = feature.name
            if feature == schema.label:
                # an append to relabeled examples compares rows with the labels that these have
                columns[name] = [row.label for row in rows]
            elif VALUE + name in table.column_names:
                columns[name] = _values(table[VALUE + name], numbers)
            elif name in self.arrays:
                columns[name] = self._array_values(feature, self.arrays[name], places)
        if self.wide:
            columns |= _wide_values(self._wide_file, self.wide, places)
        return numbers, columns

    def _array_values(
        self, feature: Feature, files: Sequence[ArrayFile], numbers: IntArray
    ) -> Sequence[Values]:
        """Return the values of rows in files of arrays, as the encoder takes them."""
        rows = self._array_rows(files[0], numbers) if len(files) == 1 else self._joined_rows(files, numbers)
        if feature.kind == "raw":
            if rows.shape[1:] != feature.shape:
                height, width = (side or 0 for side in feature.shape[:2])
                rows = np.stack([resized_pixels(each, (width, height)) for each in rows])
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
            rows[chosen] = self._array_rows(files[index], numbers[chosen] - before)
        return rows

    def _array_rows(self, file: ArrayFile, numbers: IntArray) -> AnyArray:
        """Return a copy of rows, or raise InputError if a file of the user has changed meanwhile."""
        path = Path(file.path) if os.path.isabs(file.path) else any_path(self.folder) / file.path
        try:
            file.check_unchanged()
            if file not in self._mapped:
                self._mapped[file] = (
                    file.mapped(path)
                    if isinstance(path, Path)
                    else _fetched_array(str(path), file, os.getpid())
                )
            rows: AnyArray = np.asarray(self._mapped[file][numbers])
            # again, because the file may have changed before the rows were read
            file.check_unchanged()
        except OSError as error:
            raise unreadable(path, error) from None
        return rows

    def _staged(self, rows: Sequence[Row], schema: Schema) -> list[_Staged]:
        """Return rows as they are staged, one by one."""
        table = self._table
        numbers, columns = self._columns(rows, schema)
        wide = {name: columns.pop(name) for name in self.images if name in columns}
        images = {name: _values(table[IMAGE + name], numbers) for name in self.images}
        sides = [_values(table[name], numbers) for name in (WIDTH, HEIGHT) if name in table.column_names]
        faults = _values(table[FAULT], numbers) if FAULT in table.column_names else [None] * len(rows)
        found = []
        for index, row in enumerate(rows):
            stated = tuple(side[index] for side in sides)
            files = [
                (name, file["path"], file["size"], file["stamp"], wide[name][index] if name in wide else None)
                for name, file in ((name, files[index]) for name, files in images.items())
            ]
            values = {name: column[index] for name, column in columns.items()}
            is_stated = len(stated) == 2 and None not in stated
            size = (stated[0], stated[1]) if is_stated else None
            found.append(_Staged(to_bytes(row.key), values, files, size, faults[index]))
        return found

    def _contents(self, row: _Staged) -> list[EncodedImage]:
        """Read the images of a row."""
        return [] if row.fault else [self._content(*image) for image in row.images]

    def _content(self, name: str, path: bytes, size: int, stamp: int, held: bytes | None) -> EncodedImage:
        if held is not None:
            return EncodedImage(name, content_of(held), path)
        if size < 0:
            lacks = ["the row holds no image"] if name in self.wide else []
            lacks += [f"there is no file {to_text(path)!r}"] if path else []
            return EncodedImage(name, None, path, ", and ".join(lacks) or "the row names no file")
        where = location_of(self.root, path) or os.path.join(self.root, path)
        return EncodedImage(name, read_as_listed(where, size, stamp, MAX_BYTES), path)


def _num_bytes(row: _Staged) -> int:
    """Return the number of bytes to fetch for a row."""
    return sum(max(size, 0) for _, _, size, _, held in row.images if held is None)


def _values(column: pa.ChunkedArray, numbers: IntArray) -> Sequence[Any]:
    """Return the values of some rows of a staged column."""
    if column.num_chunks == 1 and not column.null_count:
        # Without functions of Arrow: the first one imports pandas, which takes as long as thousands of rows.
        chunk = column.chunk(0)
        if column.type == pa.int64():
            integers = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset :]
            return cast("list[int]", integers[numbers].tolist())
        if column.type == pa.large_binary():
            texts = ArrowKeys(column)
            return [texts.at(number) for number in numbers.tolist()]
    found: list[Any] = column.take(pa.array(numbers)).to_pylist()
    return found


def _wide_values(wide: _Wide, names: Sequence[str], numbers: IntArray) -> dict[str, list[Any]]:
    """Return the values of rows in ``wide.arrow`` by feature."""
    found: dict[str, list[Any]] = {name: [] for name in names}
    for number in numbers.tolist():
        batch, row = wide.find(number)
        for name in names:
            found[name].append(batch.column(name)[row].as_py())
    return found


class _Wide:
    """A file of record batches, of which single rows are read through a memory map."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            # not Arrow's memory map, which asks the system to read each batch as a whole
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        found = pa.ipc.open_file(pa.py_buffer(mapped))
        self._batches = [found.get_batch(number) for number in range(found.num_record_batches)]
        self._ends = [*accumulate(batch.num_rows for batch in self._batches)]

    def find(self, number: int) -> tuple[pa.RecordBatch, int]:
        """Return the batch that holds a row, and its index there."""
        index = bisect_right(self._ends, number)
        batch = self._batches[index]
        return batch, number - self._ends[index] + batch.num_rows


def mapped_table(path: AnyPath) -> pa.Table:
    """Return a staged table, mapped into memory rather than read; one in a store is fetched once."""
    return _table_in(str(path)) if isinstance(path, Path) else _fetched_table(str(path), os.getpid())


def _table_in(path: str) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(path)).read_all()


# Of an object, every process has a copy.
@lru_cache(maxsize=1)
def _fetched_table(path: str, _process: int) -> pa.Table:
    with _on_disk(path) as local:
        return _table_in(local)


@lru_cache(maxsize=1)
def _fetched_wide(path: str, _process: int) -> _Wide:
    with _on_disk(path) as local:
        return _Wide(local)


@lru_cache(maxsize=64)
def _fetched_array(path: str, file: ArrayFile, _process: int) -> AnyArray:
    with _on_disk(path) as local:
        return file.mapped(Path(local))


@contextmanager
def _on_disk(path: str) -> Iterator[str]:
    """Yield the path of a copy of an object, which is removed at the end, but stays mapped."""
    with tempfile.NamedTemporaryFile(prefix="tfshards-") as copy:
        with open_regular(any_path(path), buffering=0) as source:
            shutil.copyfileobj(source, copy, _COPY_BYTES)
        copy.flush()
        yield copy.name


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

    def __iter__(self) -> Iterator[bytes]:
        return iter(self[:])

    def at(self, number: int) -> bytes:
        """Return a key by its number."""
        return bytes(self._data[self._offsets[number] : self._offsets[number + 1]])

    def some(self, numbers: slice) -> list[bytes]:
        """Return some of the keys."""
        keys: list[bytes] = self._column[numbers].to_pylist()
        return keys

    def find(self, key: bytes) -> int:
        """Return the index of a key."""
        index = bisect_left(self, key)
        if index == len(self) or self[index] != key:
            raise KeyError(key)
        return index
