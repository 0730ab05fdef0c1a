"""Read a dataset in a Beam pipeline of the user: runs of records of its shards, in any order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, repeat
from operator import methodcaller
from typing import Any, NamedTuple, TypeAlias

import apache_beam as beam
import numpy as np

from tfshards.prep.engines.transform import step
from tfshards.prep.records.frames import RecordError, read_parts
from tfshards.prep.records.values import selected
from tfshards.prep.sources.keys import KEY_FEATURE, number_key, to_text
from tfshards.schemas import Feature, InputError, Shard, read_manifest
from tfshards.schemas.columns import Columns, UnparsedError
from tfshards.schemas.companions import require_index
from tfshards.schemas.compression import Compression
from tfshards.schemas.manifest import read_manifest_file
from tfshards.schemas.names import MANIFEST_NAME
from tfshards.schemas.storage import AnyPath, any_path

Element: TypeAlias = "tuple[str, dict[str, Any]]"

# A run has about as many bytes, so that workers share also what is in few shards.
_RUN_BYTES = 32 << 20


class ReadShards(beam.PTransform):  # type: ignore[misc]
    """Read a split of a dataset, in your own Beam pipeline.

    The elements are ``(key, features)``, as ``WriteShards`` takes them: a string, and a dict of NumPy values.

    Args:
        dataset: folder of the dataset, or its URL; every worker reads it under this path.
        split: name of the split.
        select: names of the features to read; by default all.

    Raises:
        OptionsError: an argument is not valid, or a feature needs a package that is not installed.
        InputError: ``dataset`` is not a dataset, or has no such split.
        FormatError: the manifest breaks the format. When the pipeline runs: an index is damaged.
        RecordError: when the pipeline runs: a record is damaged; the error names file, record and offset.
    """

    def __init__(
        self, dataset: str | os.PathLike[str], split: str = "train", *, select: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        root = any_path(dataset)
        manifest = read_manifest(root)
        if split not in manifest.splits:
            names = ", ".join(map(repr, manifest.splits))
            raise InputError(f"{root} has no split {split!r}; the splits are {names}")
        features = tuple(each for each in selected(manifest.schema, select) if each != KEY_FEATURE)
        # looks for the packages that their dtypes need
        Columns(features)
        self._stored = StoredElements(
            # workers may run in other folders
            root=root.absolute(),
            folder=manifest.folder,
            split=split,
            compression=manifest.compression,
            features=features,
            has_keys=KEY_FEATURE in manifest.schema.features,
        )

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Return the PCollection of the examples; see the class."""
        # Impulse -> [run] -> [(key, features)]
        return (
            begin
            | beam.Impulse()
            | "Plan" >> step(self._stored.runs, Any)
            # most runners would leave all runs to the worker that has planned them
            | "Spread" >> beam.Reshuffle()
            | "Read" >> step(self._stored.read, tuple[str, dict[str, Any]])
        )


class Run(NamedTuple):
    """The records from ``start`` to ``stop`` of a shard, whose first example has the number ``first``."""

    shard: Shard
    first: int
    start: int
    stop: int


@dataclass(frozen=True)
class StoredElements:
    """The examples of one split of a dataset.

    Attributes:
        root: folder of the dataset, or its URL.
        folder: the build that is read, also if another one has replaced it.
        features: the features that are read, without the key.
        has_keys: whether examples have keys; otherwise their numbers in the split are the keys.
    """

    root: AnyPath
    folder: str
    split: str
    compression: Compression
    features: tuple[Feature, ...]
    has_keys: bool

    def runs(self, _: object = None, *, num_bytes: int = _RUN_BYTES) -> Iterator[Run]:
        """Yield runs that together are all records; a compressed shard is one run."""
        first = 0
        # of the generation for which the pipeline was made; its files stay until prune
        manifest = read_manifest_file(self.root / self.folder / MANIFEST_NAME)
        for shard in manifest.splits[self.split].shards:
            wanted = -(-shard.record_bytes // num_bytes) if self.compression == "none" else 1
            count = min(wanted, shard.num_examples)
            ends = [shard.num_examples * number // count for number in range(1, count + 1)]
            yield from (Run(shard, first, start, stop) for start, stop in pairwise([0, *ends]))
            first += shard.num_examples

    def read(self, run: Run) -> Iterator[Element]:
        """Yield the records of a run.

        Raises:
            RecordError: a record is damaged, or is not what the schema says.
            FormatError: the index of the shard is damaged.
        """
        path, index, start = self.root / run.shard.path, _index(self.root, run.shard), run.start
        columns = Columns((*self.features, KEY_FEATURE) if self.has_keys else self.features)
        names = [feature.name for feature in self.features]
        for _, _, records, _ in read_parts(path, self.compression, index, np.arange(start, run.stop)):
            try:
                found = columns.parse_records(records)
            except UnparsedError as error:
                record = start + error.row
                raise RecordError(path, record, int(index.offsets[record]), str(error)) from None
            numbers = range(run.first + start, run.first + start + len(records))
            keys = map(to_text, found[KEY_FEATURE.name]) if self.has_keys else map(number_key, numbers)
            # a row of an array would keep the whole array in memory
            values = [found[name] if found[name].ndim == 1 else map(_copy, found[name]) for name in names]
            rows = zip(*values, strict=True) if values else repeat((), len(records))
            for key, row in zip(keys, rows, strict=True):
                yield key, dict(zip(names, row, strict=True))
            start += len(records)


_copy = methodcaller("copy")


# runs of a shard often follow each other
_index = lru_cache(maxsize=4)(require_index)
