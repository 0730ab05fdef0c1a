"""Stages of a pipeline whose functions are ready within milliseconds: map, flat map, interleave, unbatch.

Before the first call of a function, tf.data places each of its operations on a device, has Grappler rewrite
it and looks it over for oneDNN. For a pipeline of some twenty functions that is longer than everything else
up to the first batch (benchmarks/first_batch.py). A function with the attribute that is set here is run as
it was written, on the CPU: see ``FunctionMetadata::Create`` in tensorflow/core/data/captured_function.cc
(TensorFlow 2.21). The methods of ``tf.data.Dataset`` take no attributes; these are the operations behind
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

import tensorflow as tf

GraphFunction = TypeVar("GraphFunction", bound=Callable[..., object])

_RUN_AS_WRITTEN: Mapping[str, object] = {"experimental_ints_on_device": True}
# the operations that call functions
_CALLS = {
    *("If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"),
    *("PartitionedCall", "StatefulPartitionedCall"),
}
_A_DATASET = tf.TensorSpec([], tf.variant)


def as_written(function: GraphFunction) -> GraphFunction:
    """Return ``function`` marked to be traced without AutoGraph's rewriting, which nothing here needs.

    The rewriting takes seconds for the first dataset of a process.
    """
    marked: GraphFunction = tf.autograph.experimental.do_not_convert(function)
    return marked


def mapped(
    dataset: tf.data.Dataset, function: Callable[..., object], num_parallel_calls: int | None = None
) -> tf.data.Dataset:
    """Return ``dataset.map(function)``, in order, for a function of TensorFlow operations only.

    Args:
        dataset: of tensors, or of nested tuples and dicts of such.
        function: takes an element, or what a tuple holds; returns tensors, or nested tuples and dicts of
            such.
        num_parallel_calls: at the same time; None for none but the one that is asked for.
    """
    stage = _Stage(dataset, function) if _is_plain(dataset.element_spec) else None
    if stage is None or not _is_plain(stage.spec):
        # how ragged tensors travel is known to tf.data only
        return dataset.map(as_written(function), num_parallel_calls)
    arguments = {**stage.arguments(tf.nest.flatten(stage.spec)), "preserve_cardinality": True}
    if num_parallel_calls is None:
        return stage.result(tf.raw_ops.MapDataset(**arguments))
    calls = tf.constant(num_parallel_calls, tf.int64)
    return stage.result(
        tf.raw_ops.ParallelMapDatasetV2(**arguments, num_parallel_calls=calls, deterministic="true")
    )


def flat_mapped(dataset: tf.data.Dataset, function: Callable[..., tf.data.Dataset]) -> tf.data.Dataset:
    """Return ``dataset.flat_map(function)``; see ``mapped``."""
    stage = _Stage(dataset, function)
    return stage.result(tf.raw_ops.FlatMapDataset(**stage.of_datasets()))


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
        **stage.of_datasets(),
        "cycle_length": tf.constant(cycle_length, tf.int64),
        "block_length": tf.constant(block_length, tf.int64),
    }
    if num_parallel_calls is None:
        return stage.result(tf.raw_ops.InterleaveDataset(**arguments))
    ahead = tf.constant(tf.data.AUTOTUNE, tf.int64)
    return stage.result(
        tf.raw_ops.ParallelInterleaveDatasetV4(
            **arguments,
            buffer_output_elements=ahead,
            prefetch_input_elements=ahead,
            num_parallel_calls=tf.constant(num_parallel_calls, tf.int64),
            deterministic="true",
        )
    )


def unbatched(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return ``dataset.unbatch()``, which maps a function of its own over what it unbatches."""
    spec = dataset.element_spec
    if not _is_plain(spec):
        return dataset.unbatch()
    elements = tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape[1:], each.dtype), spec)
    specs = tf.nest.flatten(elements)
    variant = tf.raw_ops.UnbatchDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        output_types=[each.dtype for each in specs],
        output_shapes=[each.shape for each in specs],
    )
    return _dataset(variant, elements, dataset)


def _dataset(variant: tf.Tensor, spec: object, *made_from: object) -> tf.data.Dataset:
    dataset = tf.data.experimental.from_variant(variant, spec)
    # as in tf.data's own: what a user's function calls, such as one of Python, lives as long as the dataset
    dataset.made_from = _MadeFrom(made_from)
    return dataset


class _MadeFrom(NamedTuple):
    """What a dataset keeps alive; not a plain tuple, which TensorFlow would wrap to save it with a model."""

    parts: tuple[object, ...]


def _is_plain(spec: object) -> bool:
    return all(isinstance(each, tf.TensorSpec) for each in tf.nest.flatten(spec))


@cache
def _passed_on() -> Callable[..., object]:
    passing = tf.function(
        lambda dataset: dataset,
        input_signature=[_A_DATASET],
        autograph=False,
        experimental_attributes=_RUN_AS_WRITTEN,
    )
    concrete: Callable[..., object] = passing.get_concrete_function()
    return concrete


class _Stage:
    """A function that was traced for the elements of a dataset.

    Attributes:
        spec: of the elements of the result.
    """

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

        traced = tf.function(
            flat,
            input_signature=tf.nest.flatten(spec),
            autograph=False,
            experimental_attributes=_RUN_AS_WRITTEN,
        )
        self._dataset = dataset
        self._function = traced.get_concrete_function()

    def arguments(self, specs: Sequence[tf.TypeSpec]) -> dict[str, object]:
        """Return the arguments of an operation that calls the function and returns tensors of ``specs``."""
        return {
            "input_dataset": tf.data.experimental.to_variant(self._dataset),
            "other_arguments": self._function.captured_inputs,
            "f": self._function,
            "output_types": [spec.dtype for spec in specs],
            "output_shapes": [spec.shape for spec in specs],
        }

    def of_datasets(self) -> dict[str, object]:
        """Return the arguments of an operation that reads the datasets which the function returns.

        Operations that read datasets call their function in another thread, which costs more than to open a
        file. So the datasets are made by a map before, in the thread that asks for them, and passed on by a
        function that is never called: it only returns what it is given (``CreateShortCircuitInfo`` in the
        same file). In that thread there must be no ``tf.cond``, nor anything else that calls a function: all
        threads that could run it may be waiting for the same.
        """
        calls = {operation.type for operation in self._function.graph.get_operations()} & _CALLS
        if calls:
            raise TypeError(f"{sorted(calls)} in a function that makes datasets could wait for ever")
        made = tf.raw_ops.MapDataset(**self.arguments([_A_DATASET]), use_inter_op_parallelism=False)
        specs = tf.nest.flatten(self.spec)
        return {
            "input_dataset": made,
            "other_arguments": [],
            "f": _passed_on(),
            "output_types": [spec.dtype for spec in specs],
            "output_shapes": [spec.shape for spec in specs],
        }

    def result(self, variant: tf.Tensor) -> tf.data.Dataset:
        """Return the dataset that the operation made."""
        return _dataset(variant, self.spec, self._dataset, self._function)
