"""``RecordReader``: from ranks of an epoch's order to records, through the intervals of shards."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.graph.intervals import cut_at_multiples, repeated, split
from tfshards.loader.graph.raw_ops import gather
from tfshards.loader.graph.stages import flat_mapped
from tfshards.loader.order.epoch import Epoch
from tfshards.loader.order.plan import ReadPlan
from tfshards.loader.order.population import Ranges
from tfshards.loader.records.intervals import PADDING, RecordIntervals, cut_at_blocks, read_intervals
from tfshards.loader.records.shards import Shards


@dataclass(frozen=True, eq=False)
class IntervalTable:
    """Consecutive intervals of members, each in one shard; none is empty.

    Attributes:
        ends: shape ``(n,)`` int64: the member after the last one of each interval.
        columns: shape ``(n, 3)`` int64: the shard, and the numbers added to a member to get its record in the
            shard and its example number.
        is_bad: shape ``(n,)``: whether the records are damaged.
    """

    ends: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    is_bad: npt.NDArray[np.bool_]


def interval_table(shards: Shards, ranges: Ranges | None = None, *, circular: bool = False) -> IntervalTable:
    """Return the intervals of the members of ``ranges``, or of all examples."""
    num_examples = int(shards.sizes.sum())
    starts = np.zeros(1, np.int64) if ranges is None else ranges.starts
    sizes = np.array([num_examples], np.int64) if ranges is None else ranges.sizes
    range_ends = np.cumsum(sizes)
    shard_ends = np.cumsum(shards.sizes)
    cuts = np.concatenate([shard_ends, shards.bad_starts, shards.bad_ends])
    # the ranges that contain the cuts, if any
    around = np.maximum(np.searchsorted(starts, cuts, side="right") - 1, 0)
    within = cuts - starts[around]
    inside = (within >= 0) & (within < sizes[around])
    cuts = (within + (range_ends - sizes)[around])[inside]
    edges = np.unique(np.concatenate([[0], range_ends, cuts]))
    begins = edges[:-1]
    around = np.searchsorted(range_ends, begins, side="right")
    to_number = (starts - (range_ends - sizes))[around]
    numbers = begins + to_number
    shard = np.searchsorted(shard_ends, numbers, side="right")
    columns = np.stack([shard, to_number - shards.bases[shard], to_number], axis=1).astype(np.int64)
    num_bad_starts, num_bad_ends = (
        np.searchsorted(bounds, numbers, side="right") for bounds in (shards.bad_starts, shards.bad_ends)
    )
    ends, is_bad, num_members = edges[1:], num_bad_starts > num_bad_ends, int(sizes.sum())
    if circular:
        # all members twice, as for a circle
        ends, is_bad = np.append(ends, ends + num_members), np.tile(is_bad, 2)
        columns = np.concatenate([columns, columns - num_members * np.array([0, 1, 1])])
    return IntervalTable(ends, columns, is_bad)


# Number of runs whose intervals are computed together: a million of them would take hundreds of MB.
BLOCK_RUNS = 1024
# Records that are read one by one are sorted in units of at most this many records or bytes.
UNIT_RECORDS = 4096
UNIT_BYTES = 2 << 20
# Skipping up to this many records or bytes takes less time than opening the file again.
BRIDGE_RECORDS = 16
BRIDGE_BYTES = 32 << 10
# Buffer for records that are read one by one.
SHORT_BUFFER_BYTES = 4 << 10
# Larger records are read in the epoch's order: sorting them would copy them.
SORTED_BYTES = 16 << 10


@dataclass(frozen=True)
class RecordReader:
    """Reads the records of a worker's epochs.

    Attributes:
        numbered: whether records come with their numbers, as padding, random augmentation and fetchers need.
    """

    shards: Shards
    plan: ReadPlan
    numbered: bool = True

    def read(
        self, epoch: Epoch, starts: tf.Tensor, counts: tf.Tensor, num_padding: tf.Tensor | None = None
    ) -> tf.data.Dataset:
        """Return the records of the ranks ``[start, start + count)``, int64 vectors, then of padding.

        The elements are as in ``read_intervals``; ``num_padding`` is None if no epoch has padding.
        """
        ranges = self._ranges
        unit = self._unit if ranges is None else self.plan.order.run * BLOCK_RUNS

        def read(starts: tf.Tensor, counts: tf.Tensor) -> tf.data.Dataset:
            if ranges is None:
                members = self.plan.order.members(epoch, tf.squeeze(starts) + tf.range(tf.squeeze(counts)))
                return self._read_numbers(epoch, self.plan.population.numbers(epoch.number, members))
            return self._records(self.shards, self.run_intervals(epoch, starts, counts), epoch)

        # few by steps
        lane_ranks = (
            -(-self.plan.order.num_positions // self.plan.order.lanes) if self.plan.order.lanes else 0
        )
        if ranges is not None and lane_ranks <= unit:
            records = read(starts, counts)
        else:
            units = tf.data.Dataset.from_tensor_slices(cut_at_multiples(starts, counts, unit))
            records = flat_mapped(units, lambda *each: read(*(tf.expand_dims(number, 0) for number in each)))
        if num_padding is None:
            return records
        return records.concatenate(self._records(self.shards, self._padding(num_padding), epoch))

    @property
    def reads_runs(self) -> bool:
        """Whether neighbors in the order are read together; otherwise each example is read by itself."""
        return self._ranges is not None

    def run_intervals(self, epoch: Epoch, starts: tf.Tensor, counts: tf.Tensor) -> RecordIntervals:
        """Return the records of the ranks ``[start, start + count)``, int64 vectors, if ``reads_runs``."""
        members, lengths = self.plan.order.intervals(epoch, starts, counts)
        table = interval_table(self.shards, self._ranges, circular=True)
        found = self.record_intervals(table, members, lengths)
        return cut_at_blocks(found, self.shards.unit) if self.shards.unit else found

    @property
    def unit_bytes(self) -> tuple[int, int]:
        """The bytes of records that each open stream holds, and the additional ones while it reads a unit."""
        if self._ranges is not None or self.plan.record_bytes >= SORTED_BYTES:
            return 0, 0
        # held in the order of the epoch and as single elements; while reading, also with the skipped records
        read = min(self._bridge * self._unit, int(self.shards.sizes.sum()))
        return int(2 * self._unit * self.plan.record_bytes), int(read * self.plan.record_bytes)

    @property
    def _bridge(self) -> int:
        """The largest distance between two records that are read together."""
        return max(1, min(BRIDGE_RECORDS, int(BRIDGE_BYTES / self.plan.record_bytes)))

    @property
    def _ranges(self) -> Ranges | None:
        """The population, if it is read run by run in the files' order."""
        return (
            self.plan.population
            if isinstance(self.plan.population, Ranges) and self.plan.order.run != 1
            else None
        )

    @property
    def _unit(self) -> int:
        if self.plan.order.run > 1:
            return self.plan.order.run
        return max(1, min(UNIT_RECORDS, int(UNIT_BYTES / self.plan.record_bytes)))

    def _padding(self, count: tf.Tensor) -> RecordIntervals:
        shard, record = self.shards.first_good
        columns = (tf.fill([count], tf.constant(each, tf.int64)) for each in (shard, record, 1, PADDING))
        return RecordIntervals(*columns)

    def record_intervals(self, table: IntervalTable, starts: tf.Tensor, counts: tf.Tensor) -> RecordIntervals:
        """Return the records of the members ``[start, start + count)``; padding replaces damaged ones."""
        _, row, starts, counts = split(table.ends, starts, counts)
        shard, to_record, to_number = tf.unstack(gather(table.columns, row), axis=1)
        intervals = RecordIntervals(shard, starts + to_record, counts, starts + to_number)
        if not table.is_bad.any():
            return intervals
        bad = gather(table.is_bad, row)
        index, _ = repeated(tf.where(bad, counts, tf.ones_like(counts)))
        padding = self._padding(tf.reduce_sum(tf.ones_like(index)))
        bad = gather(bad, index)
        both = zip(intervals, padding, strict=True)
        return RecordIntervals(*(tf.where(bad, filling, gather(real, index)) for real, filling in both))

    def _read_numbers(self, epoch: Epoch, numbers: tf.Tensor) -> tf.data.Dataset:
        """Return the records of the examples ``numbers``, shape ``(n,)`` int64, in this order."""
        table = interval_table(self.shards)
        shards = replace(self.shards, buffer_bytes=min(self.shards.buffer_bytes, SHORT_BUFFER_BYTES))
        if self.plan.record_bytes >= SORTED_BYTES:
            starts, counts = _neighbors(numbers, 1)
            return self._records(shards, self.record_intervals(table, starts, counts), epoch)
        once, _ = tf.unique(tf.sort(numbers))
        starts, counts = _neighbors(once, self._bridge)
        interval = tf.searchsorted(starts, numbers, side="right") - 1
        rows = numbers - gather(starts, interval) + gather(tf.cumsum(counts, exclusive=True), interval)
        read = self._records(shards, self.record_intervals(table, starts, counts), epoch)
        found = read.batch(tf.reduce_sum(counts)).get_single_element()
        return tf.data.Dataset.from_tensor_slices(
            tf.nest.map_structure(lambda each: tf.gather(each, rows), found)
        )

    def _records(self, shards: Shards, intervals: RecordIntervals, epoch: Epoch) -> tf.data.Dataset:
        return read_intervals(shards, intervals, epoch.number, numbered=self.numbered)


def _neighbors(numbers: tf.Tensor, most: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the intervals ``[start, start + count)`` of numbers that ascend by steps of at most ``most``."""
    steps = numbers[1:] - numbers[:-1]
    breaks = tf.logical_or(steps < 1, steps > most)
    begins = tf.concat([[True], breaks], axis=0)
    ends = tf.concat([breaks, [True]], axis=0)
    starts = tf.boolean_mask(numbers, begins)
    return starts, tf.boolean_mask(numbers, ends) + 1 - starts
