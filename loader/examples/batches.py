"""From groups of records to batches: parse, process each example, split into steps.

In every stage, a list of any length is a ``tf.RaggedTensor`` with one more dimension than other values; a
list of rows has a uniform inner dimension.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from tfshards.loader.examples.content import Content, Values, without_elements
from tfshards.loader.examples.deliver import delivered, without_padding
from tfshards.loader.examples.map_fn import check_returned, is_list
from tfshards.loader.examples.parse import parse_examples
from tfshards.loader.examples.weights import example_weights
from tfshards.loader.examples.work import example_randomness, example_work
from tfshards.loader.graph.stages import mapped, unbatched
from tfshards.loader.order.assignment import Assignment
from tfshards.loader.records.explain import check_rows
from tfshards.loader.records.intervals import PADDING
from tfshards.loader.records.shards import Shards

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
    """Return the batches of ``groups``.

    Args:
        groups: from ``streams.read_groups``.
        content: the content of a batch.
        shards: the shards of the split, which errors name.
        assignment: which rows form a batch.
        ahead: how much is processed ahead.
    """

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
