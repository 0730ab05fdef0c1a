"""From places of an epoch to records: through the order, the population and the shards.

Where neighbours of the order are neighbours in the files they are read in one go. Else the places are read
unit by unit, each unit in the order of the files if its records are small, and put in the epoch's order then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import tensorflow as tf

from tfshards.loader.order import Epoch, Order
from tfshards.loader.population import Population, Ranges
from tfshards.loader.read import PADDING, Parts, Shards, read_parts
from tfshards.loader.segments import cut_at_multiples, gather, repeated, split
from tfshards.loader.stages import flat_mapped
from tfshards.loader.stretches import Stretches, stretches

# Runs whose parts are planned together: a million of them, of all lanes, would take hundreds of megabytes.
BLOCK_RUNS = 1024
# Records that are read one by one in units of so many, or of so many bytes, to be sorted.
UNIT_RECORDS = 4096
UNIT_BYTES = 2 << 20
# To hop over so many records, or bytes, costs less than to enter the file anew.
BRIDGE_RECORDS = 16
BRIDGE_BYTES = 32 << 10
# Little is read at one place.
SHORT_BUFFER_BYTES = 4 << 10
# Larger records are read where they stand: sorting them would copy them.
SORTED_BYTES = 16 << 10


@dataclass(frozen=True)
class Places:
    """How the places of a worker's epochs are read.

    Attributes:
        shards: of the split.
        population: which examples there are.
        order: of the population's members.
        record_bytes: of a record, on average.
    """

    shards: Shards
    population: Population
    order: Order
    record_bytes: float

    def epoch(self, number: tf.Tensor) -> Epoch:
        """Return an epoch by its number; all that reads of it shares the result."""
        return self.order.epoch(number)

    def read(
        self, epoch: Epoch, starts: tf.Tensor, counts: tf.Tensor, num_padding: tf.Tensor | None = None
    ) -> tf.data.Dataset:
        """Return ``(number, record)`` of the slots ``[start, start + count)`` of an epoch, then of padding.

        Args:
            epoch: which one.
            starts: shape ``(n,)`` int64.
            counts: shape ``(n,)`` int64.
            num_padding: scalar int64, or None where there is none in any epoch.
        """
        ranges = self._ranges
        unit = self._unit if ranges is None else self.order.run * BLOCK_RUNS

        def read(starts: tf.Tensor, counts: tf.Tensor) -> tf.data.Dataset:
            if ranges is None:
                return self._read_members(epoch, starts, counts)
            return self._read_runs(ranges, epoch, starts, counts)

        if ranges is not None and self._lane_places <= unit:
            records = read(starts, counts)
        else:
            units = tf.data.Dataset.from_tensor_slices(cut_at_multiples(starts, counts, unit))
            records = flat_mapped(units, lambda *each: read(*(tf.expand_dims(number, 0) for number in each)))
        if num_padding is None:
            return records
        return records.concatenate(read_parts(self.shards, self._padding(num_padding)))

    @property
    def unit_bytes(self) -> tuple[int, int]:
        """The bytes of records that each open reader of places holds, and more while it reads a unit."""
        if self._ranges is not None or self.record_bytes >= SORTED_BYTES:
            return 0, 0
        # in the order of the epoch, and one by one; before, as they were read, with what was hopped over
        read = min(self._bridge * self._unit, int(self.shards.sizes.sum()))
        return int(2 * self._unit * self.record_bytes), int(read * self.record_bytes)

    @property
    def _bridge(self) -> int:
        """By how many records two that are read in one go may be apart."""
        return max(1, min(BRIDGE_RECORDS, int(BRIDGE_BYTES / self.record_bytes)))

    @property
    def _ranges(self) -> Ranges | None:
        """The population, if it is read run by run where it stands."""
        return self.population if isinstance(self.population, Ranges) and self.order.run != 1 else None

    @property
    def _lane_places(self) -> int:
        """The most places that are read by one call; by steps they are few."""
        return -(-self.order.num_places // self.order.lanes) if self.order.lanes else 0

    @property
    def _unit(self) -> int:
        if self.order.run > 1:
            return self.order.run
        return max(1, min(UNIT_RECORDS, int(UNIT_BYTES / self.record_bytes)))

    def _read_runs(
        self, ranges: Ranges, epoch: Epoch, starts: tf.Tensor, counts: tf.Tensor
    ) -> tf.data.Dataset:
        members, lengths = self.order.segments(epoch, starts, counts)
        table = stretches(self.shards, ranges, circular=True)
        return read_parts(self.shards, self._parts(table, members, lengths))

    def _read_members(self, epoch: Epoch, starts: tf.Tensor, counts: tf.Tensor) -> tf.data.Dataset:
        members = self.order.members(epoch, tf.squeeze(starts) + tf.range(tf.squeeze(counts)))
        return self._read_numbers(self.population.numbers(epoch.number, members))

    def _padding(self, count: tf.Tensor) -> Parts:
        shard, record = self.shards.first_good
        return Parts(*(tf.fill([count], tf.constant(each, tf.int64)) for each in (shard, record, 1, PADDING)))

    def _parts(self, table: Stretches, starts: tf.Tensor, counts: tf.Tensor) -> Parts:
        """Return what holds the members ``[start, start + count)``, with padding for each damaged one."""
        _, row, starts, counts = split(table.ends, starts, counts)
        shard, to_record, to_number = tf.unstack(gather(table.columns, row), axis=1)
        parts = Parts(shard, starts + to_record, counts, starts + to_number)
        if not table.is_bad.any():
            return parts
        bad = gather(table.is_bad, row)
        segment, _ = repeated(tf.where(bad, counts, tf.ones_like(counts)))
        padding = self._padding(tf.reduce_sum(tf.ones_like(segment)))
        bad = gather(bad, segment)
        both = zip(parts, padding, strict=True)
        return Parts(*(tf.where(bad, filling, gather(real, segment)) for real, filling in both))

    def _read_numbers(self, numbers: tf.Tensor) -> tf.data.Dataset:
        """Return ``(number, record)`` of the examples ``numbers``, shape ``(n,)`` int64, in this order."""
        table = stretches(self.shards)
        shards = replace(self.shards, buffer_bytes=min(self.shards.buffer_bytes, SHORT_BUFFER_BYTES))
        if self.record_bytes >= SORTED_BYTES:
            starts, counts = _neighbours(numbers, 1)
            return read_parts(shards, self._parts(table, starts, counts))
        once, _ = tf.unique(tf.sort(numbers))
        starts, counts = _neighbours(once, self._bridge)
        stretch = tf.searchsorted(starts, numbers, side="right") - 1
        rows = numbers - gather(starts, stretch) + gather(tf.cumsum(counts, exclusive=True), stretch)
        read = read_parts(shards, self._parts(table, starts, counts)).batch(tf.reduce_sum(counts))
        found = read.get_single_element()
        return tf.data.Dataset.from_tensor_slices(tuple(tf.gather(each, rows) for each in found))


def _neighbours(numbers: tf.Tensor, most: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the stretches ``[start, start + count)`` of numbers that ascend by steps of at most ``most``."""
    steps = numbers[1:] - numbers[:-1]
    breaks = tf.logical_or(steps < 1, steps > most)
    begins = tf.concat([[True], breaks], axis=0)
    ends = tf.concat([breaks, [True]], axis=0)
    starts = tf.boolean_mask(numbers, begins)
    return starts, tf.boolean_mask(numbers, ends) + 1 - starts
