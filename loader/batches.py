"""From the groups that the streams deliver to batches: parse, work on each example, split into steps.

A list of any length is a ``tf.RaggedTensor`` on all of the way, of a rank more than the other values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import tensorflow as tf

from tfshards.loader.deliver import delivered, without_padding
from tfshards.loader.example import example_randomness, example_work
from tfshards.loader.explain import check_rows
from tfshards.loader.map_fn import check_returned
from tfshards.loader.parse import parse_examples
from tfshards.loader.read import PADDING
from tfshards.loader.reading import Reading, Values, without_elements
from tfshards.loader.stages import mapped, unbatched
from tfshards.loader.weights import example_weights


def batches(reading: Reading, groups: tf.data.Dataset) -> tf.data.Dataset:
    """Return the batches in ``groups`` (``streams.read_groups``)."""
    assignment = reading.assignment
    parsed = mapped(
        groups,
        lambda epoch, rows: _parse(reading, tf.reshape(epoch, [-1])[0], *rows),
        reading.ahead.parsed,
    )
    if assignment.group > 1 or reading.by_example:
        # the values of a step, or of an example if more is done to each
        parsed = unbatched(parsed)
    if not reading.by_example:
        steps = parsed
    else:
        examples = parsed.map(example_work(reading), reading.ahead.decoded)
        if reading.user_map is not None:
            check_returned(examples.element_spec[0], reading.adds_weight)
        batch = examples.ragged_batch if _has_lists(examples) else examples.batch
        steps = batch(assignment.batch_size, drop_remainder=True)
    if assignment.remainder == "keep":
        steps = mapped(steps, without_padding)
    return mapped(steps, lambda *batch: delivered(reading, *batch))


def num_cpus() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _parse(reading: Reading, epoch: tf.Tensor, numbers: tf.Tensor, records: tf.Tensor) -> Values:
    """Return the values of a group of steps: ``(steps, batch_size, ...)``, or ``(rows, ...)``.

    The latter for groups of one step, and if more is done to each example.
    """
    assignment = reading.assignment
    numbers, records = _by_step(reading, numbers), _by_step(reading, records)
    with tf.control_dependencies([check_rows(reading.shards, numbers)]):
        parsed = parse_examples(tf.identity(records), reading.parsed)
    values = {feature.name: parsed[feature.name] for feature in reading.features}
    for feature in without_elements(reading.features):
        # unbatch() ends the process on a tensor without elements (TensorFlow 2.21): a stand-in travels on
        values[feature.name] = tf.zeros([tf.shape(records)[0]], tf.bool)
    beside = {}
    if assignment.remainder != "drop":
        beside["real"] = numbers > PADDING
    if reading.weighing is not None:
        beside["weight"] = example_weights(reading.weighing, parsed)
    if reading.randomly_worked:
        beside |= example_randomness(reading, epoch, numbers)
    if reading.by_example:
        return values, beside
    if assignment.group == 1:
        return _fixed_rows(values, assignment.batch_size), _fixed_rows(beside, assignment.batch_size)
    return _split_steps(values, assignment.batch_size), _split_steps(beside, assignment.batch_size)


def _by_step(reading: Reading, rows: tf.Tensor) -> tf.Tensor:
    """Turn ``(readers, steps * m)``, where each reader has ``m`` rows of a step, into rows by step."""
    assignment = reading.assignment
    if assignment.group > 1 and assignment.num_readers > 1:
        rows = tf.reshape(rows, [assignment.num_readers, -1, assignment.batch_size // assignment.num_readers])
        rows = tf.transpose(rows, [1, 0, 2])
    return tf.reshape(rows, [-1])


def _has_lists(examples: tf.data.Dataset) -> bool:
    specs = tf.nest.flatten(examples.element_spec)
    return any(isinstance(spec, tf.TensorSpec) and spec.shape.as_list() == [None] for spec in specs)


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
            split[name] = tf.RaggedTensor.from_uniform_row_length(value, batch_size)
            continue
        split[name] = tf.reshape(value, [-1, batch_size, *value.shape[1:]])
    return split
