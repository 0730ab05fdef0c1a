"""From the pieces that the streams deliver to batches: put in order, parse, decode, split into steps.

A list of any length is a ``tf.RaggedTensor`` on all of the way, of a rank more than the other values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tensorflow as tf

from tfshards.loader.assign import Assignment
from tfshards.loader.explain import check_pieces
from tfshards.loader.images import crop_bits, decode_image
from tfshards.loader.options import Image, Lists, Shuffle
from tfshards.loader.parse import parse_examples
from tfshards.loader.read import Shards, as_written, is_damaged
from tfshards.loader.streams import piece_numbers
from tfshards.loader.window import example_numbers, window_rows
from tfshards.schemas import Feature

WEIGHT = "sample_weight"
# Windows that are parsed at the same time; one parses on several threads already.
PARSED_AHEAD = 2

# By name; the second holds what travels beside the features until the batches are made: "real", and the bits
# of random crops by their seed.
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
        images: how images are decoded, by feature; the others are not.
        lists: how lists of any length are delivered.
    """

    shards: Shards
    assignment: Assignment
    features: tuple[Feature, ...]
    as_tuple: bool
    shuffle: Shuffle | None
    images: Mapping[str, Image]
    lists: Lists


def batches(reading: Reading, windows: tf.data.Dataset, start_step: int) -> tf.data.Dataset:
    """Return the batches in ``windows`` (``streams.read_windows``) from a step of the first epoch on."""
    assignment = reading.assignment

    def parse(number: tf.Tensor, pieces: tuple[tf.Tensor, tf.Tensor]) -> _Values:
        numbers, records = pieces
        epoch, window = number // assignment.num_windows, number % assignment.num_windows
        missing = tf.not_equal(numbers, piece_numbers(assignment, number))
        checked = check_pieces(reading.shards, assignment, reading.shuffle, (epoch, window), missing)
        with tf.control_dependencies([checked]):
            records = tf.identity(records)
        return _parse_window(reading, epoch, window, records)

    parsed = windows.map(as_written(parse), PARSED_AHEAD)
    if assignment.window > 1 or reading.images:
        # the values of a step, or of an example if images follow
        parsed = parsed.unbatch()
    # the pieces begin with a whole window
    skipped = start_step % assignment.window
    if not reading.images:
        steps = parsed.skip(skipped)
    else:
        decode = as_written(lambda *example: _decode_images(reading, *example))
        examples = parsed.skip(skipped * assignment.batch_size).map(decode, num_cpus())
        ragged = any(feature.is_ragged for feature in reading.features)
        batch = examples.ragged_batch if ragged else examples.batch
        steps = batch(assignment.batch_size, drop_remainder=True)
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
    assignment, shuffle, images = reading.assignment, reading.shuffle, reading.images
    rows = window_rows(assignment, shuffle, epoch, window)
    records = tf.reshape(records, [-1])
    records = records[: tf.size(rows.real)] if rows.order is None else tf.gather(records, rows.order)
    values = parse_examples(records, reading.features)
    for feature in _without_elements(reading.features):
        # unbatch() ends the process on a tensor without elements (TensorFlow 2.21): a stand-in travels on
        values[feature.name] = tf.zeros([tf.shape(records)[0]], tf.bool)
    beside = {}
    if assignment.remainder != "drop":
        beside["real"] = rows.real
    if len(reading.shards.bad_starts):
        damaged = is_damaged(reading.shards, example_numbers(reading.shards, shuffle, epoch, rows))
        beside["real"] = tf.logical_and(rows.real, tf.logical_not(damaged))
    cropped = {_bits_name(image): image for image in images.values() if image.crop == "random"}
    if cropped:
        numbers = example_numbers(reading.shards, shuffle, epoch, rows)
        beside |= {name: crop_bits(image, epoch, numbers) for name, image in cropped.items()}
    if images:
        return values, beside
    if assignment.window == 1:
        return _fixed_rows(values, assignment.batch_size), _fixed_rows(beside, assignment.batch_size)
    return _split_steps(values, assignment.batch_size), _split_steps(beside, assignment.batch_size)


def _without_elements(features: Sequence[Feature]) -> list[Feature]:
    return [feature for feature in features if feature.kind != "image" and 0 in feature.shape]


def _bits_name(image: Image) -> str:
    # images of equal seeds share their bits, and so their boxes
    return f"bits {image.seed}"


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


def _decode_images(
    reading: Reading, values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]
) -> _Values:
    """Return the values of one example with its images decoded."""
    decoded = dict(values)
    for feature in reading.features:
        image = reading.images.get(feature.name)
        if image is not None:
            bits = beside.get(_bits_name(image), tf.constant(0, tf.int64))
            pixels = decode_image(decoded[feature.name], image, bits)
            if image.size is None:
                pixels = tf.ensure_shape(pixels, [*feature.shape[:2], image.channels])
            decoded[feature.name] = pixels
    return decoded, {name: value for name, value in beside.items() if name == "real"}


def _without_padding(values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]) -> _Values:
    """Return a batch less its padding, which only the last ones of an epoch have."""
    real = beside["real"]
    kept = tf.cond(
        tf.reduce_all(real),
        lambda: dict(values),
        lambda: {name: _masked(value, real) for name, value in values.items()},
    )
    return kept, {}


def _masked(value: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
    mask = tf.ragged.boolean_mask if isinstance(value, tf.RaggedTensor) else tf.boolean_mask
    return mask(value, real)


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
    for feature in reading.features:
        if feature.is_ragged and reading.lists == "padded":
            batch[feature.name] = batch[feature.name].to_tensor()
    delivered = tuple(batch.values())
    if reading.assignment.remainder == "pad":
        weights = tf.cast(beside["real"], tf.float32)
        return (*delivered, weights) if reading.as_tuple else {**batch, WEIGHT: weights}
    return delivered if reading.as_tuple else batch
