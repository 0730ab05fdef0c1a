"""``InputWait``: which share of the training steps waited for input, and what to change about it."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.batches import num_cpus
from tfshards.loader.keras_hooks import Hooks
from tfshards.loader.stamps import MOST_KEPT, Stamps, Sums, stamped
from tfshards.schemas import OptionsError

Batch = TypeVar("Batch")
Data = TypeVar("Data", bound=Iterable[object])

# Below this nothing is worth a change.
_LITTLE = 0.05
# With this share of the processors' time used, they are what is short.
_BUSY = 0.75
_NO_ROWS = np.zeros((0, 4), np.float64)


@dataclass(frozen=True)
class Waited:
    """What came of an epoch, or of some together.

    Attributes:
        num_batches: that were looked at.
        waited: the seconds in which steps waited for one of them.
        seconds: that these steps took, with what lay between them.
        busy: the share of the processors' time, of all that this process may use, that it used meanwhile.
    """

    num_batches: int
    waited: float
    seconds: float
    busy: float

    @property
    def share(self) -> float:
        """``waited / seconds``; nan where nothing was measured."""
        return min(1.0, self.waited / self.seconds) if self.num_batches and self.seconds > 0 else math.nan


class InputWait(Hooks):
    """Measures which share of the training steps waited for input.

    As a callback of Keras, where each epoch's share is ``input_wait`` in the logs and the history:

    >>> wait = loader.InputWait()
    >>> model.fit(wait.watch(train), callbacks=[wait])
    >>> print(wait)

    Around a loop of one's own, from its second batch on:

    >>> with loader.InputWait() as wait:
    ...     for batch in wait.watch(train):
    ...         step(batch)

    A batch is waited for from the moment when the step asks for it, or when it begins if that is later, until
    it is handed over. What TensorFlow has buffered by then was not waited for. The first step, in which
    functions are compiled, does not count. All is measured on the host: a GPU that still works on the step
    before while the host waits does not stand still, and its share is at most the one that is told. So it is
    with ``steps_per_execution`` above 1 under a strategy of several replicas.
    """

    def __init__(self) -> None:
        self._watched: list[Stamps | _Timed[object]] = []
        self._epochs: list[Waited] = []
        self._in_block = False
        self._rows = _NO_ROWS
        self._iteration, self._first = 0.0, 0
        self._begins: list[tuple[float, int]] = []
        self._end, self._taken = 0.0, 0
        self._entered = self._used = 0.0
        self._is_first_step = True

    def watch(self, data: Data) -> Data:
        """Return ``data`` so that its batches are noted: the same elements, specification and cardinality.

        Args:
            data: a ``tf.data.Dataset``; in a ``with`` block also a distributed dataset, or any other
                iterable, whose batches are then asked for from Python.

        Raises:
            OptionsError: ``data`` is something else than a dataset, and there is no ``with`` block.
        """
        if isinstance(data, tf.data.Dataset):
            dataset, stamps = stamped(data, in_sums=self._in_block)
            self._watched.append(stamps)
            return cast("Data", dataset)
        if not self._in_block:
            raise OptionsError(
                f"watch({type(data).__name__}) outside of a with block must be a tf.data.Dataset: give fit "
                "the dataset of loader.load, which Keras distributes itself"
            )
        timed = _Timed(data)
        self._watched.append(timed)
        return cast("Data", timed)

    @property
    def epochs(self) -> Sequence[Waited]:
        """What was measured in each epoch of Keras, or in each ``with`` block."""
        return tuple(self._epochs)

    @property
    def total(self) -> Waited:
        """What was measured in all epochs together."""
        epochs = [epoch for epoch in self._epochs if epoch.num_batches]
        seconds = sum(epoch.seconds for epoch in epochs)
        busy = sum(epoch.busy * epoch.seconds for epoch in epochs) / seconds if seconds else 0.0
        return Waited(
            sum(epoch.num_batches for epoch in epochs), sum(epoch.waited for epoch in epochs), seconds, busy
        )

    @property
    def share(self) -> float:
        """Which share of the steps' time was waited for input, 0 to 1; nan where nothing was measured."""
        return self.total.share

    def __str__(self) -> str:
        total = self.total
        if math.isnan(total.share):
            return "input: nothing was measured; it takes two steps of a dataset that went through watch()"
        return (
            f"input: {total.share:.0%} of the steps' time was waited for it ({total.waited:.1f} of "
            f"{total.seconds:.1f} s, {total.num_batches} batches); {advice(total)}"
        )

    # around a loop

    def __enter__(self) -> InputWait:
        self._in_block, self._watched = True, []
        self._entered, self._used = time.time(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        end, self._in_block = time.time(), False
        found = [sums for each in self._watched if (sums := each.sums()).num_batches]
        seconds = end - min((sums.began for sums in found), default=end)
        num_batches, waited = sum(each.num_batches for each in found), sum(each.waited for each in found)
        busy = _busy(self._used, end - self._entered)
        self._epochs.append(Waited(num_batches, waited, seconds, busy))

    # as Keras's callback

    def on_train_begin(self, logs: object = None) -> None:
        """Forget what was read to build the model."""
        if not self._watched:
            raise OptionsError("InputWait sees no batches: use fit(wait.watch(dataset), callbacks=[wait])")
        self._take()
        self._rows, self._iteration, self._first = _NO_ROWS, 0.0, 0
        self._begins, self._is_first_step = [], True

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        """Note when the step began."""
        if len(self._begins) == int(self._is_first_step):
            self._entered, self._used = time.time(), time.process_time()
        self._begins.append((time.time(), batch))

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Note when the step ended."""
        self._end = time.time()
        if batch >= self._taken + MOST_KEPT // 4:
            self._take()
            self._taken = batch

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Tell the epoch's share as ``input_wait``."""
        self._take()
        self._taken = 0
        waited = self._epoch()
        self._epochs.append(waited)
        if logs is not None:
            logs["input_wait"] = waited.share

    def _take(self) -> None:
        rows = [each.take() for each in self._watched if isinstance(each, Stamps)]
        self._rows = np.concatenate([self._rows, *rows])

    def _epoch(self) -> Waited:
        """Return what came of the epoch that ends, and forget its batches."""
        begins, self._begins = np.array(self._begins, np.float64).reshape(-1, 2), []
        if not len(begins) or not len(self._rows):
            if len(begins):
                warnings.warn(
                    "InputWait saw none of this epoch's batches: fit reads another dataset than watch()'s",
                    stacklevel=3,
                )
            return Waited(0, 0.0, 0.0, 0.0)
        # Iterations that Keras only begins, to build a model or at an epoch's end, give few batches.
        iterations, counts = np.unique(self._rows[:, 0], return_counts=True)
        iteration = iterations[np.argmax(counts)]
        if iteration != self._iteration:
            self._iteration, self._first = iteration, 0
        number = self._rows[:, 1] - self._first
        mine = (self._rows[:, 0] == iteration) & (number <= begins[-1, 1] + _last_run(begins[:, 1]))
        rows, number = self._rows[mine], number[mine]
        self._rows = self._rows[~mine & (self._rows[:, 0] >= iteration)]
        self._first += int(number.max(initial=-1)) + 1
        # the step that takes each batch
        step = np.searchsorted(begins[:, 1], number, side="right") - 1
        counted = step >= int(self._is_first_step)
        self._is_first_step = False
        asked = np.maximum(rows[:, 2], begins[step, 0])
        waited = np.maximum(rows[:, 3] - asked, 0)[counted]
        seconds = self._end - self._entered
        return Waited(len(waited), float(waited.sum()), seconds, _busy(self._used, seconds))


def advice(waited: Waited) -> str:
    """Return what to change, as far as it can be told from the processors' load."""
    if waited.share < _LITTLE:
        return "nothing about it is worth a change"
    busy = f"{waited.busy:.0%} of the time of {num_cpus()} processors was used"
    if waited.busy >= _BUSY:
        return (
            f"{busy}: they are what is short. Store images smaller (tfshards build --resize), decode to a "
            "smaller Image(size=), make less in a map function of your own, or take more processors"
        )
    return (
        f"{busy}: records come late rather than take long to decode. If the storage is slow, use "
        'cache="disk:PATH" or cache="memory"; a map function of your own that waits looks the same'
    )


class _Timed(Generic[Batch]):
    """An iterable whose batches are asked for from Python."""

    def __init__(self, data: Iterable[Batch]) -> None:
        self._data = data
        self._num_batches, self._waited, self._began = 0, 0.0, 0.0

    def __iter__(self) -> Iterator[Batch]:
        batches = iter(self._data)
        while True:
            asked = time.time()
            try:
                batch = next(batches)
            except StopIteration:
                return
            if self._num_batches == 1:
                self._began = asked
            if self._num_batches:
                self._waited += time.time() - asked
            self._num_batches += 1
            yield batch

    def __len__(self) -> int:
        return len(self._data)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        # element_spec and cardinality, where there are such
        return getattr(self._data, name)

    def sums(self) -> Sums:
        """Return the sums so far."""
        return Sums(max(0, self._num_batches - 1), self._waited, self._began)


def _last_run(firsts: npt.NDArray[np.float64]) -> int:
    """Return how many batches behind its first one the last step may take."""
    return int(firsts[1] - firsts[0]) - 1 if len(firsts) > 1 else 0


def _busy(used: float, seconds: float) -> float:
    return min(1.0, (time.process_time() - used) / (seconds * num_cpus())) if seconds > 0 else 0.0
