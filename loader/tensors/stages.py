"""Pipeline stages whose functions are ready within milliseconds, and calls of Python in the graph.

The raw, experimental and private parts of TensorFlow that the loader uses are here, and in no other file.
tests/packaging/test_installations.py reads the same batches with the oldest supported release, the newest,
and some in between.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias, TypeVar

import tensorflow as tf

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., object])
PythonState: TypeAlias = tf.train.experimental.PythonState

# How long running calls may take at exit, and for how long there must be none.
_SECONDS_TO_END = 20.0
_SECONDS_QUIET = 0.1


# Calls of Python


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


# Stages


def mapped(
    dataset: tf.data.Dataset,
    function: Callable[..., object],
    num_parallel_calls: int | None = None,
    *,
    in_calling_thread: bool = False,
) -> tf.data.Dataset:
    """Return ``dataset.map(function)``, in order, for a function of TensorFlow operations only.

    Without ``num_parallel_calls`` an element is processed on request; ``in_calling_thread``, because passing
    the call to another thread would cost more than opening a file.
    """
    stage = _Stage(dataset, function) if _is_plain(dataset.element_spec) else None
    if stage is None or not _is_plain(stage.spec):
        # Only tf.data knows how a ragged tensor is represented.
        return dataset.map(without_autograph(function), num_parallel_calls)
    arguments = {**stage.arguments(), **_outputs(tf.nest.flatten(stage.spec))}
    if in_calling_thread:
        variant = tf.raw_ops.MapDataset(**arguments, use_inter_op_parallelism=False)
    elif num_parallel_calls is None:
        variant = tf.raw_ops.MapDataset(**arguments, preserve_cardinality=True)
    else:
        calls = tf.constant(num_parallel_calls, tf.int64)
        variant = tf.raw_ops.ParallelMapDatasetV2(
            **arguments, num_parallel_calls=calls, deterministic="true", preserve_cardinality=True
        )
    return stage.result(variant)


def flat_mapped(dataset: tf.data.Dataset, function: Callable[..., tf.data.Dataset]) -> tf.data.Dataset:
    """Return ``dataset.flat_map(function)``; see ``mapped``."""
    stage = _Stage(dataset, function)
    return stage.result(tf.raw_ops.FlatMapDataset(**stage.arguments_of_datasets()))


def interleaved(
    dataset: tf.data.Dataset,
    function: Callable[..., tf.data.Dataset],
    cycle_length: int,
    block_length: int = 1,
    num_parallel_calls: int | None = None,
) -> tf.data.Dataset:
    """Return ``dataset.interleave(function, ...)``, in order; see ``mapped``."""
    stage = _Stage(dataset, function)
    arguments = {
        **stage.arguments_of_datasets(),
        "cycle_length": tf.constant(cycle_length, tf.int64),
        "block_length": tf.constant(block_length, tf.int64),
    }
    if num_parallel_calls is None:
        return stage.result(tf.raw_ops.InterleaveDataset(**arguments))
    ahead = tf.constant(tf.data.AUTOTUNE, tf.int64)
    arguments |= {
        "buffer_output_elements": ahead,
        "prefetch_input_elements": ahead,
        "num_parallel_calls": tf.constant(num_parallel_calls, tf.int64),
        "deterministic": "true",
    }
    return stage.result(tf.raw_ops.ParallelInterleaveDatasetV4(**arguments))


def unbatched(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return ``dataset.unbatch()``, without the function that tf.data maps over the result."""
    spec = dataset.element_spec
    if not _is_plain(spec):
        return dataset.unbatch()
    elements = tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape[1:], each.dtype), spec)
    outputs = _outputs(tf.nest.flatten(elements))
    variant = tf.raw_ops.UnbatchDataset(input_dataset=tf.data.experimental.to_variant(dataset), **outputs)
    return _dataset(variant, elements, dataset)


def records_from(files: tf.Tensor, file: tf.Tensor, offset: tf.Tensor, buffer_bytes: int) -> tf.data.Dataset:
    """Return the records of one of some TFRecord files from the byte ``offset`` on, as scalar strings.

    ``tf.data.TFRecordDataset`` has no argument for an offset, and maps an additional function. TensorFlow
    cannot serialize the graph of a reader with an offset except inside a function; ``reduce()`` and the
    search for the cardinality serialize it.

    Args:
        files: the paths of the files.
        file: scalar int64, the index of the path.
        offset: scalar int64, the byte at which a record starts.
        buffer_bytes: number of bytes that are read ahead; 0 for none.
    """
    variant = tf.raw_ops.TFRecordDatasetV2(
        # tf.gather would be three operations
        filenames=tf.raw_ops.Gather(params=files, indices=file, validate_indices=False),
        compression_type="",
        buffer_size=tf.constant(buffer_bytes, tf.int64),
        byte_offsets=offset,
    )
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))


def finished(dataset: tf.data.Dataset, num_elements: int | None) -> tf.data.Dataset:
    """Return a pipeline of this length, None for no end, that runs in order and as built.

    It is never auto-sharded.
    """
    options = tf.data.Options()
    options.deterministic = True
    # No stage uses autotuning, whose thread delays the end of each iteration by up to seconds.
    options.autotune.enabled = False
    # Optimizing the graph gains nothing, takes as long as everything else up to the first batch, and would
    # copy the tensors that a function captures into the graph.
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    length = tf.data.INFINITE_CARDINALITY if num_elements is None else num_elements
    return dataset.apply(tf.data.experimental.assert_cardinality(length)).with_options(options)


# Functions


def without_autograph(function: AnyFunction) -> AnyFunction:
    """Return ``function``, marked so that TensorFlow traces it without AutoGraph.

    ``tf.data.Dataset.map`` and similar methods have no public argument for this. AutoGraph takes seconds for
    the first dataset of a process, and no function of the loader needs it.
    """
    marked: AnyFunction = tf.autograph.experimental.do_not_convert(function)
    return marked


def fail_unless(fault: tf.Tensor) -> tf.Operation:
    """Return an operation that fails with the scalar string ``fault`` in its message, unless it is empty.

    ``tf.debugging.Assert`` would wrap it in a ``tf.cond``.
    """
    return tf.raw_ops.Assert(condition=tf.equal(fault, ""), data=[fault])


_A_DATASET = tf.TensorSpec([], tf.variant)


class _Stage:
    """A function, traced for the elements of a dataset."""

    def __init__(self, dataset: tf.data.Dataset, function: Callable[..., object]) -> None:
        spec = dataset.element_spec

        def flat(*tensors: tf.Tensor) -> list[object]:
            element = tf.nest.pack_sequence_as(spec, tensors)
            returned = function(*element) if type(element) is tuple else function(element)
            if isinstance(returned, tf.data.Dataset):
                self.spec = returned.element_spec
                return [tf.data.experimental.to_variant(returned)]
            self.spec = tf.nest.map_structure(tf.type_spec_from_value, returned)
            flattened: list[object] = tf.nest.flatten(returned)
            return flattened

        self._dataset = dataset
        self._function = _traced(flat, tf.nest.flatten(spec))

    def arguments(self) -> dict[str, object]:
        """Return the arguments of an operation that calls the function for each element."""
        return {
            "input_dataset": tf.data.experimental.to_variant(self._dataset),
            "f": self._function,
            "other_arguments": self._function.captured_inputs,
        }

    def arguments_of_datasets(self) -> dict[str, object]:
        """Return the arguments of an operation that reads the datasets which the function returns.

        Such an operation calls its function in another thread, which costs more than opening a file.
        Therefore a preceding map creates the datasets in the thread that requests them, and the operation
        itself gets the identity, which TensorFlow never calls (``CreateShortCircuitInfo`` in
        tensorflow/core/data/captured_function.cc). The function must not contain a ``tf.cond`` or anything
        else that calls a function: all threads that could run it may be waiting in the same way.
        """
        made = tf.raw_ops.MapDataset(
            **self.arguments(), **_outputs([_A_DATASET]), use_inter_op_parallelism=False
        )
        # in a dataset, what is more than a tensor is one variant
        a_variant = tf.TensorSpec(None, tf.variant)
        flat = [each if isinstance(each, tf.TensorSpec) else a_variant for each in tf.nest.flatten(self.spec)]
        return {"input_dataset": made, "f": _identity(), "other_arguments": [], **_outputs(flat)}

    def result(self, variant: tf.Tensor) -> tf.data.Dataset:
        """Return the dataset that ``variant`` represents, which an operation of this stage returned."""
        return _dataset(variant, self.spec, self._dataset, self._function)


def _traced(
    function: Callable[..., object], signature: Sequence[tf.TypeSpec]
) -> tf.types.experimental.ConcreteFunction:
    """Return the concrete function of ``function``, which tf.data runs as traced, on the CPU.

    Before the first call of a function, tf.data places each of its operations on a device, optimizes it with
    Grappler and checks it for oneDNN. For a pipeline of about twenty functions, this takes longer than
    everything else up to the first batch (benchmarks/compare.py). The attribute skips all three steps:
    see ``FunctionMetadata::Create`` in tensorflow/core/data/captured_function.cc.
    """
    return tf.function(
        function,
        input_signature=signature,
        autograph=False,
        experimental_attributes={"experimental_ints_on_device": True},
    ).get_concrete_function()


@cache
def _identity() -> tf.types.experimental.ConcreteFunction:
    return _traced(lambda dataset: dataset, [_A_DATASET])


def _outputs(specs: Sequence[tf.TypeSpec]) -> dict[str, object]:
    return {
        "output_types": [spec.dtype for spec in specs],
        "output_shapes": [spec.shape for spec in specs],
    }


def _is_plain(spec: object) -> bool:
    return all(isinstance(each, tf.TensorSpec) for each in tf.nest.flatten(spec))


def _dataset(variant: tf.Tensor, spec: object, *made_from: object) -> tf.data.Dataset:
    dataset = tf.data.experimental.from_variant(variant, spec)
    # As in tf.data's own classes: what a function calls, such as a user's Python function, must live as long.
    dataset.made_from = _Kept(made_from)
    return dataset
