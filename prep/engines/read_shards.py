"""Read a dataset in a Beam pipeline of the user: a splittable DoFn over runs of records of its shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise, repeat
from operator import methodcaller
from typing import Any, NamedTuple, TypeAlias

import apache_beam as beam
import numpy as np
from apache_beam.io.iobase import Read
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker

from tfshards.prep.engines.transform import Checked
from tfshards.prep.engines.worker import check_versions, own_versions
from tfshards.prep.records.frames import RecordError, read_together
from tfshards.prep.records.values import selected
from tfshards.prep.sources.keys import KEY_FEATURE, number_key, to_text
from tfshards.schemas import Feature, FormatError, InputError, Manifest, Shard, read_manifest
from tfshards.schemas.columns import Columns, UnparsedError
from tfshards.schemas.companions import read_index
from tfshards.schemas.compression import Compression
from tfshards.schemas.index import RecordIndex
from tfshards.schemas.manifest_file import read_manifest_file
from tfshards.schemas.names import MANIFEST_NAME
from tfshards.schemas.storage import AnyPath, any_path

Element: TypeAlias = "tuple[str, dict[str, Any]]"


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
        self._stored = StoredElements.of(dataset, split, select)

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Return the PCollection of the examples; see the class."""
        # Impulse -> [run] -> [(key, features)]
        return (
            begin
            | beam.Impulse()
            | "Plan" >> beam.ParDo(_Plan(self._stored)).with_output_types(Any)
            # most runners would leave all runs to the worker that has planned them
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_Read(self._stored)).with_output_types(tuple[str, dict[str, Any]])
        )

    def display_data(self) -> dict[str, object]:
        """Return what runners show of the transform."""
        stored = self._stored
        return {
            "dataset": str(stored.root),
            "folder": stored.folder,
            "split": stored.split,
            "features": ", ".join(feature.name for feature in stored.features),
        }


class _Stored(Checked):
    """Has the examples as its content."""

    def __init__(self, stored: StoredElements) -> None:
        super().__init__(partial(check_versions, own_versions()), stored)


class _Plan(_Stored):
    """Yields the runs."""

    def process(self, _: bytes) -> Iterator[Run]:
        """Yield all runs, of the size that Beam's own sources have."""
        yield from self.content.runs(Read.get_desired_chunk_size)


class _Records(beam.RestrictionProvider):  # type: ignore[misc]
    """Restricts a run to some of its records."""

    def initial_restriction(self, run: Run) -> OffsetRange:
        """Return all records of the run."""
        return OffsetRange(run.start, run.stop)

    def create_tracker(self, records: OffsetRange) -> OffsetRestrictionTracker:
        """Return the tracker, which splits between any two records."""
        return OffsetRestrictionTracker(records)

    def restriction_size(self, run: Run, records: OffsetRange) -> float:
        """Return about how many bytes the records have."""
        return run.shard.record_bytes / run.shard.num_examples * float(records.size())


class _Read(_Stored):
    """Reads runs."""

    def process(
        self,
        run: Run,
        tracker: Any = beam.DoFn.RestrictionParam(_Records()),  # noqa: B008, ANN401
    ) -> Iterator[Element]:
        """Yield the examples of the records that are not split off before they are claimed."""
        records = tracker.current_restriction()
        for number, element in self.content.read(run, records.start, records.stop):
            if not tracker.try_claim(number):
                return
            yield element


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

    @classmethod
    def of(cls, dataset: str | os.PathLike[str], split: str, select: Sequence[str] | None) -> StoredElements:
        """Return the examples of a split; errors are those of ``ReadShards``."""
        root = any_path(dataset)
        manifest = read_manifest(root)
        if split not in manifest.splits:
            names = ", ".join(map(repr, manifest.splits))
            raise InputError("split-not-shown", root=root, split=split, names=names)
        features = tuple(each for each in selected(manifest.schema, select) if each != KEY_FEATURE)
        # looks for the packages that their dtypes need
        Columns(features)
        has_keys = KEY_FEATURE in manifest.schema.features
        # workers may run in other folders
        return cls(root.absolute(), manifest.folder, split, manifest.compression, features, has_keys)

    def runs(self, size_of: Callable[[int], int]) -> Iterator[Run]:
        """Yield runs that together are all records; a compressed shard is one run.

        ``size_of`` returns about how many bytes a run should have, given the number of all bytes.
        """
        shards = self._manifest().splits[self.split].shards
        num_bytes = size_of(sum(shard.record_bytes for shard in shards))
        first = 0
        for shard in shards:
            wanted = -(-shard.record_bytes // num_bytes) if self.compression == "none" else 1
            count = min(wanted, shard.num_examples)
            ends = [shard.num_examples * number // count for number in range(1, count + 1)]
            yield from (Run(shard, first, start, stop) for start, stop in pairwise([0, *ends]))
            first += shard.num_examples

    def _manifest(self) -> Manifest:
        # of the generation for which the pipeline was made; its files stay until prune
        try:
            return read_manifest_file(self.root / self.folder / MANIFEST_NAME)
        except FileNotFoundError:
            raise InputError(
                "records-other-build",
                root=self.root,
                found=read_manifest(self.root).folder,
                wanted=self.folder,
            ) from None

    def read(self, run: Run, start: int, stop: int) -> Iterator[tuple[int, Element]]:
        """Yield the records from ``start`` to ``stop`` of the shard of a run, each with its number there.

        Raises:
            RecordError: a record is damaged, or is not what the schema says.
            FormatError: the index of the shard is damaged.
        """
        path, index = self.root / run.shard.path, _index(self.root, run.shard)
        columns = Columns((*self.features, KEY_FEATURE) if self.has_keys else self.features)
        names = [feature.name for feature in self.features]
        for _, records, _ in read_together(path, self.compression, index, np.arange(start, stop)):
            try:
                found = columns.parse_records(records)
            except UnparsedError as error:
                record = start + error.row
                raise RecordError(path, record, int(index.offsets[record]), str(error)) from None
            numbers = range(start, start + len(records))
            if self.has_keys:
                keys = map(to_text, found[KEY_FEATURE.name])
            else:
                keys = map(number_key, range(run.first + start, run.first + start + len(records)))
            # a row of an array would keep the whole array in memory
            values = [found[name] if found[name].ndim == 1 else map(_copy, found[name]) for name in names]
            rows = zip(*values, strict=True) if values else repeat((), len(records))
            for number, key, row in zip(numbers, keys, rows, strict=True):
                yield number, (key, dict(zip(names, row, strict=True)))
            start += len(records)


_copy = methodcaller("copy")


# runs of a shard often follow each other
@lru_cache(maxsize=4)
def _index(root: AnyPath, shard: Shard) -> RecordIndex:
    index, problems = read_index(root, shard)
    if index is None:
        raise FormatError(f"{root}: the index of a shard (tfshards verify lists all damage)", problems)
    return index
