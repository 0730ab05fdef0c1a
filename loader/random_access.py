"""``Records``: the examples of a split by their numbers, without TensorFlow."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from tfshards.loader.options.load_options import whole_cache_of
from tfshards.loader.options.selection import absolute, select_features
from tfshards.loader.reading.cache import copied_shards
from tfshards.loader.reading.frames import Frames, read_values
from tfshards.loader.reading.source import OpenSplit, split_name
from tfshards.schemas import InputError, OptionsError, Schema, read_manifest
from tfshards.schemas.columns import Columns
from tfshards.schemas.keys import KeyTable, each_shard
from tfshards.schemas.storage import any_path

Example: TypeAlias = "dict[str, Any]"
Batch: TypeAlias = "dict[str, npt.NDArray[Any]]"

# Records that are read together when all are.
_TOGETHER = 1024


class Records:
    """The examples of a split in stored order, as a sequence; a value is read when it is asked for.

    An example is a dict of NumPy values by feature: an array of the feature's shape and dtype, a scalar of
    NumPy, or bytes for byte strings and encoded images. ``records[7]`` is an example, ``records[:100]`` and
    ``records[[3, 1, 4]]`` are a dict of columns: arrays of shape ``(n, *shape)``, and arrays of objects for
    bytes and for features whose shape varies.

    It has the methods of a map-style dataset of PyTorch and of a ``RandomAccessDataSource`` of Grain. Any
    number of threads may read; it is pickled as the path, in less than 1 KB, and refuses another build when
    it is unpickled.

    Args:
        path: the directory with ``dataset.json``, or its URL; neighbors are read together, from a
            bucket by one request.
        split: its name; may be left out if there is only one.
        select: names of features; by default all.
        cache: "disk:PATH", a folder to which the shards are copied at first, as by ``load``; None reads them
            where they are.

    Raises:
        OptionsError: an argument is not allowed, or a feature needs a package that is not installed.
        InputError: the dataset or the split does not exist, or its shards are compressed,
            and there is no ``cache``.
        FormatError: the manifest breaks the format; when a record is read, it, its shard or its index is
            damaged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        split: str | None = None,
        *,
        select: Sequence[str] | None = None,
        cache: str | None = None,
    ) -> None:
        path = str(absolute(path))
        cached = whole_cache_of(cache)
        self._arguments = (path, split, select, cache)
        manifest, root = read_manifest(path), any_path(path)
        source = OpenSplit(root, manifest, split_name(manifest, split, root))
        self.schema: Schema = manifest.schema
        self.build_id: str = manifest.build_id
        self.split: str = source.name
        self._columns = Columns(select_features(self.schema, select))
        self._root = source.root
        copies = copied_shards(source, cached, strict=True)
        self._frames = Frames(source.root, source.split.shards, copies)
        self._shards = source.split.shards
        self._table: KeyTable | None = None

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self._frames)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | npt.NDArray[np.integer[Any]]) -> Batch: ...
    def __getitem__(self, index: Any) -> Example | Batch:
        """Return one example, or columns of several in the order that is asked for."""
        if isinstance(index, slice):
            return self._read(np.arange(*index.indices(len(self)), dtype=np.int64))
        if isinstance(index, Sequence) or np.ndim(index) == 1:
            return self._read(self._numbers(index))
        number = self._numbers([operator.index(index)])
        return {name: column[0] for name, column in self._read(number).items()}

    def __getitems__(self, indices: Sequence[int]) -> list[Example]:
        """Return some examples, as PyTorch's ``DataLoader`` asks for a batch."""
        columns = self._read(self._numbers(indices))
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    # as Grain asks for a batch
    _getitems = __getitems__

    def __iter__(self) -> Iterator[Example]:
        """Yield all examples, which are read by the thousand."""
        for start in range(0, len(self), _TOGETHER):
            yield from self.__getitems__(range(start, min(start + _TOGETHER, len(self))))

    @property
    def keys(self) -> list[bytes]:
        """The key of each example, from the files of keys."""
        self._check_keys()
        return [key for _, keys in each_shard(self._root, self._shards) for key in keys]

    def index_of(self, key: str | bytes) -> int:
        """Return the number of the example with a key, or raise KeyError.

        The first call reads all keys of the split, and keeps 24 bytes for each.
        """
        if self._table is None:
            self._check_keys()
            self._table = KeyTable(self._root, self._shards)
        number = self._table.find(os.fsencode(key))
        if number < 0:
            raise KeyError(key)
        return number

    def _check_keys(self) -> None:
        if self.schema.key is None:
            raise InputError(f"{self._root}: the examples have no keys; use their numbers")

    def _numbers(self, indices: Sequence[int] | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        array = np.asarray(indices)
        if array.size and array.dtype.kind not in "iu":
            raise OptionsError(f"records are numbered by integers, not {array.dtype}")
        numbers = array.astype(np.int64).reshape(-1)
        outside = (numbers < -len(self)) | (numbers >= len(self))
        if outside.any():
            raise IndexError(f"record {numbers[np.argmax(outside)]} of {len(self)}")
        return np.where(numbers < 0, numbers + len(self), numbers)

    def _read(self, numbers: npt.NDArray[np.int64]) -> Batch:
        return read_values(self._root, self._frames, self._columns, numbers)

    def __reduce__(self) -> tuple[Any, ...]:
        path, split, select, cache = self._arguments
        return _reopened, (self.build_id, path, split, {"select": select, "cache": cache})

    def __repr__(self) -> str:
        path, _, select, *_ = self._arguments
        chosen = "" if select is None else f", select={list(select)!r}"
        return f"Records({path!r}, {self.split!r}{chosen}): {len(self):,} examples of build {self.build_id}"


def _reopened(build_id: str, path: str, split: str | None, options: dict[str, Any]) -> Records:
    records = Records(path, split, **options)
    if records.build_id != build_id:
        raise InputError(
            f"{any_path(path)} holds build {records.build_id}, but the records are of build {build_id}: the "
            "dataset was replaced; open it again",
            code="dataset-replaced",
        )
    return records
