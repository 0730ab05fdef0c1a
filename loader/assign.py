"""Who reads what: pure arithmetic on the number of examples, the batch size and the workers.

Nothing here knows the epoch, a file or TensorFlow. A split's examples are numbered from 0; an epoch is a
sequence of ``num_examples`` places (with shuffling the sequence differs from epoch to epoch, see
``order.py``), and an ``Assignment`` says which places a worker reads for which step.

* In stored order, step ``t`` of all workers together is ``[t * G, (t + 1) * G)`` for a global batch size
  ``G``; worker ``w`` has the ``w``-th slice of ``batch_size`` places of it.
* Shuffled, the sequence is cut into ``lanes`` contiguous lanes whose lengths differ by at most 1. Each lane
  gives ``G / lanes`` places to each step. Worker ``w`` of ``W`` reads the lanes ``[w * lanes / W,
  (w + 1) * lanes / W)``, so that the global batches do not depend on ``W``.

A worker reads streams of consecutive places: its lanes, or, in stored order, chunks of some steps. A window
is what is parsed in one go: ``window`` steps, in ``num_pieces`` pieces, which the streams deliver in turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfshards.loader.options import Remainder, Shuffle, Worker
from tfshards.schemas import OptionsError

# With more lanes more readers' buffers compete for the processor's cache: 64 cost a tenth of the speed.
MOST_LANES = 16
# The first batch waits for a whole window.
MOST_WINDOW = 16
# Records leave the processor's cache while a longer window is collected.
WINDOW_BYTES = 16 << 20
# In stored order small batches are parsed together, and large ones are read in pieces that fit the cache.
PARSED_BYTES = 1 << 20
PIECE_BYTES = 512 << 10
# A stream costs an open file, a seek and some 0.3 ms; longer ones crowd the cache, as several are read ahead.
STREAM_BYTES = 8 << 20


@dataclass(frozen=True)
class Assignment:
    """What one worker reads in an epoch, and in which blocks.

    Attributes:
        num_examples: of the split.
        batch_size: of this worker.
        worker: which worker, of how many.
        remainder: what becomes of the examples that fill no global batch.
        lanes: of all workers together; 0 for stored order.
        window: steps that are parsed, and if shuffled mixed, together.
        num_pieces: the pieces of one window of this worker; shuffled, these are its lanes.
        chunk: the pieces of one stream in stored order; 0 otherwise.
    """

    num_examples: int
    batch_size: int
    worker: Worker
    remainder: Remainder
    lanes: int
    window: int
    num_pieces: int
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
    def num_windows(self) -> int:
        """The windows of one epoch; the last one may hold fewer steps."""
        return -(-self.num_steps // self.window)

    def window_steps(self, window_index: int) -> int:
        """Return the number of steps in a window."""
        return min(self.window, self.num_steps - window_index * self.window)

    @property
    def piece_rows(self) -> int:
        """The rows of a piece, except in an epoch's last window, which may hold fewer steps."""
        return self.window * self.batch_size // self.num_pieces

    @property
    def stream_pieces(self) -> int:
        """The pieces of an epoch that have numbers of their own: shuffled, those of one lane."""
        return self.num_windows if self.lanes else self.num_windows * self.num_pieces

    @property
    def num_streams(self) -> int:
        """The streams of one epoch of this worker."""
        return self.num_pieces if self.lanes else -(-self.stream_pieces // self.chunk)

    def piece(self, window_index: int, piece_index: int) -> tuple[int, int, int]:
        """Return ``(start, length, count)`` of a piece: ``count`` real places from ``start`` on.

        ``length`` is the number of rows that it fills; ``length - count`` of them are padding.
        """
        length = self.window_steps(window_index) * self.batch_size // self.num_pieces
        first_step = window_index * self.window
        if self.lanes:
            lane = self.worker.index * self.num_pieces + piece_index
            start = lane_start(self.num_examples, self.lanes, lane)
            start += first_step * (self.global_batch_size // self.lanes)
            end = lane_start(self.num_examples, self.lanes, lane + 1)
        else:
            start = first_step * self.global_batch_size + self.worker.index * self.batch_size
            start += piece_index * length
            end = self.num_examples
        return start, length, min(max(end - start, 0), length)


def assign(
    num_examples: int,
    num_bytes: int,
    batch_size: int,
    worker: Worker,
    remainder: Remainder,
    shuffle: Shuffle | None,
) -> Assignment:
    """Return what ``worker`` reads of a split of ``num_examples`` records in ``num_bytes``.

    Raises:
        OptionsError: ``shuffle.lanes`` does not fit the batch size or the workers.
    """
    if shuffle is None:
        batch_bytes = max(1, num_bytes * batch_size // max(1, num_examples))
        # With several workers the slices of two steps are no neighbours, so that nothing spans steps.
        alone = worker.count == 1
        window = max(1, min(MOST_WINDOW, PARSED_BYTES // batch_bytes)) if alone else 1
        rows = _divisor(batch_size, max(1, PIECE_BYTES * batch_size // batch_bytes))
        num_pieces = 1 if window > 1 else batch_size // rows
        chunk = max(1, STREAM_BYTES * num_pieces // (window * batch_bytes))
        chunk = chunk if alone else _divisor(num_pieces, chunk)
        return Assignment(num_examples, batch_size, worker, remainder, 0, window, num_pieces, chunk)
    # The window depends on the global batch size alone, so that it is the same for any number of workers.
    global_batch_size = batch_size * worker.count
    lanes = num_lanes(global_batch_size, worker.count, shuffle.lanes)
    step_bytes = max(1, num_bytes * global_batch_size // max(1, num_examples))
    window = shuffle.window or max(1, min(MOST_WINDOW, WINDOW_BYTES // step_bytes))
    return Assignment(num_examples, batch_size, worker, remainder, lanes, window, lanes // worker.count, 0)


def num_steps(num_examples: int, global_batch_size: int, remainder: Remainder) -> int:
    """Return the steps of one epoch: rounded down for "drop", up for "pad" and "keep"."""
    if remainder == "drop":
        return num_examples // global_batch_size
    return -(-num_examples // global_batch_size)


def num_lanes(global_batch_size: int, num_workers: int, wanted: int | None = None) -> int:
    """Return the number of lanes: ``wanted``, or a default that depends on the workers as little as it can.

    The default is the largest divisor of ``global_batch_size`` up to 16 where the workers divide it, else
    the largest multiple of ``num_workers`` that divides ``global_batch_size``, up to 16 or ``num_workers``.

    Raises:
        OptionsError: ``wanted`` does not divide the global batch size, or the workers do not divide it.
    """
    if wanted is None:
        usual = _divisor(global_batch_size, MOST_LANES)
        if usual % num_workers == 0:
            return usual
        per_worker = global_batch_size // num_workers
        return num_workers * _divisor(per_worker, max(1, MOST_LANES // num_workers))
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
