"""The raw, experimental and private parts of TensorFlow that the loader uses, each as one small function.

No other file of the loader uses such parts. tests/packaging/test_versions.py reads the same batches with the
oldest supported release, the newest, and some in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import tensorflow as tf

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., object])

# The type of one trace of a function, which has no public name.
ConcreteFunction: TypeAlias = "tf.types.experimental.ConcreteFunction"

# See traced().
_RUN_AS_TRACED: Mapping[str, object] = {"experimental_ints_on_device": True}


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
    everything else up to the first batch (benchmarks/compare.py). The attribute skips all three steps:
    see ``FunctionMetadata::Create`` in tensorflow/core/data/captured_function.cc.
    """
    concrete: ConcreteFunction = _function(function, signature, _RUN_AS_TRACED).get_concrete_function()
    return concrete


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
    if in_calling_thread:
        return tf.raw_ops.MapDataset(**call.arguments(), use_inter_op_parallelism=False)
    arguments = {**call.arguments(), "preserve_cardinality": True}
    if num_parallel_calls is None:
        return tf.raw_ops.MapDataset(**arguments)
    calls = tf.constant(num_parallel_calls, tf.int64)
    return tf.raw_ops.ParallelMapDatasetV2(**arguments, num_parallel_calls=calls, deterministic="true")


def flat_map_dataset(call: Call) -> tf.Tensor:
    """Return ``Dataset.flat_map`` with a function that runs as traced and returns a variant tensor."""
    return tf.raw_ops.FlatMapDataset(**call.arguments())


def interleave_dataset(
    call: Call, cycle_length: int, block_length: int, num_parallel_calls: int | None = None
) -> tf.Tensor:
    """Return ``Dataset.interleave(..., deterministic=True)`` with a function that runs as traced."""
    arguments = {
        **call.arguments(),
        "cycle_length": tf.constant(cycle_length, tf.int64),
        "block_length": tf.constant(block_length, tf.int64),
    }
    if num_parallel_calls is None:
        return tf.raw_ops.InterleaveDataset(**arguments)
    ahead = tf.constant(tf.data.AUTOTUNE, tf.int64)
    arguments |= {
        "buffer_output_elements": ahead,
        "prefetch_input_elements": ahead,
        "num_parallel_calls": tf.constant(num_parallel_calls, tf.int64),
        "deterministic": "true",
    }
    return tf.raw_ops.ParallelInterleaveDatasetV4(**arguments)


def unbatch_dataset(dataset: tf.Tensor, specs: Sequence[tf.TypeSpec]) -> tf.Tensor:
    """Return ``Dataset.unbatch()`` of tensors, without the function that tf.data maps over the result."""
    return tf.raw_ops.UnbatchDataset(input_dataset=dataset, **_outputs(specs))


def tfrecord_dataset(path: tf.Tensor, buffer_bytes: int, offset: tf.Tensor) -> tf.data.Dataset:
    """Return the records of a TFRecord file from the byte ``offset`` on, as scalar strings.

    ``tf.data.TFRecordDataset`` has no argument for an offset, and maps an additional function. TensorFlow
    cannot serialize the graph of a reader with an offset except inside a function; ``reduce()`` and the
    search for the cardinality serialize it.

    Args:
        path: scalar string.
        buffer_bytes: number of bytes that are read ahead; 0 for none.
        offset: scalar int64, the byte at which a record starts.
    """
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=path,
        compression_type="",
        buffer_size=tf.constant(buffer_bytes, tf.int64),
        byte_offsets=offset,
    )
    return from_variant(variant, tf.TensorSpec([], tf.string))


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


def gather(values: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Return ``tf.gather(values, indices)``, in one operation instead of three."""
    return tf.raw_ops.Gather(params=values, indices=indices, validate_indices=False)


def fail_unless(fault: tf.Tensor) -> tf.Operation:
    """Return an operation that fails with the scalar string ``fault`` in its message, unless it is empty.

    ``tf.debugging.Assert`` would wrap it in a ``tf.cond``.
    """
    return tf.raw_ops.Assert(condition=tf.equal(fault, ""), data=[fault])


# Strategies and checkpoints


PythonState: TypeAlias = tf.train.experimental.PythonState


def distributed(
    strategy: tf.distribute.Strategy, dataset: tf.data.Dataset
) -> tf.distribute.DistributedDataset:
    """Return the global batches of ``dataset``, split over the replicas of ``strategy``; length is known."""
    return strategy.experimental_distribute_dataset(dataset)
