"""``Feed``: what the graph reads next, computed in Python a chunk of steps at a time.

The graph asks for chunks of the run. By lanes, each reader has some of the lanes, and a chunk of it is

    lane 0  | interval | interval   |        interval: file, offset, count of records
    lane 1  | interval     | interval |      that follow each other there
    ...

TensorFlow's C++ reads the intervals. It puts ``MISSING`` in the place of records that it cannot read, and of
rows that only pad the last batch; what such a row is, Python says.
"""

from __future__ import annotations

import os
import threading
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tfshards.loader.examples.content import Content
from tfshards.loader.options.worker import num_cpus
from tfshards.loader.order.plan import ReadPlan
from tfshards.loader.reading.damage import Damage
from tfshards.loader.reading.frames import Frames
from tfshards.loader.reading.windows import UNREADABLE, WINDOW_BYTES, Windows
from tfshards.schemas import FormatError, InputError
from tfshards.schemas.index import IntArray as Ints

# Takes the place of a record that is not there: no ``tf.train.Example`` consists of a single byte.
MISSING = b"\xff"

# Several threads read for one step, each some of the lanes.
_MOST_READERS = 16
# Runs of each lane, and bytes by steps, that are planned together.
_RUNS = 4
_FIRST_RECORDS, _FIRST_BYTES = 4096, 32 << 20
# The most batches that Keras 3 takes of a dataset to look at it, under a strategy of four replicas.
_LOOK = 4
_STREAM_BYTES = 8 << 20
# Larger records are read by TensorFlow one by one; smaller ones, if no neighbors are read, by ``Frames``.
_SMALL_BYTES = 16 << 10


class Chunk(NamedTuple):
    """The intervals of a chunk of one reader.

    Attributes:
        steps: shape ``(groups + 1,)`` int64: the first step of each group, counted from the start of epoch 0,
            and the end of the last one.
        files: paths, string.
        intervals: shape ``(n, 3)`` int64: the file, the offset in it, and the number of records.
        lanes: shape ``(lanes + 1,)`` int64: where the intervals of each lane begin, and the end.
    """

    steps: Ints
    files: npt.NDArray[np.object_]
    intervals: Ints
    lanes: Ints


class Feed:
    """The chunks of the run of one worker. Any number of iterations may ask for them."""

    def __init__(
        self, plan: ReadPlan, content: Content, frames: Frames, windows: Windows | None, damage: Damage
    ) -> None:
        """Prepare to plan; ``windows`` fetches what TensorFlow cannot read where it is."""
        self.plan: ReadPlan = plan
        self.frames: Frames = frames
        self._damage = damage
        self.content: Content = content
        self._order, self._windows = plan.order, windows
        # the files that TensorFlow reads, besides what is fetched
        self._near = frames if windows is None else windows.near
        self._paths = np.array([*map(str, self._near.paths), os.devnull], object)
        # the epoch of the next iteration, if each is another one; whether the last one may have been a look
        self._epoch, self._was_unsure, self._lock = 0, False, threading.Lock()
        order = plan.order
        batch_bytes = plan.record_bytes * order.batch_size
        self.group: int = plan.group
        # by steps, each reads a part of the rows of each group; of what is fetched, neighbors stay together
        by_steps = order.batch_size if windows is None else 0
        self.readers: int = _num_readers(order.worker_lanes if order.lanes else by_steps)
        if windows is not None:
            steps = WINDOW_BYTES / batch_bytes
        elif order.lanes:
            steps = _RUNS * max(order.run, 1) / order.rows_per_lane
        else:
            steps = _STREAM_BYTES / batch_bytes
        # the steps of all chunks of an epoch but the first one
        self._chunk: int = max(1, int(steps / self.group)) * self.group

    @property
    def is_by_record(self) -> bool:
        """Whether small records that are no neighbors are read, by ``records`` rather than by ``chunk``."""
        return self.plan.is_scattered and self.plan.record_bytes < _SMALL_BYTES

    def begin(self) -> tuple[np.int64, np.int64]:
        """Return the first chunk of an iteration, and the chunk at which it ends."""
        plan = self.plan
        first, step = plan.begin.epoch + self._epoch, plan.begin.step
        end = np.iinfo(np.int64).max if plan.epochs is None else (plan.epochs + self._epoch) * self._chunks
        begin = first * self._chunks + int(np.searchsorted(self._bounds, step, side="right")) - 1
        if not self._order.num_steps:
            # otherwise the first batch would be looked for in all epochs
            end = begin
        return np.int64(begin), np.int64(max(begin, end))

    @property
    def sure(self) -> int:
        """The batches after which an iteration is certainly no look."""
        return max(1, min(_LOOK + 1, self._order.num_steps))

    def deliver(self, begin: np.int64, number: np.int64) -> np.int64:
        """Note that the batch ``number``, from 1, of an iteration that begins at a chunk is requested.

        The epoch of an iteration counts, and the next iteration is the next epoch, unless it was a look: of
        one batch, or, as Keras asks for them under a strategy, of up to ``_LOOK``. Of two such iterations in
        a row the second counts, as a program that takes few batches of each epoch has them.
        """
        with self._lock:
            if number >= self.sure or self._was_unsure:
                self._epoch = max(self._epoch, int(begin) // self._chunks + 1 - self.plan.begin.epoch)
            self._was_unsure = bool(number < self.sure) and not self._was_unsure
        return number

    def groups(self, chunk: int) -> tuple[int, Ints]:
        """Return the epoch of a chunk, and the steps in it at which its groups begin, and the end."""
        epoch, index = divmod(int(chunk), self._chunks)
        first, end = self._bounds[index : index + 2].tolist()
        if epoch == self.plan.begin.epoch:
            first = max(first, self.plan.begin.step)
        return epoch, np.append(np.arange(first, end, self.group), end)

    def steps(self, chunk: np.int64) -> Ints:
        """Return the steps at which the groups of a chunk begin, counted from epoch 0, and the end."""
        epoch, steps = self.groups(int(chunk))
        return steps + epoch * self._order.num_steps

    def chunk(self, chunk: np.int64, reader: np.int64) -> Chunk:
        """Return a chunk of a reader."""
        epoch, steps = self.groups(int(chunk))
        numbers = self._order.of_lanes(epoch, int(steps[0]), int(steps[-1]))
        if self._order.lanes:
            numbers = np.split(numbers, self.readers)[reader]
        else:
            groups = np.split(numbers, (steps[1:-1] - steps[0]) * self._order.batch_size, axis=1)
            numbers = np.hstack([np.split(group, self.readers, axis=1)[reader] for group in groups])
        steps = steps + epoch * self._order.num_steps
        files, where = self._paths, np.full(numbers.size, -1, np.int64)
        if self._windows is not None:
            window, where = self._windows.fetch(int(reader), numbers)
            files = np.append(files, np.array([window], object))
        firsts, counts, lanes, heads = self.frames.intervals(numbers, where >= 0)
        is_here = (firsts >= 0) & (where[heads] < 0)
        lies = self._near.lies(firsts[is_here], counts[is_here])
        if len(lies):
            numbers[np.isin(numbers, lies)] = UNREADABLE
            firsts, counts, lanes, heads = self.frames.intervals(numbers, where >= 0)
        shards, offsets, _ = self.frames.places(np.maximum(firsts, 0))
        fetched, is_lacking = where[heads], firsts < 0
        # the file after those of the shards is empty
        file = np.where(is_lacking, len(self._paths) - 1, np.where(fetched < 0, shards, len(files) - 1))
        offsets = np.where(is_lacking, 0, np.where(fetched < 0, offsets, fetched))
        return Chunk(steps, files, np.stack([file, offsets, counts], axis=1), lanes)

    def records(self, begin: np.int64, end: np.int64) -> tuple[bytes, Ints, Ints, bytes]:
        """Return the records of the steps ``[begin, end)``: the bytes, and the start and length of each.

        The last value is the text of the error if one is damaged, and empty if none is.
        """
        found, fault = self.missing(begin, end, np.arange(int(end - begin) * self._order.batch_size))
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        return b"".join(found), np.cumsum(lengths) - lengths, lengths, fault

    def numbers(self, begin: np.int64, end: np.int64) -> Ints:
        """Return the numbers of the examples of the steps ``[begin, end)``; ``PADDING`` for other rows."""
        epoch, step = divmod(int(begin), self._order.num_steps)
        numbers = self._order.numbers(epoch, step, step + int(end - begin)).reshape(-1)
        return self._damage.without(numbers)

    def missing(self, begin: np.int64, end: np.int64, rows: Ints) -> tuple[npt.NDArray[np.object_], bytes]:
        """Return the records of some rows of the steps ``[begin, end)``, of which padding has one, too.

        If one of them is damaged, no record is returned, but the text of the error that names it.
        """
        try:
            return self._damage.read(self.numbers(begin, end)[rows], self.frames.records)[1], b""
        except (FormatError, InputError) as error:
            # raised here, it would come with the stack of this function
            return np.full(len(rows), MISSING, object), str(error).encode()

    def draws(self, begin: np.int64, numbers: Ints) -> tuple[npt.NDArray[Any], ...]:
        """Return the random draws, in the order of ``drawn``, of examples of the epoch of a step."""
        return tuple(self.content.draws(int(begin) // self._order.num_steps, numbers).values())

    def weights(self, values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float32], bytes]:
        """Return the weights of examples with these values, and the text of the error if one has none."""
        assert self.content.weighing is not None
        try:
            return self.content.weighing.of(values), b""
        except FormatError as error:
            return np.zeros(len(values), np.float32), str(error).encode()

    @cached_property
    def drawn(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """The shape and the dtype of each random draw of an example, by name."""
        drawn = self.content.draws(0, np.zeros(1, np.int64))
        return {name: (each.shape[1:], each.dtype) for name, each in drawn.items()}

    @cached_property
    def _bounds(self) -> Ints:
        """The steps of an epoch at which chunks begin, and the end.

        The first chunk is short, so that the first batch does not wait for the plan of many. Each is longer
        than the one before it, up to a limit: much longer where records are not fetched, since each opens
        files anew.
        """
        num_steps, bounds = self._order.num_steps, [0]
        records, factor = max(_FIRST_RECORDS, _FIRST_BYTES / self.plan.record_bytes), 1 << 20
        if self._windows is not None:
            records, factor = WINDOW_BYTES / 4 / self.plan.record_bytes, 2
        length = self.group * max(1, int(records / self._order.batch_size / self.group))
        while bounds[-1] + length < num_steps:
            bounds.append(bounds[-1] + min(length, self._chunk))
            length = min(factor * length, self._chunk)
        return np.array([*bounds, num_steps], np.int64)

    @property
    def _chunks(self) -> int:
        return len(self._bounds) - 1


def _num_readers(lanes: int) -> int:
    """Return a power of two that divides the lanes: at least two, where it can be, and one a processor."""
    found, most = 1, min(_MOST_READERS, max(2, num_cpus()))
    while lanes and lanes % (2 * found) == 0 and 2 * found <= most:
        found *= 2
    return found
