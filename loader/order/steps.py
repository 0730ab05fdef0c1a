"""The examples of the steps of a run: which ones a worker reads, without reading them."""

from __future__ import annotations

import threading

import numpy as np

from tfshards.loader.order.epoch import Epoch, Ints, lane_bounds
from tfshards.loader.order.plan import ReadPlan
from tfshards.loader.reading.damage import PADDING


class Steps:
    """The examples of each step of a plan; any number of threads may ask."""

    def __init__(self, plan: ReadPlan) -> None:
        self.plan = plan
        # the epochs that were asked for last: one may end while the next one begins
        self._epochs: list[Epoch] = []
        self._lock = threading.Lock()

    def numbers(self, epoch: int, step: int, end: int | None = None) -> Ints:
        """Return the numbers of the examples of the steps ``[step, end)`` of an epoch; by default of one.

        Returns:
            Shape ``(steps, batch_size)`` int64, in the order in which ``load`` delivers them; ``PADDING`` for
            rows that the last step of an epoch lacks.
        """
        steps = 1 if end is None else end - step
        lanes = self.of_lanes(epoch, step, step + steps)
        found: Ints = lanes.reshape(len(lanes), steps, -1).swapaxes(0, 1).reshape(steps, -1)
        return found

    def of_lanes(self, epoch: int, step: int, end: int) -> Ints:
        """Return the same numbers by lane, in which neighbors are: shape ``(lanes, steps * rows)``.

        By steps it is one lane of all rows.
        """
        plan, assignment = self.plan, self.plan.assignment
        opened = self._opened(epoch)
        if assignment.lanes:
            own = slice(
                first := assignment.worker.index * assignment.worker_lanes, first + assignment.worker_lanes
            )
            bounds = lane_bounds(assignment.num_positions, assignment.lanes)
            begins, lengths = (each[own, np.newaxis] for each in (bounds[:-1], np.diff(bounds)))
            rows = assignment.rows_per_lane
            within = np.arange(step * rows, end * rows)
            is_real = within < lengths
            # each lane is a circle
            ranks = opened.entries[own, np.newaxis] + within
            ranks = begins + np.where(ranks >= lengths, ranks - lengths, ranks)
        else:
            begins = np.arange(step, end) * assignment.global_batch_size
            begins += assignment.worker.index * assignment.batch_size
            ranks = (begins[:, np.newaxis] + np.arange(assignment.batch_size)).reshape(1, -1)
            is_real = ranks < assignment.num_positions
        is_whole = bool(is_real.all())
        members = plan.order.members(opened, ranks if is_whole else ranks[is_real])
        numbers = plan.population.numbers(epoch, members)
        if is_whole:
            return numbers
        found = np.full(ranks.shape, PADDING, np.int64)
        found[is_real] = numbers
        return found

    def _opened(self, number: int) -> Epoch:
        with self._lock:
            found = next((each for each in self._epochs if each.number == number), None)
            if found is None:
                found = self.plan.order.epoch(number)
                self._epochs = [found, *self._epochs[:1]]
            return found
