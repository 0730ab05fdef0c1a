"""Read a dataset in a Beam pipeline of the user: a splittable DoFn over runs of records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.io.iobase import Read
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker

from tfshards.prep.engines.transform import Checked
from tfshards.prep.engines.worker import check_versions, own_versions
from tfshards.prep.sources.stored_elements import Element, Run, StoredElements


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
            "build_id": stored.build_id,
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
