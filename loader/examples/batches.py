"""From groups of records to batches: parse, process each example, split into steps, deliver."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from tfshards.loader.examples.content import Batch, Content, Nest, Values, with_elements, without_elements
from tfshards.loader.examples.map_fn import check_returned, is_list
from tfshards.loader.examples.weights import example_weights
from tfshards.loader.examples.work import example_randomness, example_work
from tfshards.loader.graph.stages import mapped, unbatched
from tfshards.loader.options.load_options import WEIGHT
from tfshards.loader.order.assignment import Assignment
from tfshards.loader.records.explain import check_rows
from tfshards.loader.records.intervals import PADDING
from tfshards.loader.records.shards import Shards
from tfshards.schemas import Feature


def without_padding(values: Nest, extra: Mapping[str, tf.Tensor]) -> Batch:
    """Return a batch without padding, which only the last batches of an epoch have."""
    real = extra["real"]
    everything = (values, {name: value for name, value in extra.items() if name != "real"})
    kept: Batch = tf.cond(
        tf.reduce_all(real),
        lambda: everything,
        lambda: tf.nest.map_structure(lambda value: _masked(value, real), everything),
    )
    return kept


def delivered(content: Content, values: Nest, extra: Mapping[str, tf.Tensor]) -> Nest:
    """Return a batch as it is delivered to the user."""
    batch = _features(content, values) if content.user_map is None else values
    if not content.adds_weight:
        return batch
    weights = _weights(extra)
    # check_returned() has rejected anything else.
    return {**batch, WEIGHT: weights} if isinstance(batch, dict) else (*batch, weights)


def _features(content: Content, values: Mapping[str, tf.Tensor]) -> Nest:
    """Return the features as a dict or a tuple."""
    batch = with_elements(content, values)
    return tuple(batch.values()) if content.as_tuple else batch


def _weights(extra: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return the weights of a batch; padding has weight 0."""
    if "real" not in extra:
        return extra["weight"]
    weights = extra.get("weight", tf.ones_like(extra["real"], tf.float32))
    return tf.where(extra["real"], weights, 0)


def _masked(value: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
    mask = tf.ragged.boolean_mask if isinstance(value, tf.RaggedTensor) else tf.boolean_mask
    return mask(value, real)


# tf.io.decode_raw has no kernels for these; the same bits are decoded as the other type.
_DECODED_AS = {"uint32": "int32", "uint64": "int64"}


def parse_examples(records: tf.Tensor, features: Sequence[Feature]) -> dict[str, tf.Tensor]:
    """Return the values of ``features`` in serialized ``tf.train.Example`` records.

    Args:
        records: shape ``(n,)`` string.

    Returns:
        By name, in the order of ``features``: shape ``(n, *feature.shape)`` of the feature's dtype, ragged
        for lists of any length, ``(n, None)`` or ``(n, None, k)``; an image or a mask is its encoded bytes,
        shape ``(n,)`` string.
    """
    spec = {feature.name: _wire_spec(feature) for feature in features}
    values: Mapping[str, tf.Tensor] = tf.io.parse_example(records, spec)
    return {feature.name: _decode(values[feature.name], feature) for feature in features}


def _wire_spec(feature: Feature) -> tf.io.FixedLenFeature | tf.io.RaggedFeature:
    if feature.is_encoded or feature.kind == "raw":
        return tf.io.FixedLenFeature([], tf.string)
    wire_dtype = {"bytes": tf.string, "int64": tf.int64, "float": tf.float32}[feature.wire]
    if feature.is_ragged:
        # A record without the feature reads as one with an empty list; only verify distinguishes them.
        return tf.io.RaggedFeature(wire_dtype, row_splits_dtype=tf.int64)
    return tf.io.FixedLenFeature(feature.shape, wire_dtype)


def _decode(value: tf.Tensor, feature: Feature) -> tf.Tensor:
    if feature.is_encoded or feature.kind == "bytes":
        return value
    if feature.kind != "raw":
        return _in_rows(tf.cast(value, feature.dtype), feature)
    elements = tf.io.decode_raw(value, _DECODED_AS.get(feature.dtype, feature.dtype), little_endian=True)
    if feature.dtype in _DECODED_AS:
        elements = tf.bitcast(elements, feature.dtype)
    # without elements, the number of rows cannot be inferred from their number
    rows = tf.shape(value)[0] if 0 in feature.shape else -1
    return tf.reshape(elements, [rows, *feature.shape])


def _in_rows(value: tf.Tensor, feature: Feature) -> tf.Tensor:
    """Return lists of elements as lists of rows, if the feature has the shape ``(None, k)``."""
    length = feature.row_elements
    if len(feature.shape) != 2 or not feature.is_ragged:
        return value
    splits = value.row_splits
    message = f"the feature {feature.name!r} has values that are not rows of {length}"
    with tf.control_dependencies(
        [tf.debugging.assert_equal(splits % length, tf.zeros_like(splits), message)]
    ):
        rows = tf.reshape(value.values, [-1, length])
    return tf.RaggedTensor.from_row_splits(rows, splits // length, validate=False)


# Examples are delivered in order: with only one per processor, a slow example would block the others.
DECODED_PER_CPU = 4


def num_cpus() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Ahead:
    """How much is processed before the training step requests it.

    Attributes:
        decoded: the number of examples that are decoded at the same time.
        batches: the number of batches that are ready.
        parsed: the number of groups of records that are parsed at the same time.
    """

    decoded: int = field(default_factory=lambda: DECODED_PER_CPU * num_cpus())
    batches: int = 2
    parsed: int = 2


def needs_numbers(content: Content, assignment: Assignment) -> bool:
    """Return whether the batches depend on the numbers of examples, or on which rows are padding."""
    return content.is_random or assignment.remainder != "drop"


def make_batches(
    groups: tf.data.Dataset, content: Content, *, shards: Shards, assignment: Assignment, ahead: Ahead
) -> tf.data.Dataset:
    """Return the batches of ``groups``."""

    def parse(epoch: tf.Tensor, rows: tuple[tf.Tensor, ...]) -> Values:
        *numbers, records = (_by_step(assignment, each) for each in rows)
        if numbers:
            with tf.control_dependencies([check_rows(shards, numbers[0])]):
                records = tf.identity(records)
        return _parse(content, assignment, tf.reshape(epoch, [-1])[0], numbers, records)

    parsed = mapped(groups, parse, ahead.parsed)
    if assignment.group > 1 or content.by_example:
        # the values of a step, or of an example if examples are processed one by one
        parsed = unbatched(parsed)
    if not content.by_example:
        steps = parsed
    else:
        examples = parsed.map(example_work(content), ahead.decoded)
        if content.user_map is not None:
            check_returned(examples.element_spec[0], content.adds_weight)
        batch = examples.ragged_batch if _has_lists(examples) else examples.batch
        steps = batch(assignment.batch_size, drop_remainder=True)
    if assignment.remainder == "keep":
        steps = mapped(steps, without_padding)
    return mapped(steps, lambda *batch: delivered(content, *batch))


def _parse(
    content: Content,
    assignment: Assignment,
    epoch: tf.Tensor,
    numbers: Sequence[tf.Tensor],
    records: tf.Tensor,
) -> Values:
    """Return the values of a group of steps: ``(steps, batch_size, ...)``, or ``(rows, ...)``.

    The latter for groups of one step, and if examples are processed one by one. ``numbers`` is empty unless
    ``needs_numbers``.
    """
    parsed = parse_examples(records, content.parsed)
    values = {feature.name: parsed[feature.name] for feature in content.features}
    for feature in without_elements(content.features):
        # unbatch() ends the process on a tensor without elements (TensorFlow 2.21): a bool replaces it
        values[feature.name] = tf.zeros([tf.shape(records)[0]], tf.bool)
    extra = {}
    if assignment.remainder != "drop":
        extra["real"] = numbers[0] > PADDING
    if content.weighing is not None:
        extra["weight"] = example_weights(content.weighing, parsed)
    if content.is_random:
        extra |= example_randomness(content, epoch, numbers[0])
    if content.by_example:
        return values, extra
    if assignment.group == 1:
        return _fixed_rows(values, assignment.batch_size), _fixed_rows(extra, assignment.batch_size)
    return _split_steps(values, assignment.batch_size), _split_steps(extra, assignment.batch_size)


def _by_step(assignment: Assignment, rows: tf.Tensor) -> tf.Tensor:
    """Turn ``(readers, steps * m)``, where each reader has ``m`` rows of a step, into rows by step."""
    if assignment.group > 1 and assignment.num_readers > 1:
        rows = tf.reshape(rows, [assignment.num_readers, -1, assignment.batch_size // assignment.num_readers])
        rows = tf.transpose(rows, [1, 0, 2])
    return tf.reshape(rows, [-1])


def _has_lists(examples: tf.data.Dataset) -> bool:
    specs = tf.nest.flatten(examples.element_spec)
    return any(isinstance(spec, tf.TensorSpec) and is_list(spec.shape) for spec in specs)


def _fixed_rows(values: Mapping[str, tf.Tensor], rows: int) -> dict[str, tf.Tensor]:
    fixed = {}
    for name, value in values.items():
        if isinstance(value, tf.RaggedTensor):
            splits = tf.ensure_shape(value.row_splits, [rows + 1])
            fixed[name] = tf.RaggedTensor.from_row_splits(value.values, splits, validate=False)
        else:
            fixed[name] = tf.ensure_shape(value, [rows, *value.shape[1:]])
    return fixed


def _split_steps(values: Mapping[str, tf.Tensor], batch_size: int) -> dict[str, tf.Tensor]:
    split = {}
    for name, value in values.items():
        if isinstance(value, tf.RaggedTensor):
            # whole steps, as below; checks would be a quarter of all operations
            split[name] = tf.RaggedTensor.from_uniform_row_length(value, batch_size, validate=False)
            continue
        split[name] = tf.reshape(value, [-1, batch_size, *value.shape[1:]])
    return split
