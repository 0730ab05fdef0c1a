"""Calls of Python methods in the graph, whose objects live and end with the dataset."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import tensorflow as tf

# How long running calls may take at exit, and for how long there must be none.
_SECONDS_TO_END = 20.0
_SECONDS_QUIET = 0.1


def call_method(
    method: Callable[..., object], inputs: Sequence[tf.Tensor], dtypes: Sequence[tf.DType]
) -> list[tf.Tensor]:
    """Return the results of a Python method, called in the thread that runs the graph.

    ``tf.numpy_function`` keeps its function alive until the process ends, and with it all that an object
    holds. Here whoever runs the graph must keep the object of the method; see ``keep_alive``.

    Args:
        method: a method of an object; called with NumPy values.
        inputs: its arguments.
        dtypes: the dtypes of its results, which are scalars.
    """
    weak = weakref.WeakMethod(method)

    _end_calls_at_exit()

    def call(*values: object) -> object:
        alive = weak()
        if alive is None:
            raise RuntimeError("the dataset was deleted while one of its iterators was in use; keep it")
        if _ending.is_set():
            raise RuntimeError("the process ends while an iterator is in use")
        running = object()
        _calls.add(running)
        try:
            return alive(*values)
        finally:
            _calls.discard(running)

    results = tf.numpy_function(call, list(inputs), list(dtypes))
    for result in results:
        result.set_shape([])
    return list(results)


# The calls of Python methods that run now, and whether no more may start.
_calls: set[object] = set()
_ending = threading.Event()


@cache
def _end_calls_at_exit() -> None:
    atexit.register(_end_calls)


def _end_calls() -> None:
    """Let the threads of iterators leave Python before the interpreter ends.

    Otherwise an iterator that still exists then, such as that of a traceback, waits in its destructor for a
    thread that waits for the interpreter.
    """
    _ending.set()
    end, quiet = time.monotonic() + _SECONDS_TO_END, time.monotonic()
    while time.monotonic() < min(end, quiet + _SECONDS_QUIET):
        if _calls:
            quiet = time.monotonic()
        time.sleep(0.01)


def keep_alive(dataset: tf.data.Dataset, kept: object) -> tf.data.Dataset:
    """Return ``dataset``, which, as all datasets and iterators made from it, keeps an object alive."""
    dataset.kept_alive = _KeptAlive((kept,))
    return dataset


class _KeptAlive(NamedTuple):
    """Objects that a dataset keeps; TensorFlow would wrap a plain tuple to save it in a model."""

    kept: tuple[object, ...]
