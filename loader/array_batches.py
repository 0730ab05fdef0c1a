"""``batches``: the batches of ``load`` as NumPy arrays, in the same order, without TensorFlow."""

from __future__ import annotations

import operator
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from tfshards.loader.arrays.examples import Batch, Columns, delivered, joined, processed
from tfshards.loader.examples.content import make_content, notes_of
from tfshards.loader.options.boxes import Boxes, Keypoints
from tfshards.loader.options.image import Image
from tfshards.loader.options.load_options import (
    LoadOptions,
    OnDamage,
    Remainder,
    SampleWeights,
    whole_cache_of,
)
from tfshards.loader.options.position import Counter, Facts, Position
from tfshards.loader.options.selection import Classes, Mix, Part, Shuffle
from tfshards.loader.options.validation import suggests
from tfshards.loader.options.worker import Worker, log_part, num_cpus, other_workers, reads_all
from tfshards.loader.order.plan import make_plan, no_steps
from tfshards.loader.reading.damage import PADDING
from tfshards.loader.reading.frames import read_values
from tfshards.loader.reading.opening import open_frames
from tfshards.loader.reading.source import open_source, without_class
from tfshards.schemas.columns import Columns as Parser
from tfshards.schemas.index import IntArray as Ints

# Batches that are read while one is used.
_AHEAD = 2
# Bytes of records that are read together.
_READ_BYTES = 16 << 20
# Fewer rows with images are processed by one thread.
_FEWEST_ROWS = 4


@suggests
def batches(
    path: str | os.PathLike[str] | Mix,
    split: str | None = None,
    *,
    batch_size: int,
    select: Sequence[str] | None = None,
    take: int | Part | None = None,
    classes: Classes | None = None,
    image: Image | Mapping[str, Image] | None = None,
    boxes: Boxes | None = None,
    keypoints: Keypoints | None = None,
    sample_weights: SampleWeights | None = None,
    map_fn: Callable[..., object] | None = None,
    shuffle: Shuffle | None = None,
    remainder: Remainder = "drop",
    epochs: int | None = 1,
    start: Position | Counter | None = None,
    worker: Worker | None = None,
    cache: str | None = None,
    on_damage: OnDamage = "raise",
) -> Batches:
    """Return the batches of ``load`` as NumPy arrays, in the same order, to the last key, crop and weight.

    TensorFlow is not needed. Images are decoded by Pillow, in threads: pixels that are not resized are those
    of ``load`` bit for bit, resized ones differ by at most 1 of 255. Only the outer columns of a cropped JPEG
    differ more, since TensorFlow decodes a crop without its neighbors.

    All parameters are those of ``load``; ``cache`` may have no limit.

    Returns:
        An iterable of batches, each a dict by feature name in the schema's order, or the tuple ``select``,
        of arrays of shape ``(batch_size, *shape)``. Byte strings, lists of any length and images of different
        sizes are arrays of objects, shape ``(batch_size,)``. ``map_fn`` is called with NumPy arrays, and its
        results are stacked.

    Raises:
        OptionsError: an option is not allowed, or contradicts the others or the dataset; or one that only
            ``load`` has: a limit of ``cache``.
        InputError: there is no dataset in ``path``, or no such split in it; its shards are compressed,
            and there is no ``cache``.
        FormatError: the manifest or an index breaks the format, or a shard differs from the manifest.
    """
    options = LoadOptions(**locals())
    surroundings = other_workers()
    if surroundings and options.worker is None and options.this_worker.count == 1:
        warnings.warn(reads_all(surroundings, "batches"), stacklevel=3)
    return Batches(options)


class Batches:
    """The batches of a run as a sequence, of which each iteration is one run; see ``batches``.

    The ``len(run)`` batches of a run with an end are ``run[0]`` to ``run[-1]``; ``run[epoch, step]`` is a
    batch of any epoch. It is a map-style dataset of PyTorch and a source of Grain as it is, pickled as its
    options. Iterations read ahead in threads; ``run[...]`` reads in the thread that asks.
    """

    def __init__(self, options: LoadOptions) -> None:
        """Check the files of the split, and prepare to read."""
        whole_cache_of(options.cache)
        self.options: LoadOptions = options
        source = open_source(options)
        self._content = content = make_content(options, source)
        self._plan = make_plan(options, source)
        notes = [
            *notes_of(content, source),
            *without_class(options, source, content.features),
            *([] if self.steps_per_epoch else [no_steps(self._plan)]),
        ]
        for note in notes:
            warnings.warn(note, stacklevel=4)
        self._source = source
        self._parser = Parser(content.parsed)
        if content.images:
            _need_pillow()
        # the first batch of the next iteration, and the one after the newest, by their indices
        self._begin = self._next = self.first
        # the batch asked for last, its distance from the one before, and batches that were read with it
        self._asked = -1, 0
        self._kept: dict[int, Batch] = {}
        # opened now, so that faults of the files are found here
        self._frames, self._damage = open_frames(source, options)
        log_part(source.label, options.this_worker, self.steps_per_epoch)
        if options.tracker is not None:
            options.tracker.load_from_here(self.order, self.steps_per_epoch)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches of an epoch, the same for each worker."""
        return self._plan.order.num_steps

    @property
    def position(self) -> Position:
        """The position of the next batch of the newest iteration, with what the order depends on."""
        return Position(*divmod(self._next, max(1, self.steps_per_epoch)), self.order)

    def __len__(self) -> int:
        """Return the number of batches of an iteration."""
        num_steps = self._plan.num_steps
        if num_steps is None:
            raise TypeError("batches of a run with epochs=None have no number")
        return num_steps

    def numbers(self, epoch: int, step: int) -> Ints:
        """Return the numbers of the examples of a batch in stored order, shape ``(batch_size,)`` int64.

        -2 stands for padding, and for damaged records that were skipped when they were met.
        """
        index = epoch * self.steps_per_epoch + step
        return self._numbers(range(index, index + 1))

    def __getitem__(self, index: int | tuple[int, int]) -> Batch:
        """Return a batch: by its index in the run, also from its end; or by epoch and step, from 0."""
        steps = self.steps_per_epoch
        if isinstance(index, tuple):
            epoch, step = map(operator.index, index)
            is_there, at = epoch >= 0 and 0 <= step < steps, epoch * steps + step
        else:
            number = operator.index(index)
            at = self.first + number + (len(self) if number < 0 else 0)
            is_there = self.first <= at and (self.end is None or at < self.end)
        if not is_there or not steps:
            raise IndexError(f"batch {index} of {self!r}")
        found, (last, hop) = self._kept.pop(at, None), self._asked
        self._asked = at, at - last
        if found is not None:
            return found
        indices = range(at, at + 1)
        if at - last == hop > 0 and not self._content.by_example:
            # what follows at the same distance, as one of several processes asks, is read with it
            indices = range(at, min(self.epoch_end(at), at + hop * self._together), hop)
        numbers = self._numbers(indices)
        batches = [*self._split(indices, numbers, self._read(at, numbers))]
        self._kept = dict(zip(indices[1:], batches[1:], strict=True))
        return batches[0]

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches from the start of the run; of the next epoch if the run is one epoch long.

        An iteration of which at most one batch was taken was a look: the next one is the same epoch.
        """
        first = self._begin
        for number, batch in enumerate(self._run(first)):
            if number:
                self._count(first)
            yield batch
        self._count(first)

    def _count(self, first: int) -> None:
        """Let the iterations that follow be the next epoch, if they are to differ."""
        if self._plan.is_next_epoch_each_time:
            self._begin = max(self._begin, self.epoch_end(first))

    @property
    def _together(self) -> int:
        """The steps that are read together; of decoded images one, which are larger than what is read."""
        if self._content.by_example:
            return 1
        plan = self._plan
        # more neighbors of each lane are read by one call
        return max(plan.group, int(_READ_BYTES / plan.record_bytes / plan.order.batch_size))

    @property
    def first(self) -> int:
        """The index of the first batch of the run, counted from the start of epoch 0."""
        begin = self._plan.begin
        return begin.epoch * self.steps_per_epoch + begin.step

    @property
    def end(self) -> int | None:
        """The index at which the run ends, counted from the start of epoch 0; None if it does not."""
        epochs, steps = self.options.epochs, self.steps_per_epoch
        return None if epochs is None and steps else (epochs or 0) * steps

    def epoch_end(self, index: int) -> int:
        """Return the index at which the epoch of a batch ends."""
        steps = self.steps_per_epoch
        return (index // max(1, steps) + 1) * steps

    def _run(self, first: int) -> Iterator[Batch]:
        """Yield the batches of an iteration from an index, each read ahead in threads."""
        self._next = first
        is_alone = self._frames.one_by_one and not self._content.by_example
        threads = ThreadPoolExecutor(1 if is_alone else num_cpus())
        due: deque[_Reading] = deque()
        try:
            for indices in self._groups(first):
                due.append(self._started(threads, indices))
                if len(due) > _AHEAD:
                    yield from self._finished(due.popleft())
            while due:
                yield from self._finished(due.popleft())
        finally:
            # cancel_futures= fails in an interpreter that exits
            for reading in due:
                for part in reading.parts:
                    part.cancel()
            threads.shutdown(wait=False)

    def _groups(self, index: int) -> Iterator[range]:
        """Yield the batches that are read together, each of one epoch, of an iteration from an index."""
        end = self.epoch_end(index) if self._plan.is_next_epoch_each_time else self.end
        while end is None or index < end:
            yield (indices := range(index, min(index + self._together, self.epoch_end(index))))
            index = indices.stop

    def _started(self, threads: ThreadPoolExecutor, indices: range) -> _Reading:
        numbers, count = self._numbers(indices), 1
        if self._content.by_example:
            count = max(1, min(num_cpus(), len(numbers) // _FEWEST_ROWS))
        parts = [threads.submit(self._read, indices[0], part) for part in np.array_split(numbers, count)]
        return _Reading(indices, numbers, parts)

    def _finished(self, reading: _Reading) -> Iterator[Batch]:
        columns = joined([part.result() for part in reading.parts])
        for batch in self._split(reading.indices, reading.numbers, columns):
            self._next += 1
            yield batch

    def _split(self, indices: range, numbers: Ints, columns: Columns) -> Iterator[Batch]:
        """Yield the batches that were read together, as they are delivered."""
        size = self._plan.order.batch_size
        for row in range(len(indices)):
            rows = slice(row * size, (row + 1) * size)
            of_step = columns
            if len(indices) > 1:
                of_step = {name: column[rows] for name, column in columns.items()}
            yield delivered(self._content, self._without_padding(of_step, numbers[rows]))

    def _numbers(self, indices: range) -> Ints:
        """Return the numbers of the examples of batches of one epoch, a vector."""
        epoch, step = divmod(indices[0], self.steps_per_epoch)
        numbers = self._plan.order.numbers(epoch, step, step + indices[-1] - indices[0] + 1)
        return self._damage.without(numbers[:: indices.step].reshape(-1))

    def _read(self, index: int, numbers: Ints) -> Columns:
        def read(numbers: Ints) -> Columns:
            return read_values(self._source.root, self._frames, self._parser, numbers)

        numbers, columns = self._damage.read(numbers, read)
        return processed(self._content, columns, index // self.steps_per_epoch, numbers)

    def _without_padding(self, columns: Columns, numbers: Ints) -> Columns:
        """Return the columns without padding, which only the last batches of an epoch have."""
        if self.options.remainder != "keep" or (numbers != PADDING).all():
            return columns
        return {name: column[numbers != PADDING] for name, column in columns.items()}

    @property
    def order(self) -> Facts:
        """What the order of the run depends on."""
        return self._plan.facts

    def __repr__(self) -> str:
        worker, steps, epochs = self.options.this_worker, self.steps_per_epoch, self.options.epochs
        order = sha256(repr(sorted(self.order.items())).encode()).hexdigest()[:8]
        return (
            f"Batches({self._source.label}, part {worker.index} of {worker.count}, {steps} steps an epoch, "
            f"epochs={epochs}, from {self._plan.begin}, order {order})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # a Progress stays in the process whose steps it counts
        start = self.options.start if self.options.tracker is None else self._plan.begin
        options = replace(self.options, start=start)
        return type(self), (options,)


def _need_pillow() -> None:
    try:
        import_module("tfshards.loader.arrays.decode")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"image= needs {error.name}: pip install 'tfshards[images]'", name=error.name
        ) from error


class _Reading(NamedTuple):
    """Batches that are being read."""

    indices: range
    numbers: Ints
    parts: list[Future[Columns]]
