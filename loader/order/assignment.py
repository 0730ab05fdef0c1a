"""Which worker reads which positions: arithmetic on the number of examples, the batch size and the workers.

Nothing here knows the epoch, a file or TensorFlow. An epoch is a sequence of ``num_positions`` positions
(``epoch.py`` decides which example is at which position), and an ``Assignment`` gives the positions that a
worker reads for each step. With a global batch size ``G``:

* By steps, for the stored order and for full permutations: step ``t`` of all workers together is the
  positions ``[t * G, (t + 1) * G)``; worker ``w`` has the ``w``-th slice of ``batch_size`` positions of it.
* By lanes, for runs of neighbors: the sequence is cut into ``lanes`` contiguous lanes whose lengths differ
  by at most 1. Each lane gives ``G / lanes`` positions to each step. Worker ``w`` of ``W`` reads the lanes
  ``[w * lanes / W, (w + 1) * lanes / W)``, so that the global batches do not depend on ``W``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfshards.loader.options.load_options import Remainder
from tfshards.loader.options.selection import Shuffle
from tfshards.loader.options.worker import Worker
from tfshards.schemas import OptionsError

# A batch draws from at most this many parts of the split, each an open file. With fewer parts, several
# examples of a typical batch come from the same part, and neighbors share a batch in many epochs
# (benchmarks/shuffle.py).
MOST_LANES = 256
# Compressed shards were once read in place, where entering one decompresses everything before the offset:
# the order of their datasets stays as it was.
MOST_COMPRESSED_LANES = 64
# Seeking to a run takes about 20 microseconds, a thirtieth of the time to read this many bytes.
RUN_BYTES = 1 << 20
# Small splits have shorter runs, so that each lane has several.
RUNS_A_LANE = 2
# Runs are shorter if the records were not permuted before they were stored, because neighbors are then
# similar, also in neighboring lanes, which share a run.
STORED_RUN_BYTES = 128 << 10
STORED_RUNS_A_LANE = 8


@dataclass(frozen=True)
class Stored:
    """The properties of a split's files that decide how they are read.

    Attributes:
        record_bytes: mean size of a record, at least 1.
        is_permuted: whether the records were permuted before they were stored.
        is_compressed: whether a shard can be read only from its beginning.
    """

    record_bytes: float
    num_shards: int = 1
    is_permuted: bool = True
    is_compressed: bool = False


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """The positions that one worker reads in an epoch.

    Attributes:
        run: the number of neighbors that stay together; 0 for the stored order.
        lanes: number of lanes of all workers together; 0 by steps.
        usual_lanes: default number of lanes for every number of workers that divides it; 0 by steps.
    """

    num_positions: int
    batch_size: int
    worker: Worker
    remainder: Remainder
    run: int
    lanes: int
    usual_lanes: int

    @property
    def global_batch_size(self) -> int:
        """The number of examples in one step of all workers together."""
        return self.batch_size * self.worker.count

    @property
    def num_steps(self) -> int:
        """The number of steps of one epoch, the same for each worker."""
        return num_steps(self.num_positions, self.global_batch_size, self.remainder)

    @property
    def rows_per_lane(self) -> int:
        """The number of positions that each lane contributes to a step."""
        return self.global_batch_size // self.lanes

    @property
    def worker_lanes(self) -> int:
        """The number of lanes of this worker."""
        return self.lanes // self.worker.count


def assign(
    num_positions: int,
    stored: Stored,
    *,
    batch_size: int,
    worker: Worker,
    remainder: Remainder,
    shuffle: Shuffle | None,
) -> Assignment:
    """Return the positions of an epoch that ``worker`` reads."""
    if shuffle is None or shuffle.how == "full":
        run = 0 if shuffle is None else 1
        lanes = usual = 0
    else:
        # If the workers divide the lanes, none of these values depends on the number of workers, and
        # neither does the order.
        most = MOST_COMPRESSED_LANES if stored.is_compressed else MOST_LANES
        global_batch_size = batch_size * worker.count
        usual, lanes = (num_lanes(global_batch_size, n, shuffle.lanes, most) for n in (1, worker.count))
        run = shuffle.run or _run(num_positions, stored, lanes)
    return Assignment(
        num_positions=num_positions,
        batch_size=batch_size,
        worker=worker,
        remainder=remainder,
        run=run,
        lanes=lanes,
        usual_lanes=usual,
    )


def _run(num_positions: int, stored: Stored, lanes: int) -> int:
    if stored.is_compressed:
        # entering a run decompresses everything before it in its shard
        return max(2, num_positions // max(1, stored.num_shards))
    if stored.is_permuted:
        run_bytes, runs_a_lane = RUN_BYTES, RUNS_A_LANE
    else:
        run_bytes, runs_a_lane = STORED_RUN_BYTES, STORED_RUNS_A_LANE
    longest = num_positions // (runs_a_lane * lanes)
    # At least 2: runs of 1 are a full permutation, which is read differently.
    return max(2, min(int(run_bytes / stored.record_bytes), longest))


def num_steps(num_positions: int, global_batch_size: int, remainder: Remainder) -> int:
    """Return the steps of one epoch: rounded down for "drop", up for "pad" and "keep"."""
    if remainder == "drop":
        return num_positions // global_batch_size
    return -(-num_positions // global_batch_size)


def num_lanes(
    global_batch_size: int, num_workers: int, wanted: int | None = None, most: int = MOST_LANES
) -> int:
    """Return the number of lanes: ``wanted``, or a default that depends on the workers as little as possible.

    The default is the largest multiple of ``num_workers`` that divides ``global_batch_size``, up to ``most``
    or ``num_workers``. It is the same for all numbers of workers that divide the default of one worker.
    """
    if wanted is None:
        per_worker = global_batch_size // num_workers
        return num_workers * _divisor(per_worker, max(1, most // num_workers))
    if global_batch_size % wanted:
        raise OptionsError(
            f"Shuffle.lanes={wanted} does not divide the global batch size {global_batch_size}; use a "
            f"divisor of it, such as {_divisor(global_batch_size, wanted)}"
        )
    if wanted % num_workers:
        raise OptionsError(
            f"Shuffle.lanes={wanted} cannot be divided evenly among {num_workers} workers; use a multiple "
            f"of {num_workers}, or change the number of workers to one of {divisors(wanted)}"
        )
    return wanted


def divisors(number: int) -> str:
    """Return the divisors of ``number`` as text, in ascending order."""
    return ", ".join(str(divisor) for divisor in range(1, number + 1) if number % divisor == 0)


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor of ``number`` that is at most ``most``."""
    return next(divisor for divisor in range(min(number, most), 0, -1) if number % divisor == 0)
