"""Who reads what: pure arithmetic on the number of examples, the batch size and the workers.

Nothing here knows the epoch, a file or TensorFlow. An epoch is a sequence of ``num_examples`` places (which
example stands at which place differs from epoch to epoch, see ``order.py``), and an ``Assignment`` says
which places a worker reads for which step. With a global batch size ``G``:

* By steps, for the stored order and for full permutations: step ``t`` of all workers together is the
  places ``[t * G, (t + 1) * G)``; worker ``w`` has the ``w``-th slice of ``batch_size`` places of it.
* By lanes, for runs of neighbours: the sequence is cut into ``lanes`` contiguous lanes whose lengths differ
  by at most 1. Each lane gives ``G / lanes`` places to each step. Worker ``w`` of ``W`` reads the lanes
  ``[w * lanes / W, (w + 1) * lanes / W)``, so that the global batches do not depend on ``W``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfshards.loader.options import Remainder, Shuffle, Worker
from tfshards.schemas import OptionsError

# A batch draws from so many places of the split, and so many files are open. With fewer, several examples
# of a batch of usual size comes from each, and neighbours meet in epoch after epoch (benchmarks/shuffle.py).
MOST_LANES = 256
# To enter a compressed shard is to inflate all that stands before the place.
MOST_COMPRESSED_LANES = 64
# To enter a run costs some 20 microseconds, a thirtieth of what it takes to read so many bytes of it.
RUN_BYTES = 1 << 20
# Small splits have shorter runs, so that each lane passes over several.
RUNS_A_LANE = 2
# Shorter ones where nobody has permuted the records before they were stored, and neighbours are alike: also
# in lanes that are neighbours, which share a run.
STORED_RUN_BYTES = 128 << 10
STORED_RUNS_A_LANE = 8
# Small batches are parsed together.
PARSED_BYTES = 1 << 20
MOST_PARSED = 64
# By steps, a stream costs an open file, a seek and some 0.3 ms; longer ones crowd the processor's cache.
STREAM_BYTES = 8 << 20


@dataclass(frozen=True)
class Stored:
    """What a split's files are like, as far as it decides how they are read.

    Attributes:
        record_bytes: of a record, on average.
        num_shards: of the split.
        is_permuted: whether the records were permuted before they were stored.
        is_compressed: whether a shard can be entered only at its beginning.
    """

    record_bytes: float
    num_shards: int = 1
    is_permuted: bool = True
    is_compressed: bool = False


@dataclass(frozen=True)
class Assignment:
    """What one worker reads in an epoch, and in which blocks.

    Attributes:
        num_examples: the places of an epoch.
        batch_size: of this worker.
        worker: which worker, of how many.
        remainder: what becomes of the examples that fill no global batch.
        run: how many neighbours stay together; 0 for the stored order.
        lanes: of all workers together; 0 by steps.
        usual_lanes: that other numbers of workers have, as long as these divide them; 0 by steps.
        group: steps that are parsed together.
        chunk: the groups of one stream by steps; 0 by lanes.
    """

    num_examples: int
    batch_size: int
    worker: Worker
    remainder: Remainder
    run: int
    lanes: int
    usual_lanes: int
    group: int
    chunk: int

    @property
    def global_batch_size(self) -> int:
        """The examples of one step of all workers together."""
        return self.batch_size * self.worker.count

    @property
    def num_steps(self) -> int:
        """The steps of one epoch, the same for each worker."""
        return num_steps(self.num_examples, self.global_batch_size, self.remainder)

    @property
    def rows_per_lane(self) -> int:
        """The places that each lane gives to a step."""
        return self.global_batch_size // self.lanes

    @property
    def worker_lanes(self) -> int:
        """The lanes of this worker."""
        return self.lanes // self.worker.count

    @property
    def num_readers(self) -> int:
        """The threads that read at the same time for one step: halves of the lanes, if there are such."""
        return 2 if self.lanes and self.worker_lanes % 2 == 0 else 1

    def step_places(self, step: int) -> list[tuple[int, int]]:
        """Return this worker's places of a step in row order, ``(start, count)`` each, without padding."""
        if not self.lanes:
            start = step * self.global_batch_size + self.worker.index * self.batch_size
            return [(start, min(max(self.num_examples - start, 0), self.batch_size))]
        found = []
        for lane in range(self.worker.index * self.worker_lanes, (self.worker.index + 1) * self.worker_lanes):
            start = lane_start(self.num_examples, self.lanes, lane) + step * self.rows_per_lane
            end = lane_start(self.num_examples, self.lanes, lane + 1)
            found.append((start, min(max(end - start, 0), self.rows_per_lane)))
        return found


def assign(
    num_examples: int,
    stored: Stored,
    batch_size: int,
    worker: Worker,
    remainder: Remainder,
    shuffle: Shuffle | None,
) -> Assignment:
    """Return what ``worker`` reads of ``num_examples`` places; ``shuffle`` is None for the stored order.

    Raises:
        OptionsError: ``shuffle.lanes`` does not fit the batch size or the workers.
    """
    record_bytes = max(1.0, stored.record_bytes)
    group = max(1, min(MOST_PARSED, int(PARSED_BYTES / (record_bytes * batch_size))))
    if shuffle is None or shuffle.how == "full":
        chunk = max(1, int(STREAM_BYTES / (record_bytes * batch_size * group)))
        run = 0 if shuffle is None else 1
        return Assignment(num_examples, batch_size, worker, remainder, run, 0, 0, group, chunk)
    # Nothing of this depends on the number of workers where they divide the lanes: the order would, too.
    most = MOST_COMPRESSED_LANES if stored.is_compressed else MOST_LANES
    usual, lanes = (num_lanes(batch_size * worker.count, n, shuffle.lanes, most) for n in (1, worker.count))
    run = shuffle.run or _run(num_examples, stored, lanes)
    return Assignment(num_examples, batch_size, worker, remainder, run, lanes, usual, group, 0)


def _run(num_examples: int, stored: Stored, lanes: int) -> int:
    if stored.is_compressed:
        # to enter a run is to inflate all that stands before it in its shard
        return max(2, num_examples // max(1, stored.num_shards))
    if stored.is_permuted:
        run_bytes, runs_a_lane = RUN_BYTES, RUNS_A_LANE
    else:
        run_bytes, runs_a_lane = STORED_RUN_BYTES, STORED_RUNS_A_LANE
    longest = num_examples // (runs_a_lane * lanes)
    # of 2 at least: runs of 1 are a full permutation, which is read in another way
    return max(2, min(int(run_bytes / max(1.0, stored.record_bytes)), longest))


def num_steps(num_examples: int, global_batch_size: int, remainder: Remainder) -> int:
    """Return the steps of one epoch: rounded down for "drop", up for "pad" and "keep"."""
    if remainder == "drop":
        return num_examples // global_batch_size
    return -(-num_examples // global_batch_size)


def num_lanes(
    global_batch_size: int, num_workers: int, wanted: int | None = None, most: int = MOST_LANES
) -> int:
    """Return the number of lanes: ``wanted``, or a default that depends on the workers as little as it can.

    The default is the largest divisor of ``global_batch_size`` up to ``most`` where the workers divide it,
    else the largest multiple of ``num_workers`` that divides it, up to ``most`` or ``num_workers``.

    Raises:
        OptionsError: ``wanted`` does not divide the global batch size, or the workers do not divide it.
    """
    if wanted is None:
        usual = _divisor(global_batch_size, most)
        if usual % num_workers == 0:
            return usual
        per_worker = global_batch_size // num_workers
        return num_workers * _divisor(per_worker, max(1, most // num_workers))
    if global_batch_size % wanted:
        raise OptionsError(
            f"Shuffle.lanes={wanted} does not divide the global batch size {global_batch_size}; "
            f"use a divisor of it, such as {_divisor(global_batch_size, wanted)}"
        )
    if wanted % num_workers:
        raise OptionsError(
            f"Shuffle.lanes={wanted} cannot be dealt evenly to {num_workers} workers; use a multiple of "
            f"{num_workers}, or {_listed(divisors(wanted))} workers"
        )
    return wanted


def lane_start(num_examples: int, lanes: int, lane: int) -> int:
    """Return the place at which a lane starts; lane ``lanes`` starts at ``num_examples``."""
    return lane * num_examples // lanes


def divisors(number: int) -> list[int]:
    """Return the divisors of ``number`` in ascending order."""
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor of ``number`` that is at most ``most``."""
    return next(divisor for divisor in range(min(number, most), 0, -1) if number % divisor == 0)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" or {numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
