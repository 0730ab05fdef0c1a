"""``InputWait``: the share of the training time that steps wait for input, with advice."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeVar

import tensorflow as tf

from tfshards.loader.graph.raw_ops import not_prefetched, with_cardinality, without_autograph
from tfshards.loader.training.keras_hooks import Hooks
from tfshards.schemas import OptionsError

Batch = TypeVar("Batch")

# A smaller share is not worth a change.
_LITTLE = 0.05


class InputWait(Hooks):
    """Measure the share of the training time that steps wait for input.

    As a Keras callback, which adds each epoch's share to the logs and the history as ``input_wait``:

    >>> wait = loader.InputWait()
    >>> model.fit(wait.watch(train), callbacks=[wait])
    >>> print(wait)

    In a custom loop:

    >>> for batch in wait.batches(train):
    ...     step(batch)

    The first step is not counted, because functions are compiled in it. The share is measured on the host; a
    GPU that is still busy with the previous step while the host waits is idle for a smaller share.

    Attributes:
        num_batches: number of batches that were measured.
        waited: seconds that steps waited for these batches.
        seconds: duration of these steps in seconds, including the time between them.
    """

    def __init__(self) -> None:
        self.num_batches: int = 0
        self.waited: float = 0.0
        self.seconds: float = 0.0
        self._is_watching, self._is_first_step = False, True
        # times at which the batches of the newest iteration were requested and delivered, until a step uses
        # them
        self._iteration, self._handed = 0.0, deque[tuple[float, float]]()
        self._step_began = self._since = 0.0
        self._last_batch, self._epoch_began = -1, (0.0, 0.0)

    @property
    def share(self) -> float:
        """The share of the time that steps waited for input, 0 to 1; nan if nothing was measured."""
        return _share(self.waited, self.seconds)

    def __str__(self) -> str:
        if math.isnan(self.share):
            return "input: nothing was measured; train for two steps on watch(dataset) or batches(dataset)"
        advice = (
            "faster input would gain nothing"
            if self.share < _LITTLE
            else "if the CPUs are busy, store smaller images (tfshards build --resize), decode to a "
            "smaller Image(size=) or do less in map_fn=; otherwise storage is slow: use "
            'cache="disk:PATH"'
        )
        return (
            f"input: steps waited for {self.share:.0%} of the time ({self.waited:.1f} of "
            f"{self.seconds:.1f} s, {self.num_batches} batches); {advice}"
        )

    def batches(self, data: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches of ``data``, which may be a distributed dataset, to a loop in Python."""
        iterator, since, waited = iter(data), math.nan, 0.0
        while True:
            asked = time.time()
            if not math.isnan(since):
                self._add(1, waited, asked - since)
            try:
                batch = next(iterator)
            except StopIteration:
                return
            since, waited = asked, time.time() - asked
            yield batch

    def watch(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Return ``dataset`` for ``fit``, with a final stage that records when batches are delivered.

        Raises:
            OptionsError: ``dataset`` is not a ``tf.data.Dataset``.
        """
        if not isinstance(dataset, tf.data.Dataset):
            name = type(dataset).__name__
            raise OptionsError("watch-type", name=name)
        self._is_watching = True

        # Keras requests batches inside a compiled function or in another thread, where callbacks cannot see
        # it.
        def request_times(began: tf.Tensor) -> tf.data.Dataset:
            numbers = tf.data.Dataset.range(tf.int64.max)
            return numbers.map(without_autograph(lambda _: (began, tf.timestamp())))

        def hand_over(asked: tuple[tf.Tensor, tf.Tensor], element: object) -> object:
            with tf.control_dependencies([tf.numpy_function(self._hand_over, asked, [])]):
                return tf.nest.map_structure(tf.identity, element, expand_composites=True)

        iterations = tf.data.Dataset.range(1).map(without_autograph(lambda _: tf.timestamp()))
        # zip() reads its datasets in turn, the first one as soon as the batch is requested.
        pairs = tf.data.Dataset.zip(iterations.flat_map(without_autograph(request_times)), dataset)
        watched = pairs.map(without_autograph(hand_over))
        return not_prefetched(with_cardinality(watched, dataset.cardinality()))

    def _hand_over(self, began: float, asked: float) -> None:
        if began > self._iteration:
            self._iteration, self._handed = began, deque()
        # Keras starts some iterations only to build the model.
        if began == self._iteration:
            self._handed.append((asked, time.time()))

    def _add(self, num_batches: int, waited: float, seconds: float) -> None:
        if not self._is_first_step:
            self.num_batches += num_batches
            self.waited += waited
            self.seconds += seconds
        self._is_first_step = False

    # callback methods

    def on_train_begin(self, logs: object = None) -> None:
        """Raise unless ``watch`` was called.

        Raises:
            OptionsError: it was not.
        """
        if not self._is_watching:
            raise OptionsError("wait-no-batches")
        self._is_first_step = True

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        """Start the measurement of an epoch."""
        self._last_batch, self._epoch_began = -1, (self.waited, self.seconds)

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        """Store the time at which the step began."""
        self._step_began = time.time()
        if self._last_batch < 0:
            self._since = self._step_began

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Add the step, which uses several batches with ``steps_per_execution``."""
        num_batches = min(batch - self._last_batch, len(self._handed))
        handed = [self._handed.popleft() for _ in range(num_batches)]
        # The wait for a batch that was requested before the step counts from the beginning of the step.
        waited = sum(max(0.0, came - max(asked, self._step_began)) for asked, came in handed)
        now = time.time()
        self._add(num_batches, waited, now - self._since)
        self._last_batch, self._since = batch, now

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Log the epoch's share as ``input_wait``."""
        waited, seconds = self._epoch_began
        if logs is not None:
            logs["input_wait"] = _share(self.waited - waited, self.seconds - seconds)


def _share(waited: float, seconds: float) -> float:
    return min(1.0, waited / seconds) if seconds > 0 else math.nan
