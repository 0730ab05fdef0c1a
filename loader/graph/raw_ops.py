"""The raw, experimental and private parts of TensorFlow that the loader uses, each as one small function.

No other file of the loader uses such parts. Where a release of TensorFlow lacks a raw operation, or gives it
other arguments, its public equivalent runs instead, which is slower, and a warning names the operation.
tests/loader/test_raw_ops.py compares both; tests/packaging/test_versions.py reads the same batches with the
oldest supported release, the newest, and some in between.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.schemas.index import FRAME_OVERHEAD

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., object])

# The type of one trace of a function, which has no public name.
ConcreteFunction: TypeAlias = "tf.types.experimental.ConcreteFunction"

# See traced().
_RUN_AS_TRACED: Mapping[str, object] = {"experimental_ints_on_device": True}
# A variable with this name is a separate resource, which is freed with its last user
# (ResourceHandle::ANONYMOUS_NAME in tensorflow/core/framework/resource_handle.h).
_ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"


def _raw(operation: str, arguments: Mapping[str, object], public: Callable[[], tf.Tensor]) -> tf.Tensor:
    """Return the result of ``tf.raw_ops.<operation>``, or of its public equivalent if that fails."""
    try:
        return getattr(tf.raw_ops, operation)(**arguments)
    except (AttributeError, TypeError, ValueError):
        result = public()
    # If the arguments were at fault, the public equivalent has raised its own error.
    _warn_without(operation)
    return result


@cache
def _warn_without(operation: str) -> None:
    warnings.warn(
        f"TensorFlow {tf.__version__} has no tf.raw_ops.{operation} with the expected arguments; "
        "tfshards uses its public equivalent, which gives the same examples and is slower",
        stacklevel=2,
    )


# Functions


def without_autograph(function: AnyFunction) -> AnyFunction:
    """Return ``function``, marked so that TensorFlow traces it without AutoGraph.

    ``tf.data.Dataset.map`` and similar methods have no public argument for this. AutoGraph takes seconds for
    the first dataset of a process, and no function of the loader needs it.
    """
    marked: AnyFunction = tf.autograph.experimental.do_not_convert(function)
    return marked


def traced(function: Callable[..., object], signature: Sequence[tf.TypeSpec]) -> ConcreteFunction:
    """Return the concrete function of ``function``, which tf.data runs as traced, on the CPU.

    Before the first call of a function, tf.data places each of its operations on a device, optimizes it with
    Grappler and checks it for oneDNN. For a pipeline of about twenty functions, this takes longer than
    everything else up to the first batch (benchmarks/first_batch.py). The attribute skips all three steps:
    see ``FunctionMetadata::Create`` in tensorflow/core/data/captured_function.cc.
    """
    concrete: ConcreteFunction = _function(function, signature, _RUN_AS_TRACED).get_concrete_function()
    return concrete


def not_inlined(
    function: Callable[..., object], signature: Sequence[tf.TypeSpec]
) -> Callable[..., tf.Tensor]:
    """Return ``function`` as a ``tf.function`` that is traced once per process and prepared only when called.

    Without the attribute, the caller's graph would contain and prepare all of its operations, even if they
    run only after a failure.
    """
    rare: Callable[..., tf.Tensor] = _function(function, signature, {"_noinline": True})
    return rare


def _function(
    function: Callable[..., object], signature: Sequence[tf.TypeSpec], attributes: Mapping[str, object]
) -> tf.types.experimental.PolymorphicFunction:
    arguments = {"input_signature": signature, "autograph": False}
    try:
        return tf.function(function, **arguments, experimental_attributes=attributes)
    except (TypeError, ValueError):
        # The attributes only save time.
        return tf.function(function, **arguments)


# Stages of a pipeline


class Call(NamedTuple):
    """The inputs of an operation that calls a function for each element of a dataset."""

    dataset: tf.Tensor
    function: ConcreteFunction
    specs: Sequence[tf.TypeSpec]

    def arguments(self) -> dict[str, object]:
        """Return the arguments that all such operations have in common."""
        return {
            "input_dataset": self.dataset,
            "f": self.function,
            "other_arguments": self.function.captured_inputs,
            **_outputs(self.specs),
        }

    def given(self) -> tf.data.Dataset:
        """Return the dataset whose elements the function is called with, as a dataset of tuples."""
        (signature, _) = self.function.structured_input_signature
        return from_variant(self.dataset, tuple(signature))

    def returned(self, *components: tf.Tensor) -> tf.data.Dataset:
        """Return the dataset that the function returns for an element, from a variant tensor."""
        return from_variant(tf.nest.flatten(self.function(*components))[0], tuple(self.specs))


def _outputs(specs: Sequence[tf.TypeSpec]) -> dict[str, object]:
    return {
        "output_types": [spec.dtype for spec in specs],
        "output_shapes": [spec.shape for spec in specs],
    }


def to_variant(dataset: tf.data.Dataset) -> tf.Tensor:
    """Return the scalar variant tensor that represents a dataset in operations."""
    return tf.data.experimental.to_variant(dataset)


def from_variant(variant: tf.Tensor, spec: object) -> tf.data.Dataset:
    """Return the dataset that a variant tensor represents, with elements of ``spec``."""
    return tf.data.experimental.from_variant(variant, spec)


def map_dataset(
    call: Call, num_parallel_calls: int | None = None, *, in_calling_thread: bool = False
) -> tf.Tensor:
    """Return ``Dataset.map(..., deterministic=True)`` with a function that runs as traced.

    Without ``num_parallel_calls`` an element is processed on request; ``in_calling_thread``, because passing
    the call to another thread would cost more than opening a file.
    """

    def public() -> tf.Tensor:
        deterministic = None if num_parallel_calls is None else True
        return to_variant(call.given().map(call.function, num_parallel_calls, deterministic))

    if in_calling_thread:
        return _raw("MapDataset", {**call.arguments(), "use_inter_op_parallelism": False}, public)
    arguments = {**call.arguments(), "preserve_cardinality": True}
    if num_parallel_calls is None:
        return _raw("MapDataset", arguments, public)
    calls = tf.constant(num_parallel_calls, tf.int64)
    return _raw(
        "ParallelMapDatasetV2", {**arguments, "num_parallel_calls": calls, "deterministic": "true"}, public
    )


def flat_map_dataset(call: Call) -> tf.Tensor:
    """Return ``Dataset.flat_map`` with a function that runs as traced and returns a variant tensor."""
    return _raw("FlatMapDataset", call.arguments(), lambda: to_variant(call.given().flat_map(call.returned)))


def interleave_dataset(
    call: Call, cycle_length: int, block_length: int, num_parallel_calls: int | None = None
) -> tf.Tensor:
    """Return ``Dataset.interleave(..., deterministic=True)`` with a function that runs as traced."""
    arguments = {
        **call.arguments(),
        "cycle_length": tf.constant(cycle_length, tf.int64),
        "block_length": tf.constant(block_length, tf.int64),
    }

    def public() -> tf.Tensor:
        parallel = {} if num_parallel_calls is None else {"deterministic": True}
        return to_variant(
            call.given().interleave(call.returned, cycle_length, block_length, num_parallel_calls, **parallel)
        )

    if num_parallel_calls is None:
        return _raw("InterleaveDataset", arguments, public)
    ahead = tf.constant(tf.data.AUTOTUNE, tf.int64)
    arguments |= {
        "buffer_output_elements": ahead,
        "prefetch_input_elements": ahead,
        "num_parallel_calls": tf.constant(num_parallel_calls, tf.int64),
        "deterministic": "true",
    }
    return _raw("ParallelInterleaveDatasetV4", arguments, public)


def unbatch_dataset(dataset: tf.Tensor, specs: Sequence[tf.TypeSpec]) -> tf.Tensor:
    """Return ``Dataset.unbatch()`` of tensors, without the function that tf.data maps over the result."""

    def public() -> tf.Tensor:
        batches = tuple(tf.TensorSpec([None, *spec.shape], spec.dtype) for spec in specs)
        return to_variant(from_variant(dataset, batches).unbatch())

    return _raw("UnbatchDataset", {"input_dataset": dataset, **_outputs(specs)}, public)


def tfrecord_dataset(
    path: tf.Tensor, compression: str | tf.Tensor, buffer_bytes: int, offset: tf.Tensor | None
) -> tf.data.Dataset:
    """Return the records of a TFRecord file from the byte ``offset`` on, as scalar strings.

    ``tf.data.TFRecordDataset`` has no argument for an offset, and maps an additional function. TensorFlow
    cannot serialize the graph of a reader with an offset except inside a function; ``reduce()`` and the
    search for the cardinality serialize it.

    Args:
        path: scalar string.
        offset: scalar int64, the byte at which a record starts; None for the start of the file.
    """
    common = {"filenames": path, "compression_type": compression}
    common["buffer_size"] = tf.constant(buffer_bytes, tf.int64)

    def public() -> tf.Tensor:
        records = tf.data.TFRecordDataset(path, compression, buffer_bytes)
        return to_variant(records if offset is None else _from_offset(records, offset))

    if offset is None:
        variant = _raw("TFRecordDataset", common, public)
    else:
        variant = _raw("TFRecordDatasetV2", {**common, "byte_offsets": offset}, public)
    return from_variant(variant, tf.TensorSpec([], tf.string))


def _from_offset(records: tf.data.Dataset, offset: tf.Tensor) -> tf.data.Dataset:
    """Return the records from a byte offset on, by reading all before it."""

    def located(at: tf.Tensor, record: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        end = at + tf.cast(tf.strings.length(record), tf.int64) + FRAME_OVERHEAD
        return end, (at >= offset, record)

    found = records.scan(tf.constant(0, tf.int64), located)
    return found.filter(lambda is_wanted, _: is_wanted).map(lambda _, record: record)


def with_cardinality(dataset: tf.data.Dataset, cardinality: int) -> tf.data.Dataset:
    """Return ``dataset`` with a cardinality that tf.data cannot derive."""
    return dataset.apply(tf.data.experimental.assert_cardinality(cardinality))


def pipeline_options() -> tf.data.Options:
    """Return the options of a pipeline that runs in order and as built, and is never auto-sharded."""
    options = tf.data.Options()
    options.deterministic = True
    # No stage uses autotuning, whose thread delays the end of each iteration by up to seconds.
    options.autotune.enabled = False
    # Optimizing the graph gains nothing, takes as long as everything else up to the first batch, and would
    # copy the tensors that a function captures into the graph.
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


# Operations in a graph


def gather(values: npt.NDArray[np.generic] | Sequence[str] | tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Return ``tf.gather(values, indices)``, in one operation instead of three."""
    arguments = {"params": values, "indices": indices, "validate_indices": False}
    return _raw("Gather", arguments, lambda: tf.gather(values, indices))


def upper_bound(sorted_rows: npt.NDArray[np.int64] | tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Return ``tf.searchsorted(sorted_rows, values, side="right")``, in one operation instead of a dozen.

    ``sorted_rows`` has shape ``(m, n)``; ``values``, and the result (int64), have shape ``(m, k)``.
    """
    arguments = {"sorted_inputs": sorted_rows, "values": values, "out_type": tf.int64}
    return _raw("UpperBound", arguments, lambda: tf.searchsorted(sorted_rows, values, "right", tf.int64))


def new_counter() -> tf.Tensor:
    """Return the resource of a counter that belongs to a pipeline; see ``count_up``.

    A ``tf.Variable`` belongs to a Python object, and would be freed with the function that created it.
    """
    start = tf.constant(-1, tf.int64)

    def public() -> tf.Tensor:
        _VARIABLES.append(tf.Variable(start, trainable=False))
        return _VARIABLES[-1].handle

    counter = _raw("VarHandleOp", {"dtype": tf.int64, "shape": [], "shared_name": _ANONYMOUS}, public)
    tf.raw_ops.AssignVariableOp(resource=counter, value=start)
    return counter


# The public equivalents of counters, which the process keeps.
_VARIABLES: list[tf.Variable] = []


def count_up(counter: tf.Tensor) -> tf.Tensor:
    """Return the number of earlier calls with this counter, a scalar int64."""
    tf.raw_ops.AssignAddVariableOp(resource=counter, value=tf.constant(1, tf.int64))
    number = tf.raw_ops.ReadVariableOp(resource=counter, dtype=tf.int64)
    number.set_shape([])
    return number


def fail(text: tf.Tensor) -> tf.Operation:
    """Return an operation that always fails, with the scalar string ``text`` in its message.

    ``tf.debugging.Assert`` would wrap it in a ``tf.cond``.
    """
    arguments = {"condition": False, "data": [text]}
    return _raw("Assert", arguments, lambda: tf.debugging.Assert(False, [text]))


# Strategies and checkpoints


PythonState: TypeAlias = tf.train.experimental.PythonState


def distributed(
    strategy: tf.distribute.Strategy, dataset: tf.data.Dataset
) -> tf.distribute.DistributedDataset:
    """Return the global batches of ``dataset``, split over the replicas of ``strategy``; length is known."""
    return strategy.experimental_distribute_dataset(dataset)
