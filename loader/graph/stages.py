"""Pipeline stages whose functions are ready within milliseconds, and calls of Python in the graph."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import tensorflow as tf

from tfshards.loader.graph import raw_ops

# How long running calls may take at exit, and for how long there must be none.
_SECONDS_TO_END = 20.0
_SECONDS_QUIET = 0.1


def call_method(
    method: Callable[..., object], inputs: Sequence[tf.Tensor], specs: Sequence[tf.TensorSpec]
) -> list[tf.Tensor]:
    """Return the results of a Python method, called in the thread that runs the graph.

    ``tf.numpy_function`` keeps its function alive until the process ends, and with it all that an object
    holds. Here whoever runs the graph must keep the object of the method; see ``keep_alive``.

    Args:
        specs: the specs of its results.
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

    results = tf.numpy_function(call, list(inputs), [spec.dtype for spec in specs])
    for result, spec in zip(results, specs, strict=True):
        result.set_shape(spec.shape)
    return list(results)


# The calls of Python methods that run now, and whether no more may start.
_calls: set[object] = set()
_ending = threading.Event()


@cache
def _end_calls_at_exit() -> None:
    atexit.register(_end_calls)


def _end_calls() -> None:
    """Let the threads of iterators leave Python before the interpreter ends.

    Otherwise an iterator that still exists then, such as one in a traceback, waits in its destructor for a
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
    dataset.kept_alive = _Kept((kept,))
    return dataset


class _Kept(NamedTuple):
    """Objects that a dataset keeps alive; TensorFlow would wrap a plain tuple to save it in a model."""

    kept: tuple[object, ...]


# Operations that call functions.
_CALLS = {
    *("If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"),
    *("PartitionedCall", "StatefulPartitionedCall"),
}
_A_DATASET = tf.TensorSpec([], tf.variant)


def mapped(
    dataset: tf.data.Dataset,
    function: Callable[..., object],
    num_parallel_calls: int | None = None,
    *,
    in_calling_thread: bool = False,
) -> tf.data.Dataset:
    """Return ``dataset.map(function)``, in order, for a function of TensorFlow operations only.

    ``in_calling_thread``: see ``raw_ops.map_dataset``.
    """
    stage = _Stage(dataset, function) if _is_plain(dataset.element_spec) else None
    if stage is None or not _is_plain(stage.spec):
        # Only tf.data knows how a ragged tensor is represented.
        return dataset.map(raw_ops.without_autograph(function), num_parallel_calls)
    call = stage.call(tf.nest.flatten(stage.spec))
    return stage.result(raw_ops.map_dataset(call, num_parallel_calls, in_calling_thread=in_calling_thread))


def flat_mapped(dataset: tf.data.Dataset, function: Callable[..., tf.data.Dataset]) -> tf.data.Dataset:
    """Return ``dataset.flat_map(function)``; see ``mapped``."""
    stage = _Stage(dataset, function)
    return stage.result(raw_ops.flat_map_dataset(stage.call_of_datasets()))


def interleaved(
    dataset: tf.data.Dataset,
    function: Callable[..., tf.data.Dataset],
    cycle_length: int,
    block_length: int = 1,
    num_parallel_calls: int | None = None,
) -> tf.data.Dataset:
    """Return ``dataset.interleave(function, ...)``, in order; see ``mapped``."""
    stage = _Stage(dataset, function)
    call = stage.call_of_datasets()
    return stage.result(raw_ops.interleave_dataset(call, cycle_length, block_length, num_parallel_calls))


def unbatched(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return ``dataset.unbatch()``; see ``mapped``."""
    spec = dataset.element_spec
    if not _is_plain(spec):
        return dataset.unbatch()
    elements = tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape[1:], each.dtype), spec)
    variant = raw_ops.unbatch_dataset(raw_ops.to_variant(dataset), tf.nest.flatten(elements))
    return _dataset(variant, elements, dataset)


def _dataset(variant: tf.Tensor, spec: object, *made_from: object) -> tf.data.Dataset:
    dataset = raw_ops.from_variant(variant, spec)
    # As in tf.data's own classes: what a function calls, such as a user's Python function, must live as long.
    dataset.made_from = _Kept(made_from)
    return dataset


def _is_plain(spec: object) -> bool:
    return all(isinstance(each, tf.TensorSpec) for each in tf.nest.flatten(spec))


@cache
def _identity() -> raw_ops.ConcreteFunction:
    return raw_ops.traced(lambda dataset: dataset, [_A_DATASET])


class _Stage:
    """A function, traced for the elements of a dataset."""

    def __init__(self, dataset: tf.data.Dataset, function: Callable[..., object]) -> None:
        spec = dataset.element_spec

        def flat(*tensors: tf.Tensor) -> list[object]:
            element = tf.nest.pack_sequence_as(spec, tensors)
            returned = function(*element) if type(element) is tuple else function(element)
            if isinstance(returned, tf.data.Dataset):
                self.spec = returned.element_spec
                return [raw_ops.to_variant(returned)]
            self.spec = tf.nest.map_structure(tf.type_spec_from_value, returned)
            flattened: list[object] = tf.nest.flatten(returned)
            return flattened

        self._dataset = dataset
        self._function = raw_ops.traced(flat, tf.nest.flatten(spec))

    def call(self, specs: Sequence[tf.TypeSpec]) -> raw_ops.Call:
        """Return the call of a function that returns tensors of ``specs``."""
        variant = raw_ops.to_variant(self._dataset)
        return raw_ops.Call(variant, self._function, specs)

    def call_of_datasets(self) -> raw_ops.Call:
        """Return the call for an operation that reads the datasets which the function returns.

        Such an operation calls its function in another thread, which costs more than opening a file.
        Therefore a preceding map creates the datasets in the thread that requests them, and the operation
        itself gets the identity, which TensorFlow never calls (``CreateShortCircuitInfo`` in
        tensorflow/core/data/captured_function.cc). The requesting thread must not run a ``tf.cond`` or
        anything else that calls a function: all threads that could run it may be waiting in the same way.
        """
        calls = {operation.type for operation in self._function.graph.get_operations()} & _CALLS
        if calls:
            raise TypeError(f"{sorted(calls)} in a function that returns a dataset could deadlock")
        made = raw_ops.map_dataset(self.call([_A_DATASET]), in_calling_thread=True)
        # in a dataset, what is more than a tensor is one variant
        a_variant = tf.TensorSpec(None, tf.variant)
        flat = [each if isinstance(each, tf.TensorSpec) else a_variant for each in tf.nest.flatten(self.spec)]
        return raw_ops.Call(made, _identity(), flat)

    def result(self, variant: tf.Tensor) -> tf.data.Dataset:
        """Return the dataset that ``variant`` represents, which an operation of this stage returned."""
        return _dataset(variant, self.spec, self._dataset, self._function)
