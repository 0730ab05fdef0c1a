"""From the pieces that the streams deliver to batches: put in order, parse, decode, split into steps."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tensorflow as tf

from tfshards.loader.assign import Assignment
from tfshards.loader.images import crop_bits, decode_image
from tfshards.loader.options import Image, Shuffle
from tfshards.loader.parse import parse_examples
from tfshards.loader.read import Shards, as_written
from tfshards.loader.window import example_numbers, window_rows
from tfshards.schemas import Feature

WEIGHT = "sample_weight"
# Windows that are parsed at the same time; one parses on several threads already.
PARSED_AHEAD = 2

# By name; the second holds what travels beside the features until the batches are made: "real", "bits".
_Values: TypeAlias = "tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]"


@dataclass(frozen=True)
class Reading:
    """All that the graph of one ``load`` is made from.

    Attributes:
        shards: of the split.
        assignment: what this worker reads.
        features: to deliver, in order.
        as_tuple: whether batches are tuples, else dicts.
        shuffle: the order, None for the stored one.
        image: how images are decoded, None for not at all.
    """

    shards: Shards
    assignment: Assignment
    features: tuple[Feature, ...]
    as_tuple: bool
    shuffle: Shuffle | None
    image: Image | None


def batches(reading: Reading, pieces: tf.data.Dataset, start_step: int) -> tf.data.Dataset:
    """Return the batches in ``pieces`` (see ``streams.read_pieces``) from a step of the first epoch on."""
    assignment = reading.assignment

    def parse(numbers: tf.Tensor, records: tf.Tensor) -> _Values:
        epoch, piece = numbers[0] // assignment.stream_pieces, numbers[0] % assignment.stream_pieces
        window = piece if assignment.lanes else piece // assignment.num_pieces
        return _parse_window(reading, epoch, window, tf.reshape(records, [-1]))

    # (number, records), both with a first dimension of num_pieces
    windows = pieces.batch(assignment.num_pieces)
    parsed = windows.map(as_written(parse), PARSED_AHEAD)
    if assignment.window > 1 or reading.image is not None:
        # the values of a step, or of an example if images follow
        parsed = parsed.unbatch()
    # the pieces begin with a whole window
    skipped = start_step % assignment.window
    if reading.image is None:
        steps = parsed.skip(skipped)
    else:
        decode = as_written(lambda *example: _decode_images(reading, *example))
        examples = parsed.skip(skipped * assignment.batch_size).map(decode, num_cpus())
        steps = examples.batch(assignment.batch_size, drop_remainder=True)
    if assignment.remainder == "keep":
        steps = steps.map(as_written(_without_padding))
    return steps.map(as_written(lambda *batch: _delivered(reading, *batch)))


def num_cpus() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _parse_window(reading: Reading, epoch: tf.Tensor, window: tf.Tensor, records: tf.Tensor) -> _Values:
    """Return the values of a window: ``(steps, batch_size, ...)``, or ``(rows, ...)``.

    The latter for windows of one step, and if images follow.
    """
    assignment, shuffle, image = reading.assignment, reading.shuffle, reading.image
    rows = window_rows(assignment, shuffle, epoch, window)
    if rows.order is not None:
        records = tf.gather(records, rows.order)
    values = parse_examples(records, reading.features)
    for feature in _without_elements(reading.features):
        # unbatch() ends the process on a tensor without elements (TensorFlow 2.21): a stand-in travels on
        values[feature.name] = tf.zeros([tf.shape(records)[0]], tf.bool)
    beside = {}
    if assignment.remainder != "drop":
        beside["real"] = rows.real
    if image is not None and image.crop == "random":
        numbers = example_numbers(reading.shards, shuffle, epoch, rows)
        beside["bits"] = crop_bits(image, epoch, numbers)
    if image is not None:
        return values, beside
    if assignment.window == 1:
        return _fixed_rows(values, assignment.batch_size), _fixed_rows(beside, assignment.batch_size)
    return _split_steps(values, assignment.batch_size), _split_steps(beside, assignment.batch_size)


def _without_elements(features: Sequence[Feature]) -> list[Feature]:
    return [feature for feature in features if feature.kind != "image" and 0 in feature.shape]


def _fixed_rows(values: Mapping[str, tf.Tensor], rows: int) -> dict[str, tf.Tensor]:
    return {name: tf.ensure_shape(value, [rows, *value.shape[1:]]) for name, value in values.items()}


def _split_steps(values: Mapping[str, tf.Tensor], batch_size: int) -> dict[str, tf.Tensor]:
    split = {}
    for name, value in values.items():
        inner = value.shape[1:]
        shape = tf.concat([[tf.shape(value)[0] // batch_size, batch_size], inner], axis=0)
        split[name] = tf.ensure_shape(tf.reshape(value, shape), [None, batch_size, *inner])
    return split


def _decode_images(
    reading: Reading, values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]
) -> _Values:
    """Return the values of one example with its images decoded."""
    assert reading.image is not None
    decoded = dict(values)
    bits = beside.get("bits", tf.constant(0, tf.int64))
    for feature in reading.features:
        if feature.kind == "image":
            pixels = decode_image(decoded[feature.name], reading.image, bits)
            if reading.image.size is None:
                pixels = tf.ensure_shape(pixels, [*feature.shape[:2], reading.image.channels])
            decoded[feature.name] = pixels
    return decoded, {name: value for name, value in beside.items() if name != "bits"}


def _without_padding(values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]) -> _Values:
    """Return a batch less its padding, which only the last ones of an epoch have."""
    real = beside["real"]
    kept = tf.cond(
        tf.reduce_all(real),
        lambda: dict(values),
        lambda: {name: tf.boolean_mask(value, real) for name, value in values.items()},
    )
    return kept, {}


def _delivered(
    reading: Reading, values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor] | tuple[tf.Tensor, ...]:
    """Return a batch as the user gets it."""
    batch = {feature.name: values[feature.name] for feature in reading.features}
    for feature in _without_elements(reading.features):
        dtype = tf.string if feature.dtype == "bytes" else feature.dtype
        stand_in = batch[feature.name]
        empty = tf.zeros(tf.concat([tf.shape(stand_in), feature.shape], axis=0), dtype)
        batch[feature.name] = tf.ensure_shape(empty, [*stand_in.shape, *feature.shape])
    delivered = tuple(batch.values())
    if reading.assignment.remainder == "pad":
        weights = tf.cast(beside["real"], tf.float32)
        return (*delivered, weights) if reading.as_tuple else {**batch, WEIGHT: weights}
    return delivered if reading.as_tuple else batch
