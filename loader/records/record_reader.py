"""``RecordReader``: from ranks of an epoch's order to records, through the intervals of shards."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import tensorflow as tf

from tfshards.loader.graph.ops import GRAPH
from tfshards.loader.graph.raw_ops import gather
from tfshards.loader.graph.stages import flat_mapped
from tfshards.loader.order.epoch import Epoch
from tfshards.loader.order.intervals import cut_at_multiples
from tfshards.loader.order.plan import ReadPlan
from tfshards.loader.order.population import Ranges
from tfshards.loader.order.steps import PADDING
from tfshards.loader.records.intervals import read_intervals
from tfshards.loader.records.located import (
    RecordIntervals,
    interval_table,
    read_ranges,
    record_intervals,
    run_intervals,
)
from tfshards.loader.records.shards import Shards

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


def on_graph(plan: ReadPlan) -> ReadPlan:
    """Return a plan whose order is computed in the graph, which holds large populations once."""
    population = plan.population
    if not isinstance(population, Ranges):
        names = [field.name for field in fields(population)]
        population = replace(population, **{name: tf.constant(getattr(population, name)) for name in names})
    return replace(plan, population=population, order=replace(plan.order, ops=GRAPH))


@dataclass(frozen=True)
class RecordReader:
    """Reads the records of a worker's epochs, of a plan that is ``on_graph``.

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
        ranges = read_ranges(self.plan)
        unit = self._unit if ranges is None else self.plan.order.run * BLOCK_RUNS

        def read(starts: tf.Tensor, counts: tf.Tensor) -> tf.data.Dataset:
            if ranges is None:
                members = self.plan.order.members(epoch, tf.squeeze(starts) + tf.range(tf.squeeze(counts)))
                return self._read_numbers(epoch, self.plan.population.numbers(GRAPH, epoch.number, members))
            return self._records(
                self.shards, run_intervals(self.shards, self.plan, epoch, starts, counts), epoch
            )

        # few by steps
        lane_ranks = (
            -(-self.plan.order.num_positions // self.plan.order.lanes) if self.plan.order.lanes else 0
        )
        if ranges is not None and lane_ranks <= unit:
            records = read(starts, counts)
        else:
            units = tf.data.Dataset.from_tensor_slices(cut_at_multiples(GRAPH, starts, counts, unit))
            records = flat_mapped(units, lambda *each: read(*(tf.expand_dims(number, 0) for number in each)))
        if num_padding is None:
            return records
        return records.concatenate(self._records(self.shards, self._padding(num_padding), epoch))

    @property
    def unit_bytes(self) -> tuple[int, int]:
        """The bytes of records that each open stream holds, and the additional ones while it reads a unit."""
        if read_ranges(self.plan) is not None or self.plan.record_bytes >= SORTED_BYTES:
            return 0, 0
        # held in the order of the epoch and as single elements; while reading, also with the skipped records
        read = min(self._bridge * self._unit, int(self.shards.sizes.sum()))
        return int(2 * self._unit * self.plan.record_bytes), int(read * self.plan.record_bytes)

    @property
    def _bridge(self) -> int:
        """The largest distance between two records that are read together."""
        return max(1, min(BRIDGE_RECORDS, int(BRIDGE_BYTES / self.plan.record_bytes)))

    @property
    def _unit(self) -> int:
        if self.plan.order.run > 1:
            return self.plan.order.run
        return max(1, min(UNIT_RECORDS, int(UNIT_BYTES / self.plan.record_bytes)))

    def _padding(self, count: tf.Tensor) -> RecordIntervals:
        shard, record = self.shards.first_good
        columns = (tf.fill([count], tf.constant(each, tf.int64)) for each in (shard, record, 1, PADDING))
        return RecordIntervals(*columns)

    def _read_numbers(self, epoch: Epoch, numbers: tf.Tensor) -> tf.data.Dataset:
        """Return the records of the examples ``numbers``, shape ``(n,)`` int64, in this order."""
        table = interval_table(self.shards)
        shards = replace(self.shards, buffer_bytes=min(self.shards.buffer_bytes, SHORT_BUFFER_BYTES))
        if self.plan.record_bytes >= SORTED_BYTES:
            starts, counts = _neighbors(numbers, 1)
            return self._records(shards, record_intervals(GRAPH, shards, table, starts, counts), epoch)
        once, _ = tf.unique(tf.sort(numbers))
        starts, counts = _neighbors(once, self._bridge)
        interval = tf.searchsorted(starts, numbers, side="right") - 1
        rows = numbers - gather(starts, interval) + gather(tf.cumsum(counts, exclusive=True), interval)
        read = self._records(shards, record_intervals(GRAPH, shards, table, starts, counts), epoch)
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
