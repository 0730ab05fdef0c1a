"""How many lanes an epoch has, and how long its runs of neighbors are, unless the options say it."""

from __future__ import annotations

from tfshards.schemas import OptionsError

# A batch draws from at most this many parts of the split, each an open file. With fewer parts, several
# examples of a typical batch come from the same part, and neighbors share a batch in many epochs
# (benchmarks/shuffle.py).
MOST_LANES = 256
# Seeking to a run takes about 20 microseconds, a thirtieth of the time to read this many bytes.
RUN_BYTES = 1 << 20
# Small splits have shorter runs, so that each lane has several.
RUNS_A_LANE = 2
# Runs are shorter if the records were not permuted before they were stored, because neighbors are then
# similar, also in neighboring lanes, which share a run.
STORED_RUN_BYTES = 128 << 10
STORED_RUNS_A_LANE = 8


def run_length(num_positions: int, lanes: int, record_bytes: float, *, is_permuted: bool) -> int:
    """Return the number of neighbors that stay together.

    Args:
        num_positions: the positions of an epoch.
        lanes: the lanes of an epoch.
        record_bytes: mean size of a record, at least 1.
        is_permuted: whether the records were permuted before they were stored.
    """
    if is_permuted:
        run_bytes, runs_a_lane = RUN_BYTES, RUNS_A_LANE
    else:
        run_bytes, runs_a_lane = STORED_RUN_BYTES, STORED_RUNS_A_LANE
    # At least 2: runs of 1 are a full permutation, which is read differently.
    return max(2, min(int(run_bytes / record_bytes), num_positions // (runs_a_lane * lanes)))


def num_lanes(global_batch_size: int, num_workers: int, wanted: int | None = None) -> int:
    """Return the number of lanes: ``wanted``, or a default that depends on the workers as little as possible.

    The default is the largest multiple of ``num_workers`` that divides ``global_batch_size``, up to
    ``MOST_LANES`` or ``num_workers``. It is the same for all numbers of workers that divide the default of
    one worker.
    """
    if wanted is None:
        per_worker = global_batch_size // num_workers
        return num_workers * _divisor(per_worker, max(1, MOST_LANES // num_workers))
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
