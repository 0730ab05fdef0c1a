"""The examples of the steps of a run, as arrays of NumPy: which ones a worker reads, without reading them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count

import numpy as np

from tfshards.loader.order.epoch import Epoch
from tfshards.loader.order.ops import NUMPY, Array, Ints
from tfshards.loader.order.plan import ReadPlan
from tfshards.loader.order.ranks import Rows, ranks_of_lanes, ranks_of_steps, rows_of_ranks

# Used instead of an example's number for a record that only pads a batch.
PADDING = -2


class Steps:
    """The examples of each step of a plan, whose order NumPy computes; any number of threads may ask."""

    def __init__(self, plan: ReadPlan) -> None:
        self.plan = plan
        self._epoch: Epoch | None = None
        self._lock = threading.Lock()

    def numbers(self, epoch: int, step: int, end: int | None = None) -> Ints:
        """Return the numbers of the examples of the steps ``[step, end)`` of an epoch; by default of one.

        Returns:
            Shape ``(steps, batch_size)`` int64, in the order in which ``load`` delivers them; ``PADDING`` for
            rows that the last step of an epoch lacks.
        """
        assignment, opened = self.plan.assignment, self._opened(epoch)
        end = step + 1 if end is None else end
        if assignment.lanes:
            readers = range(assignment.num_readers)
            of_readers = [ranks_of_lanes(NUMPY, assignment, opened, each, step, end) for each in readers]
            starts, counts, missing = (
                np.concatenate([(*ranks, lacking)[column] for ranks, lacking in of_readers])
                for column in range(3)
            )
            by_lane = _ranks(starts, counts, missing).reshape(len(starts), end - step, -1)
            ranks = by_lane.swapaxes(0, 1).reshape(end - step, -1)
        else:
            (starts, counts), missing = ranks_of_steps(NUMPY, assignment, np.int64(step), np.int64(end))
            ranks = _ranks(starts[:, None], counts[:, None], missing).reshape(end - step, -1)
        found, is_real = np.full(ranks.shape, PADDING, np.int64), ranks >= 0
        members = self.plan.order.members(opened, ranks[is_real])
        found[is_real] = self.plan.population.numbers(NUMPY, np.int64(epoch), members)
        return found

    def rows_of(self, epoch: int, numbers: Ints) -> tuple[Ints, Rows]:
        """Return where examples come in an epoch, for all workers: the inverse of ``numbers``.

        Args:
            epoch: from 0.
            numbers: the numbers of the examples, an int64 vector.

        Returns:
            For each occurrence, in no order: the index of its example in ``numbers``, and its row. An example
            has none in epochs that leave it out.
        """
        plan, opened = self.plan, self._opened(epoch)
        asked, members = plan.population.members_of(epoch, numbers)
        rows = rows_of_ranks(plan.assignment, opened, plan.order.ranks(opened, members))
        is_read = rows.steps < plan.assignment.num_steps
        return asked[is_read], Rows(*(each[is_read] for each in rows))

    def positions(
        self, first_epoch: int = 0, first: int | None = None, stride: int = 1
    ) -> Iterator[tuple[int, int]]:
        """Yield epoch and step of each batch of the run, or of every ``stride``-th one.

        Args:
            first_epoch: is added to the epochs.
            first: the index of the first batch, ``epoch * steps + step``; by default where the run begins.
            stride: the distance of two indices.
        """
        steps, first = self.plan.assignment.num_steps, self.first if first is None else first
        epochs = self.plan.epochs
        indices = count(first, stride) if epochs is None else range(first, epochs * steps, stride)
        for index in indices if steps else ():
            epoch, step = divmod(index, steps)
            yield first_epoch + epoch, step

    @property
    def first(self) -> int:
        """The index of the first batch of the run."""
        return self.plan.begin.epoch * self.plan.assignment.num_steps + self.plan.begin.step

    def _opened(self, number: int) -> Epoch:
        with self._lock:
            if self._epoch is None or self._epoch.number != number:
                self._epoch = self.plan.order.epoch(np.int64(number))
            return self._epoch


def _ranks(starts: Array, counts: Array, missing: Array) -> Ints:
    """Return the ranks of rows of intervals, shape ``(rows, counts + missing)``; -1 for missing ones."""
    index, within = NUMPY.repeated(counts.reshape(-1))
    num_ranks = counts.sum(axis=1)
    width = int(num_ranks[0] + missing[0])
    found = np.full((len(counts), width), -1, np.int64)
    found[np.arange(width) < num_ranks[:, None]] = starts.reshape(-1)[index] + within
    return found
