"""Examples per second of a ``tf.data.Dataset``, in the graph and in Python, of one or of several in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import tensorflow as tf


def rate_in_graph(
    dataset: tf.data.Dataset, examples_of: Callable[[tf.Tensor], tf.Tensor], seconds: float
) -> float:
    """Return the examples per second of an endless dataset, iterated without Python.

    Args:
        dataset: the dataset.
        examples_of: returns the number of examples of an element.
        seconds: time to measure, after a quarter as long to start.
    """

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def advance(iterator: object, count: tf.Tensor) -> tf.Tensor:
        def step(index: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            element = iterator.get_next()  # type: ignore[attr-defined]
            return index + 1, total + tf.cast(examples_of(element), tf.int64)

        zeros = (tf.zeros([], tf.int64), tf.zeros([], tf.int64))
        return tf.while_loop(lambda index, _: index < count, step, zeros, parallel_iterations=1)[1]

    iterator = iter(dataset)
    advance(iterator, tf.constant(1, tf.int64))
    count = 1
    for length in (seconds / 4, seconds):
        began, total = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < length:
            since = time.perf_counter()
            total += int(advance(iterator, tf.constant(count, tf.int64)))
            # calls of about a tenth of a second, which Python does not slow down
            count = max(1, min(8 * count, int(count * 0.1 / max(time.perf_counter() - since, 1e-6))))
    return total / elapsed


def rate_in_python(dataset: tf.data.Dataset, batch_size: int, seconds: float) -> float:
    """Return the examples per second of an endless dataset of batches in a loop of Python."""
    iterator = iter(dataset)
    for length in (seconds / 4, seconds):
        began, total = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < length:
            next(iterator)
            total += batch_size
    return total / elapsed


def rates_in_turns(measures: Mapping[str, Callable[[float], float]], seconds: float) -> dict[str, float]:
    """Return the better rate of two rounds of each measurement.

    The rounds take turns, so that other work of the machine slows down all of them rather than one.

    Args:
        measures: functions that measure for a number of seconds, and return a rate.
        seconds: time to measure each of them, in both rounds together.
    """
    rounds = [{name: measure(seconds / 2) for name, measure in measures.items()} for _ in range(2)]
    return {name: max(each[name] for each in rounds) for name in measures}
