"""The staged form of rows: what a source hands over is written to files that workers map, and listed.

rows.arrow   a row for each example, in the order of the keys
*.spill      embedded images and other large values, in the order of the source, written while it is read
*.npy        tensors: files of the user in place, or copies
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.records.example import Values, example_encoder
from tfshards.prep.sources.array_files import ArrayFile
from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.classes import twins
from tfshards.prep.sources.features import TEXT, array_of, is_bytes_type, numbers_of, offsets_of, unlisted
from tfshards.prep.sources.image_paths import ImageFiles, is_url
from tfshards.prep.sources.keys import KEY_FEATURE, RowKeys
from tfshards.prep.sources.labels import key_fault, splits_of
from tfshards.prep.sources.staged_reader import (
    FAULT,
    GROUP,
    IMAGE,
    KEY,
    NAME_BYTES,
    NUMBERS,
    ROW,
    ROWS_NAME,
    SPILLED,
    SPLIT,
    VALUE,
    ArrowKeys,
    StagedReader,
    mapped_table,
    spill_path,
)
from tfshards.prep.sources.staging_folder import is_staged, staging_gone
from tfshards.schemas import Feature, Schema
from tfshards.schemas.frames import masked_crc32c
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.stored import Sink

if TYPE_CHECKING:
    from tfshards.prep.sources.pictures import ImageRules

_MIX = np.uint64(0x9E3779B97F4A7C15)
# Rows of which values are in memory as objects of Python.
_MANY_ROWS = 1 << 16
# The columns of the sizes of images that ``Spill.add_images`` returns.
SIZE = "size/"


class Spill:
    """A new file of values of rows."""

    def __init__(self, folder: Path | AnyPath | None, features: Sequence[Feature]) -> None:
        """Create the file, for values of these features, in a folder; without one, only describe rows."""
        self._folder = made = None if folder is None else any_path(folder)
        self._encode = example_encoder(Schema(tuple(features))) if features else lambda _: ()
        self._name = secrets.token_bytes(NAME_BYTES)
        self._sink: Sink | None = None if made is None else spill_path(made, self._name).new_file(made)
        self._num_bytes = 0

    def add(self, values: Sequence[Values]) -> tuple[int, bytes, bytes]:
        """Write the values of a row, in the order of the features; return its columns ``SPILLED``."""
        data = b"".join(self._encode(values))
        origin = self._name + NUMBERS.pack(self._num_bytes, len(data), masked_crc32c(data))
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
        if self._folder.is_far and not is_staged(self._folder):
            # nothing would remove it: a later run has removed the folder while this was uploaded
            spill_path(self._folder, self._name).unlink()
            raise staging_gone(self._folder)


@dataclass(frozen=True)
class Rows:
    """Rows as a source has read them, in its own order.

    Attributes:
        num_rows: number of rows.
        features: features of the examples in order, without the key.
        values: values by feature, as ``features.StoredColumn`` has them.
        images: files of images and masks by feature.
        spilled: where the values of each row are that were written while the source was read, see
            ``Spill``.
        spilled_names: features that have such values.
        arrays: files of arrays by feature, one after another; axis 0 counts the rows.
        keys: key of each row as ``TEXT``; by default the paths of the first image, if these are unique, or
            else row numbers.
        splits: name of the split of each row as ``TEXT``, if the source has splits.
        faults: why a row is rejected, or null, as text.
        groups: group of each row, if the user groups rows.
        image_column: name by which users group rows of one image.
        class_names: class names in label order.
        rules: how images and coordinates are stored; None in a source that has neither.
        root: folder, or its URL, to which paths of images are relative.
        recorded: what manifests record of the source.
        warnings: warnings for the user.
        skipped: number of entries that are no rows, by reason.
        is_numbered: whether ``keys`` are numbers that the source does not state, see ``Listing``.
    """

    num_rows: int
    features: Sequence[Feature]
    rules: ImageRules | None
    recorded: Mapping[str, Json]
    values: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)
    images: Mapping[str, ImageFiles] = field(default_factory=dict)
    spilled: pa.Table | None = None
    spilled_names: Sequence[str] = ()
    arrays: Mapping[str, tuple[ArrayFile, ...]] = field(default_factory=dict)
    keys: pa.ChunkedArray | None = None
    splits: pa.ChunkedArray | None = None
    faults: pa.ChunkedArray | None = None
    groups: Sequence[bytes] | None = None
    image_column: str = ""
    class_names: tuple[str, ...] = ()
    root: bytes = b""
    warnings: Sequence[str] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    is_numbered: bool = False


def stage(rows: Rows, folder: Path | AnyPath | None, *, is_written: bool = False) -> StagedReader:
    """Return a reader of rows, after writing ``rows.arrow`` into a local folder, unless it is written.

    Without a folder, the reader only lists the rows.
    """
    folder = None if folder is None else any_path(folder)
    keys, warnings = (rows.keys, []) if rows.keys is not None else _keys_of_images(rows)
    table = _table(rows, keys)
    if keys is not None:
        table = table.take(pc.array_sort_indices(keys.combine_chunks()))
    if folder is not None and not is_written:
        with pa.OSFile(str(folder / ROWS_NAME), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        table = mapped_table(folder / ROWS_NAME)
    far = any(is_url(rows.root) or any(map(is_url, files.paths)) for files in rows.images.values())
    listing = _listing(rows, table, warnings)
    return StagedReader(
        folder=str(folder or ""),
        root=rows.root,
        schema=listing.schema,
        rules=rows.rules,
        spilled=tuple(rows.spilled_names),
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
    line = f"the paths of the feature {name!r} are no keys, so that these are row numbers: {fault}"
    return None, [] if name in rows.spilled_names else [line]


def _table(rows: Rows, keys: pa.ChunkedArray | None) -> pa.Table:
    """Return the columns of ``rows.arrow``, in the order of the source."""
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    given = {KEY: keys, SPLIT: rows.splits, FAULT: rows.faults}
    columns |= {name: column for name, column in given.items() if column is not None}
    if keys is not None and rows.arrays:
        columns[ROW] = array_of(np.arange(rows.num_rows))
    if rows.spilled is not None:
        columns |= {name: rows.spilled[name] for name in SPILLED}
    if rows.groups is not None:
        columns[GROUP] = pa.array(rows.groups, TEXT)
    columns |= {VALUE + name: values for name, values in rows.values.items()}
    for name, files in rows.images.items():
        parts = [pa.array(files.paths, TEXT), pa.array(files.sizes), pa.array(files.stamps)]
        columns[IMAGE + name] = pa.StructArray.from_arrays(parts, ["path", "size", "stamp"])
    return pa.table(columns)


def _listing(rows: Rows, table: pa.Table, warnings: Sequence[str]) -> Listing:
    """Return the listing of the staged rows.

    The identity covers all that is staged, except the sizes and times of files of images.
    """
    sizes, stamps = np.zeros(rows.num_rows, np.int64), [np.zeros(rows.num_rows, np.uint64)]
    identity = hashlib.sha256()
    for name in sorted({*table.column_names} - {GROUP, *SPILLED}):
        column = table[name]
        values = pc.struct_field(column, "path") if name.startswith(IMAGE) else column
        digest, of_values, stamps_of_values = _column_sums(values)
        identity.update(f"{name} {rows.num_rows} {digest}\n".encode("utf-8", "surrogateescape"))
        if name == SPLIT or name.startswith(VALUE):
            stamps.append(stamps_of_values)
            sizes += of_values if name != SPLIT else 0
    for name in rows.images:
        fields = (pc.struct_field(table[IMAGE + name], each) for each in ("size", "stamp"))
        size, stamp = (numbers_of(values.combine_chunks()) for values in fields)
        sizes += np.maximum(size, 0)
        stamps += [size.view(np.uint64), stamp.view(np.uint64)]
    if rows.spilled is not None:
        digests = table["digest"].combine_chunks()
        identity.update(digests.buffers()[1][: len(digests) * digests.type.byte_width])
        sizes += numbers_of(table["size"].combine_chunks()) if not rows.images else 0
    for name, parts in rows.arrays.items():
        identity.update(repr((name, [part.identity for part in parts])).encode())
        stamps += [np.full(rows.num_rows, part.stamp, np.uint64) for part in parts]
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
        groups=None if rows.groups is None else [*ArrowKeys(table[GROUP])],
        shared=rows.image_column if len({*real}) < len(real) else None,
        is_numbered=rows.is_numbered or KEY not in table.column_names,
    )


def _column_sums(column: pa.ChunkedArray) -> tuple[str, IntArray, npt.NDArray[np.uint64]]:
    """Return a digest of a column, and the size in bytes, -1 for null, and the stamp of each row.

    The column holds numbers, ``TEXT`` or text, or lists of these; null differs from any value. Results do not
    depend on how Arrow divides or pads values. The stamp of a row changes with its bytes.
    """
    # of lists, of their items, and of the content of these, because they come in parts of any length
    digests = lists, items, content = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    sizes, stamps = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
    for start in range(0, len(column), _MANY_ROWS):
        flat, lengths = unlisted(column.slice(start, _MANY_ROWS))
        marks, of_items, numbers, data = _item_sums(flat)
        items.update(marks)
        content.update(data)
        if lengths is not None:
            lists.update(lengths.astype("<i8").tobytes())
            offsets = offsets_of(of_items)[offsets_of(lengths)]
            view, of_items = memoryview(data), np.diff(offsets)
            numbers = np.array([crc32(view[a:b]) for a, b in pairwise(offsets.tolist())], np.int64)
        sizes.append(of_items)
        stamps.append(_mixed(numbers.view(np.uint64)))
    digest = hashlib.sha256("".join(part.hexdigest() for part in digests).encode()).hexdigest()
    return digest, np.concatenate(sizes), np.concatenate(stamps)


def _item_sums(flat: pa.ChunkedArray) -> tuple[bytes, IntArray, IntArray, bytes]:
    """Return what tells null items from others, and the size, a number, and the bytes of each item."""
    if is_bytes_type(flat.type):
        texts = pc.fill_null(flat.cast(TEXT), b"").to_pylist()
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        if flat.null_count:
            # which tells null from an empty text
            sizes[flat.is_null().to_numpy()] = -1
        numbers = np.fromiter(map(crc32, texts), np.int64, len(texts))
        return sizes.astype("<i8").tobytes(), sizes, numbers, b"".join(texts)
    missing = flat.is_null().to_numpy().tobytes() if flat.null_count else bytes(len(flat))
    flat = flat.fill_null(0) if flat.null_count else flat
    # booleans are packed
    is_packed = flat.type == pa.bool_()
    values = flat.to_numpy() if is_packed else numbers_of(flat.combine_chunks())
    sizes = np.full(len(values), values.itemsize, np.int64)
    numbers = values.astype(np.float64 if values.dtype.kind == "f" else np.int64).view(np.int64)
    return missing, sizes, numbers, values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return numbers of which each bit depends on all bits of the given one: a step of SplitMix64."""
    mixed: npt.NDArray[np.uint64] = numbers * _MIX
    mixed ^= mixed >> np.uint64(29)
    return mixed
