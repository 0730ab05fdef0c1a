"""The staged form of rows: what a source hands over is written to files that workers map, and listed.

rows.arrow   a row for each example, in the order of the keys
wide.arrow   embedded images and other large values, in the order of the source, written while it is read
*.npy        tensors: files of the user in place, or copies
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.array_files import ArrayFile
from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.classes import twins
from tfshards.prep.sources.features import TEXT, array_of, is_bytes_type, numbers_of, offsets_of, unlisted
from tfshards.prep.sources.image_paths import ImageFiles, is_url
from tfshards.prep.sources.keys import KEY_FEATURE, RowKeys
from tfshards.prep.sources.labels import key_fault, splits_of
from tfshards.prep.sources.staged_reader import (
    FAULT,
    HEIGHT,
    IMAGE,
    KEY,
    ROW,
    ROWS_NAME,
    SPLIT,
    VALUE,
    WIDE_NAME,
    WIDTH,
    ArrowKeys,
    StagedReader,
    mapped_table,
)
from tfshards.schemas import Feature, Schema
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json

if TYPE_CHECKING:
    from tfshards.prep.sources.pictures import ImageRules

_MIX = np.uint64(0x9E3779B97F4A7C15)
# Rows of which values are in memory as objects of Python.
_MANY_ROWS = 1 << 16


class Wide(NamedTuple):
    """What ``WideWriter`` has written.

    Attributes:
        sizes: number of bytes of each value by feature; -1 for none.
        stamps: stamp of each row by feature, see ``ColumnSums``.
        digest: digest of all values.
    """

    sizes: Mapping[str, IntArray]
    stamps: Mapping[str, npt.NDArray[np.uint64]]
    digest: str


@dataclass(frozen=True)
class Rows:
    """Rows as a source has read them, in its own order.

    Attributes:
        num_rows: number of rows.
        features: features of the examples in order, without the key.
        values: values by feature, as ``features.StoredColumn`` has them.
        images: files of images and masks by feature.
        wide: features whose values, or some of whose images, ``WideWriter`` has written.
        arrays: files of arrays by feature, one after another; axis 0 counts the rows.
        keys: key of each row as ``TEXT``; by default the paths of the first image, if these are unique, or
            else row numbers.
        splits: name of the split of each row as ``TEXT``, if the source has splits.
        stated: width and height of the image to which coordinates refer, as integers or null.
        faults: why a row is rejected, or null, as text.
        groups: group of each row, if the user groups rows.
        image_column: name by which users group rows of one image.
        class_names: class names in label order.
        rules: how images and coordinates are stored; None in a source that has neither.
        root: folder, or its URL, to which paths of images are relative.
        recorded: what manifests record of the source.
        warnings: warnings for the user.
        skipped: number of entries that are no rows, by reason.
    """

    num_rows: int
    features: Sequence[Feature]
    rules: ImageRules | None
    recorded: Mapping[str, Json]
    values: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)
    images: Mapping[str, ImageFiles] = field(default_factory=dict)
    wide: Wide | None = None
    arrays: Mapping[str, tuple[ArrayFile, ...]] = field(default_factory=dict)
    keys: pa.ChunkedArray | None = None
    splits: pa.ChunkedArray | None = None
    stated: tuple[pa.ChunkedArray, pa.ChunkedArray] | None = None
    faults: pa.ChunkedArray | None = None
    groups: Sequence[bytes] | None = None
    image_column: str = ""
    class_names: tuple[str, ...] = ()
    root: bytes = b""
    warnings: Sequence[str] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)


def stage(rows: Rows, folder: Path, *, preview: bool = False) -> StagedReader:
    """Return a reader of rows, after writing ``rows.arrow`` into a folder, unless for a preview."""
    keys, warnings = (rows.keys, []) if rows.keys is not None else _keys_of_images(rows)
    table, order = _table(rows, keys), np.arange(rows.num_rows)
    if keys is not None:
        order = pc.array_sort_indices(keys.combine_chunks()).to_numpy().astype(np.int64)
        table = table.take(pa.array(order))
    if not preview:
        with pa.OSFile(str(folder / ROWS_NAME), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        table = mapped_table(folder / ROWS_NAME)
    far = any(is_url(rows.root) or any(map(is_url, files.paths)) for files in rows.images.values())
    listing = _listing(rows, table, order, warnings)
    return StagedReader(
        folder=str(folder),
        root=rows.root,
        schema=listing.schema,
        rules=rows.rules,
        images=tuple(rows.images),
        wide=tuple(rows.wide.sizes) if rows.wide else (),
        arrays=rows.arrays,
        recorded=rows.recorded,
        has_remote_images=far,
        staged=listing,
    )


def _keys_of_images(rows: Rows) -> tuple[pa.ChunkedArray | None, list[str]]:
    """Return the paths of the first image if these can be keys, or None, and a warning that they cannot.

    The keys are then row numbers, and a warning reports it, because a row that is inserted later changes the
    keys of others. Images in a table need no paths.
    """
    if not rows.images:
        return None, []
    name, files = next(iter(rows.images.items()))
    paths = pa.chunked_array([pa.array(files.given, TEXT)])
    fault = key_fault(paths)
    if fault is None:
        return paths, []
    is_embedded = rows.wide is not None and name in rows.wide.sizes
    line = f"the paths of the feature {name!r} are no keys, so that these are row numbers: {fault}"
    return None, [] if is_embedded else [line]


def _table(rows: Rows, keys: pa.ChunkedArray | None) -> pa.Table:
    """Return the columns of ``rows.arrow``, in the order of the source."""
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    given = {KEY: keys, SPLIT: rows.splits, FAULT: rows.faults}
    columns |= {name: column for name, column in given.items() if column is not None}
    if rows.stated is not None:
        columns |= dict(zip((WIDTH, HEIGHT), rows.stated, strict=True))
    if keys is not None and (rows.wide is not None or rows.arrays):
        columns[ROW] = array_of(np.arange(rows.num_rows))
    columns |= {VALUE + name: values for name, values in rows.values.items()}
    for name, files in rows.images.items():
        parts = [pa.array(files.paths, TEXT), pa.array(files.sizes), pa.array(files.stamps)]
        columns[IMAGE + name] = pa.StructArray.from_arrays(parts, ["path", "size", "stamp"])
    return pa.table(columns)


def _listing(rows: Rows, table: pa.Table, order: IntArray, warnings: Sequence[str]) -> Listing:
    """Return the listing of the staged rows; ``order`` has the number in the source of each of them.

    The identity covers all that is staged, except the sizes and times of files of images.
    """
    sizes, stamps = np.zeros(rows.num_rows, np.int64), [np.zeros(rows.num_rows, np.uint64)]
    identity = hashlib.sha256()
    for name in sorted(table.column_names):
        column = table[name]
        sums = ColumnSums()
        sums.add(pc.struct_field(column, "path") if name.startswith(IMAGE) else column)
        identity.update(f"{name} {rows.num_rows} {sums.hexdigest()}\n".encode("utf-8", "surrogateescape"))
        if name == SPLIT or name.startswith(VALUE):
            stamps.append(sums.stamps)
            sizes += sums.sizes if name != SPLIT else 0
    for files in rows.images.values():
        sizes += np.maximum(files.sizes, 0)[order]
        stamps += [files.sizes.astype(np.uint64)[order], files.stamps.astype(np.uint64)[order]]
    if rows.wide:
        identity.update(rows.wide.digest.encode())
        stamps += [of_values[order] for of_values in rows.wide.stamps.values()]
        sizes += sum(n[order] for name, n in rows.wide.sizes.items() if name not in rows.images)
    for name, parts in rows.arrays.items():
        identity.update(repr((name, [part.identity for part in parts])).encode())
        stamps += [np.full(rows.num_rows, _array_stamp(part), np.uint64) for part in parts]
        sizes += parts[0].row_bytes
    schema = Schema((*rows.features, KEY_FEATURE), rows.class_names)
    splits = splits_of(table[SPLIT]) if SPLIT in table.column_names else None
    first = next(iter(rows.images.values()), None)
    real = [name for name in first.real if name] if first else []
    return Listing(
        schema=schema,
        keys=ArrowKeys(table[KEY]) if KEY in table.column_names else RowKeys(rows.num_rows),
        sizes=sizes,
        stamps=(reduce(lambda one, other: _mixed(one + other), stamps) >> np.uint64(1)).astype(np.int64),
        labels=numbers_of(table[VALUE + schema.label.name].combine_chunks()) if schema.label else None,
        splits=splits,
        skipped={name: count for name, count in rows.skipped.items() if count},
        identity=identity.hexdigest(),
        warnings=(*rows.warnings, *warnings, *twins(splits or (), "splits"), *twins(rows.class_names)),
        groups=None if rows.groups is None else [rows.groups[number] for number in order.tolist()],
        shared=rows.image_column if len({*real}) < len(real) else None,
    )


def _array_stamp(part: ArrayFile) -> int:
    """Return a number that changes with the content of an array: of a copy, with its digest."""
    if part.stamp:
        return part.stamp
    return int.from_bytes(hashlib.blake2b(part.identity.encode(), digest_size=8).digest(), "little")


class ColumnSums:
    """A digest of a column, and the size in bytes and the stamp of each row, from its parts in order.

    None of these depends on how Arrow divides or pads values. The stamp of a row changes with its bytes, so
    that ``append`` finds changed rows.
    """

    def __init__(self) -> None:
        # of lists, of their items, and of the content of these, because they come in parts of any length
        self._digests = [hashlib.sha256(), hashlib.sha256(), hashlib.sha256()]
        self._sizes = [np.zeros(0, np.int64)]
        self._stamps = [np.zeros(0, np.uint64)]

    def add(self, column: pa.ChunkedArray) -> None:
        """Add rows: numbers, ``TEXT`` or text, or lists of these; null differs from any value."""
        for start in range(0, len(column), _MANY_ROWS):
            self._add(column.slice(start, _MANY_ROWS))

    def _add(self, column: pa.ChunkedArray) -> None:
        lists, items, content = self._digests
        flat, lengths = unlisted(column)
        if is_bytes_type(flat.type):
            texts = pc.fill_null(flat.cast(TEXT), b"").to_pylist()
            sizes = np.fromiter(map(len, texts), np.int64, len(texts))
            if flat.null_count:
                # which tells null from an empty text
                sizes[flat.is_null().to_numpy()] = -1
            numbers = np.fromiter(map(crc32, texts), np.int64, len(texts))
            data = b"".join(texts)
            items.update(sizes.astype("<i8").tobytes())
        else:
            missing = flat.is_null().to_numpy().tobytes() if flat.null_count else bytes(len(flat))
            flat = flat.fill_null(0) if flat.null_count else flat
            # booleans are packed
            is_packed = flat.type == pa.bool_()
            values = flat.to_numpy() if is_packed else numbers_of(flat.combine_chunks())
            sizes = np.full(len(values), values.itemsize, np.int64)
            numbers = values.astype(np.float64 if values.dtype.kind == "f" else np.int64).view(np.int64)
            data = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
            items.update(missing)
        content.update(data)
        if lengths is not None:
            lists.update(lengths.astype("<i8").tobytes())
            offsets = offsets_of(sizes)[offsets_of(lengths)]
            view, sizes = memoryview(data), np.diff(offsets)
            numbers = np.array([crc32(view[a:b]) for a, b in pairwise(offsets.tolist())], np.int64)
        self._sizes.append(sizes)
        self._stamps.append(_mixed(numbers.view(np.uint64)))

    @property
    def sizes(self) -> IntArray:
        """The number of bytes of each row, shape ``(num_rows,)`` int64; -1 for null."""
        return np.concatenate(self._sizes)

    @property
    def stamps(self) -> npt.NDArray[np.uint64]:
        """The stamp of each row, shape ``(num_rows,)``."""
        return np.concatenate(self._stamps)

    def hexdigest(self) -> str:
        """Return the digest as text."""
        return hashlib.sha256("".join(part.hexdigest() for part in self._digests).encode()).hexdigest()


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return numbers of which each bit depends on all bits of the given one: a step of SplitMix64."""
    mixed: npt.NDArray[np.uint64] = numbers * _MIX
    mixed ^= mixed >> np.uint64(29)
    return mixed


class WideWriter:
    """Writes ``wide.arrow`` batch by batch while a source is read, so that memory does not hold it whole.

    Values are as in ``Rows.values``; those of images are ``TEXT``, and null where the row has none.
    """

    def __init__(self, folder: Path | None) -> None:
        """Write into a folder; None only counts and digests, for a preview."""
        self._path = None if folder is None else folder / WIDE_NAME
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._sums: defaultdict[str, ColumnSums] = defaultdict(ColumnSums)

    def write(self, columns: Mapping[str, pa.Array]) -> None:
        """Write the next rows; every call has the same features."""
        batch = pa.record_batch(dict(columns))
        if self._path is not None and self._writer is None:
            self._writer = pa.ipc.new_file(str(self._path), batch.schema)
        if self._writer is not None:
            self._writer.write_batch(batch)
        for name, column in columns.items():
            self._sums[name].add(pa.chunked_array([column]))

    def close(self) -> Wide | None:
        """Finish the file, and return what is in it; None if nothing was written."""
        if self._writer is not None:
            self._writer.close()
        if not self._sums:
            return None
        lines = "\n".join(f"{name} {sums.hexdigest()}" for name, sums in sorted(self._sums.items()))
        sizes = {name: sums.sizes for name, sums in self._sums.items()}
        stamps = {name: sums.stamps for name, sums in self._sums.items()}
        return Wide(sizes, stamps, hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest())
