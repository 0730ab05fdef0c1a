"""From the pieces that the streams deliver to batches: put in order, parse, decode, split into steps.

A list of any length is a ``tf.RaggedTensor`` on all of the way, of a rank more than the other values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import tensorflow as tf

from tfshards.loader.deliver import delivered, without_padding
from tfshards.loader.example import example_randomness, example_work
from tfshards.loader.explain import check_pieces
from tfshards.loader.map_fn import check_returned
from tfshards.loader.parse import parse_examples
from tfshards.loader.read import as_written, is_damaged
from tfshards.loader.reading import Reading, Values, without_elements
from tfshards.loader.streams import piece_numbers
from tfshards.loader.weights import example_weights
from tfshards.loader.window import example_numbers, window_rows


def batches(reading: Reading, windows: tf.data.Dataset, start_step: int) -> tf.data.Dataset:
    """Return the batches in ``windows`` (``streams.read_windows``) from a step of the first epoch on."""
    assignment = reading.assignment

    def parse(number: tf.Tensor, pieces: tuple[tf.Tensor, tf.Tensor]) -> Values:
        numbers, records = pieces
        epoch, window = number // assignment.num_windows, number % assignment.num_windows
        missing = tf.not_equal(numbers, piece_numbers(assignment, number))
        checked = check_pieces(reading.shards, assignment, reading.shuffle, (epoch, window), missing)
        with tf.control_dependencies([checked]):
            records = tf.identity(records)
        return _parse_window(reading, epoch, window, records)

    parsed = windows.map(as_written(parse), reading.ahead.parsed)
    if assignment.window > 1 or reading.by_example:
        # the values of a step, or of an example if more is done to each
        parsed = parsed.unbatch()
    # the pieces begin with a whole window
    skipped = start_step % assignment.window
    if not reading.by_example:
        steps = parsed.skip(skipped)
    else:
        examples = parsed.skip(skipped * assignment.batch_size).map(
            example_work(reading), reading.ahead.decoded
        )
        if reading.user_map is not None:
            check_returned(examples.element_spec[0], reading.adds_weight)
        batch = examples.ragged_batch if _has_lists(examples) else examples.batch
        steps = batch(assignment.batch_size, drop_remainder=True)
    if assignment.remainder == "keep":
        steps = steps.map(as_written(without_padding))
    return steps.map(as_written(lambda *batch: delivered(reading, *batch)))


def num_cpus() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _parse_window(reading: Reading, epoch: tf.Tensor, window: tf.Tensor, records: tf.Tensor) -> Values:
    """Return the values of a window: ``(steps, batch_size, ...)``, or ``(rows, ...)``.

    The latter for windows of one step, and if more is done to each example.
    """
    assignment, shuffle = reading.assignment, reading.shuffle
    rows = window_rows(assignment, shuffle, epoch, window)
    records = tf.reshape(records, [-1])
    records = records[: tf.size(rows.real)] if rows.order is None else tf.gather(records, rows.order)
    parsed = parse_examples(records, reading.parsed)
    values = {feature.name: parsed[feature.name] for feature in reading.features}
    for feature in without_elements(reading.features):
        # unbatch() ends the process on a tensor without elements (TensorFlow 2.21): a stand-in travels on
        values[feature.name] = tf.zeros([tf.shape(records)[0]], tf.bool)
    beside = {}
    if assignment.remainder != "drop":
        beside["real"] = rows.real
    if len(reading.shards.bad_starts):
        damaged = is_damaged(reading.shards, example_numbers(reading.shards, shuffle, epoch, rows))
        beside["real"] = tf.logical_and(rows.real, tf.logical_not(damaged))
    if reading.weighing is not None:
        beside["weight"] = example_weights(reading.weighing, parsed)
    if reading.randomly_worked:
        numbers = example_numbers(reading.shards, shuffle, epoch, rows)
        beside |= example_randomness(reading, epoch, numbers)
    if reading.by_example:
        return values, beside
    if assignment.window == 1:
        return _fixed_rows(values, assignment.batch_size), _fixed_rows(beside, assignment.batch_size)
    return _split_steps(values, assignment.batch_size), _split_steps(beside, assignment.batch_size)


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
        inner = value.shape[1:]
        shape = tf.concat([[tf.shape(value)[0] // batch_size, batch_size], inner], axis=0)
        split[name] = tf.ensure_shape(tf.reshape(value, shape), [None, batch_size, *inner])
    return split
