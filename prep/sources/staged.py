"""The staged form of rows: what a source hands over is written to files that workers map, and listed.

rows.arrow   a row for each example, in the order of the keys
wide.arrow   embedded images and other large values, in the order of the source, written while it is read
*.npy        tensors: files of the user in place, or copies
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.classes import twins
from tfshards.prep.sources.features import TEXT, array_of, numbers_of, row_bytes, unlisted
from tfshards.prep.sources.image_paths import ImageFiles, is_url
from tfshards.prep.sources.keys import KEY_FEATURE, RowKeys, to_text
from tfshards.prep.sources.labels import splits_of
from tfshards.prep.sources.pictures import ImageRules
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
    ArrayFile,
    ArrowKeys,
    StagedReader,
    mapped_table,
)
from tfshards.schemas import Feature, Schema
from tfshards.schemas.errors import counted
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json

# Types whose values follow each other without gaps.
_PLAIN = (pa.int64(), pa.int32(), pa.float32(), pa.float64())
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Wide(NamedTuple):
    """What ``WideWriter`` has written.

    Attributes:
        sizes: number of bytes of each value by feature; -1 for none.
        stamps: what ``row_stamps`` returns of each feature.
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
        rules: how images are stored.
        root: folder, or its URL, to which paths of images are relative.
        recorded: what manifests record of the source.
        warnings: warnings for the user.
        skipped: number of entries that are no rows, by reason.
    """

    num_rows: int
    features: Sequence[Feature]
    rules: ImageRules
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
    order = None if keys is None else pc.array_sort_indices(keys.combine_chunks())
    table = _table(rows, keys)
    table = table if order is None else table.take(order)
    if not preview:
        with pa.OSFile(str(folder / ROWS_NAME), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        table = mapped_table(folder / ROWS_NAME)
    schema = Schema((*rows.features, KEY_FEATURE), rows.class_names)
    numbers = np.arange(rows.num_rows) if order is None else order.to_numpy().astype(np.int64)
    listing = _listing(rows, table, numbers, schema, warnings)
    far = any(is_url(rows.root) or any(map(is_url, files.paths)) for files in rows.images.values())
    return StagedReader(
        folder=str(folder),
        root=rows.root,
        schema=schema,
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

    Paths that are repeated or empty, or contain NUL, cannot be keys. The keys are then row numbers, and a
    warning reports it, because a row that is inserted later changes the keys of others.
    """
    if not rows.images:
        return None, []
    name, files = next(iter(rows.images.items()))
    is_embedded = rows.wide is not None and name in rows.wide.sizes
    paths = pa.chunked_array([pa.array(files.given, TEXT)])
    found, counts = pc.value_counts(paths).flatten()
    repeated = found.filter(pc.greater(counts, 1))
    if not len(repeated) and all(path and b"\0" not in path for path in found.to_pylist()):
        return paths, []
    if is_embedded:
        # images in a table need no paths
        return None, []
    fault = "a row names no file"
    if len(repeated):
        first = to_text(repeated[0].as_py())
        fault = f"several rows have the same image, for {counted(len(repeated), 'image')}, such as {first!r}"
    return None, [f"{fault}: the keys of the examples are row numbers, not paths"]


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


def _listing(
    rows: Rows, table: pa.Table, order: IntArray, schema: Schema, warnings: Sequence[str]
) -> Listing:
    """Return the listing of the staged rows; ``order`` has the number in the source of each of them."""
    sizes, stamps = np.zeros(rows.num_rows, np.int64), np.zeros(rows.num_rows, np.uint64)
    of_rows = [row_stamps(rows.splits)] if rows.splits is not None else []
    for values in rows.values.values():
        sizes += row_bytes(values)
        of_rows.append(row_stamps(values))
    for files in rows.images.values():
        sizes += np.maximum(files.sizes, 0)
        of_rows += [files.sizes.astype(np.uint64), files.stamps.astype(np.uint64)]
    for name, of_values in rows.wide.stamps.items() if rows.wide else ():
        of_rows.append(of_values)
        if rows.wide and name not in rows.images:
            sizes += rows.wide.sizes[name]
    for parts in rows.arrays.values():
        of_rows += [np.full(rows.num_rows, part.stamp, np.uint64) for part in parts if part.stamp]
        sizes += parts[0].row_bytes
    for part in of_rows:
        stamps = _mixed(stamps + part)
    label, splits = schema.label, splits_of(table[SPLIT]) if SPLIT in table.column_names else None
    shared, more = _shared(rows)
    return Listing(
        schema=schema,
        keys=ArrowKeys(table[KEY]) if KEY in table.column_names else RowKeys(rows.num_rows),
        sizes=sizes[order],
        stamps=(stamps >> np.uint64(1)).astype(np.int64)[order],
        labels=_labels(rows, table, label),
        splits=splits,
        skipped={name: count for name, count in rows.skipped.items() if count},
        identity=_identity(rows, table),
        warnings=(
            *rows.warnings,
            *warnings,
            *twins(splits or (), "splits"),
            *more,
            *twins(rows.class_names),
        ),
        groups=None if rows.groups is None else [rows.groups[number] for number in order.tolist()],
        shared=shared,
    )


def row_stamps(column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Return a number of each row that changes with its values, so that ``append`` finds changed rows."""
    flat, lengths = unlisted(column)
    if flat.type == TEXT:
        values = np.array([-1 if text is None else crc32(text) for text in flat.to_pylist()], np.int64)
    else:
        is_plain = flat.type in _PLAIN and not flat.null_count
        numbers = numbers_of(flat.combine_chunks()) if is_plain else flat.to_numpy()
        values = numbers.astype(np.float64 if numbers.dtype.kind == "f" else np.int64).view(np.int64)
    found = _mixed(values.astype(np.int64, copy=False).view(np.uint64))
    if lengths is None:
        return found
    ends = np.cumsum(lengths)
    # the place of an item in its list counts
    places = np.arange(len(found)) - np.repeat(ends - lengths, lengths)
    found = _mixed(found + places.view(np.uint64))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(found, dtype=np.uint64)])
    found = sums[ends] - sums[ends - lengths] + lengths.view(np.uint64)
    return _mixed(found)


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return numbers of which each bit depends on all bits of the given one: a step of SplitMix64."""
    mixed: npt.NDArray[np.uint64] = numbers * _MIX
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _labels(rows: Rows, table: pa.Table, label: Feature | None) -> IntArray | None:
    if label is None:
        return None
    return numbers_of(table[VALUE + label.name].combine_chunks())


def _shared(rows: Rows) -> tuple[str | None, list[str]]:
    """Return the column whose rows name the same images, if any do, and a warning about several splits."""
    first = next(iter(rows.images.values()), None)
    real = [name for name in first.real if name] if first else []
    if first is None or len({*real}) == len(real):
        return None, []
    if rows.splits is None:
        return rows.image_column, []
    splits_of_image: dict[bytes, dict[bytes, None]] = {}
    for image, split in zip(first.real, rows.splits.to_pylist(), strict=True):
        if image:
            splits_of_image.setdefault(image, {})[split] = None
    several = [image for image, splits in splits_of_image.items() if len(splits) > 1]
    if not several:
        return rows.image_column, []
    names = " and ".join(map(to_text, splits_of_image[several[0]]))
    line = f"{counted(len(several), 'image')} in several splits, such as {to_text(several[0])!r} in {names}"
    return rows.image_column, [line]


def _identity(rows: Rows, table: pa.Table) -> str:
    """Return a digest of all that is staged, except the sizes and times of files of images."""
    digest = hashlib.sha256()
    for name in sorted(table.column_names):
        column = ColumnDigest()
        of_images = name.startswith(IMAGE)
        column.update(pc.struct_field(table[name], "path") if of_images else table[name])
        digest.update(f"{name} {table.num_rows} {column.hexdigest()}\n".encode("utf-8", "surrogateescape"))
    digest.update((rows.wide.digest if rows.wide else "").encode())
    for name, parts in rows.arrays.items():
        digest.update(repr((name, [part.identity for part in parts])).encode())
    return digest.hexdigest()


class ColumnDigest:
    """A digest of values that does not depend on how Arrow divides or pads them."""

    def __init__(self) -> None:
        # of lists, of texts, and of their content, because these come in parts of any length
        self._parts = [hashlib.sha256(), hashlib.sha256(), hashlib.sha256()]

    def update(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Add values: numbers, ``TEXT`` or text, or lists of these; null differs from any value."""
        lists, texts, content = self._parts
        if isinstance(column, pa.Array):
            column = pa.chunked_array([column])
        flat, lengths = unlisted(column)
        if lengths is not None:
            lists.update(lengths.astype("<i8").tobytes())
        for chunk in flat.chunks:
            if pa.types.is_string(chunk.type) or pa.types.is_null(chunk.type):
                chunk = chunk.cast(pa.large_string())
            if chunk.type in (TEXT, pa.large_string()):
                texts.update(pc.fill_null(pc.binary_length(chunk), -1).to_numpy().astype("<i8").tobytes())
                content.update(_bytes_of(chunk))
                continue
            if not chunk.null_count and (chunk.type in _PLAIN):
                texts.update(bytes(len(chunk)))
                content.update(_little_endian(numbers_of(chunk)))
                continue
            texts.update(pc.is_null(chunk).to_numpy(zero_copy_only=False).tobytes())
            numbers = pc.fill_null(chunk, False if pa.types.is_boolean(chunk.type) else 0)
            content.update(_little_endian(numbers.to_numpy(zero_copy_only=False)))

    def hexdigest(self) -> str:
        """Return the digest as text."""
        return hashlib.sha256("".join(part.hexdigest() for part in self._parts).encode()).hexdigest()


def _bytes_of(chunk: pa.Array) -> memoryview:
    """Return the content of all texts of a chunk."""
    # what is under a null is not part of the values
    chunk = pc.fill_null(chunk, b"" if chunk.type == TEXT else "") if chunk.null_count else chunk
    _, offsets, data = chunk.buffers()
    if data is None or not len(chunk):
        return memoryview(b"")
    bounds = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    return memoryview(data)[int(bounds[0]) : int(bounds[-1])]


def _little_endian(numbers: npt.NDArray[Any]) -> bytes:
    return numbers.astype(numbers.dtype.newbyteorder("<"), copy=False).tobytes()


class WideWriter:
    """Writes ``wide.arrow`` batch by batch while a source is read, so that memory does not hold it whole.

    Values are as in ``Rows.values``; those of images are ``TEXT``, and null where the row has none.
    """

    def __init__(self, folder: Path | None) -> None:
        """Write into a folder; None only counts and digests, for a preview."""
        self._path = None if folder is None else folder / WIDE_NAME
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._digests: dict[str, ColumnDigest] = {}
        self._sizes: dict[str, list[IntArray]] = {}
        self._stamps: dict[str, list[npt.NDArray[np.uint64]]] = {}

    def write(self, columns: Mapping[str, pa.Array]) -> None:
        """Write the next rows; every call has the same features."""
        batch = pa.record_batch(dict(columns))
        if self._path is not None and self._writer is None:
            self._writer = pa.ipc.new_file(str(self._path), batch.schema)
        if self._writer is not None:
            self._writer.write_batch(batch)
        for name, column in columns.items():
            self._digests.setdefault(name, ColumnDigest()).update(column)
            chunks = pa.chunked_array([column])
            is_text = column.type == TEXT
            size = pc.fill_null(pc.binary_length(column), -1).to_numpy() if is_text else row_bytes(chunks)
            self._sizes.setdefault(name, []).append(size.astype(np.int64))
            self._stamps.setdefault(name, []).append(row_stamps(chunks))

    def close(self) -> Wide | None:
        """Finish the file, and return what is in it; None if nothing was written."""
        if self._writer is not None:
            self._writer.close()
        if not self._digests:
            return None
        text = "\n".join(f"{name} {self._digests[name].hexdigest()}" for name in sorted(self._digests))
        sizes = {name: np.concatenate(parts) for name, parts in self._sizes.items()}
        stamps = {name: np.concatenate(parts) for name, parts in self._stamps.items()}
        return Wide(sizes, stamps, hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest())
