"""``load``: a dataset on disk as a ``tf.data.Dataset``.

The windows of the epochs are numbered through; everything about a window follows from its number. Numbers
become blocks, blocks are read in parallel, a window's blocks are put in order and parsed in one go.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import tensorflow as tf

from tfshards.loader.assign import Assignment, assign, divisors, num_lanes, num_steps
from tfshards.loader.images import crop_bits, decode_image
from tfshards.loader.options import (
    Image,
    Position,
    Remainder,
    Shuffle,
    Worker,
    check_batch_size,
    check_remainder,
)
from tfshards.loader.parse import parse_examples
from tfshards.loader.read import Shards, as_written, open_shards
from tfshards.loader.streams import read_pieces
from tfshards.loader.window import example_numbers, window_rows
from tfshards.schemas import (
    Feature,
    FormatError,
    InputError,
    Manifest,
    OptionsError,
    Schema,
    file_problems,
    read_manifest,
)

WEIGHT = "sample_weight"
# Windows that are parsed at the same time; one parses on several threads already.
PARSED_AHEAD = 2

# By name; the second holds what travels beside the features until the batches are made: "real", "bits".
_Values: TypeAlias = "tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]"


@dataclass(frozen=True)
class _Reading:
    """All that the graph of one ``load`` is made from."""

    shards: Shards
    assignment: Assignment
    features: tuple[Feature, ...]
    as_tuple: bool
    shuffle: Shuffle | None
    image: Image | None


def load(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    batch_size: int,
    worker: Worker | None = None,
    shuffle: Shuffle | None = None,
    epochs: int | None = 1,
    remainder: Remainder = "drop",
    select: Sequence[str] | None = None,
    image: Image | None = None,
    start: Position | None = None,
) -> tf.data.Dataset:
    """Return the batches of one split, as one worker reads them.

    With a global batch size ``G = batch_size * worker.count`` and ``n`` examples an epoch has ``n // G`` steps
    with ``remainder="drop"``, else ``n / G`` rounded up; the number is the same for each worker, and
    ``len()`` of the result is known.

    Args:
        path: the directory with ``dataset.json``.
        split: may be left out where there is one only.
        batch_size: of this worker.
        worker: which of several processes this is; each example goes to one of them.
        shuffle: another order in each epoch; None keeps the stored order.
        epochs: the epoch to stop before, or None to go on for ever. The result over the default, one epoch,
            gives the next epoch each time it is iterated if anything in it is random, as
            ``model.fit(dataset, epochs=90)`` and ``tf.data``'s own ``shuffle`` have it; any other result
            gives the same batches each time.
        remainder: "drop" leaves out the last ``n % G`` places of the epoch's order; "pad" fills the last step
            with the split's first example; "keep" makes the last step smaller, perhaps empty.
        select: names of features; the result is then a tuple of them, also for one name.
        image: decodes the features of kind ``image``; without it they are encoded bytes.
        start: the position from which on a run is resumed; for the same order it needs the same options, and
            a number of workers that divides the lanes (see ``Shuffle``).

    Returns:
        Batches of shape ``(batch_size, *shape)``: a dict by feature name in the schema's order, or the tuple
        ``select``. With ``remainder="pad"`` there is one more float32 value of shape ``(batch_size,)``: the
        dict's ``sample_weight``, or the tuple's last; 1 for an example, 0 for padding.

    Raises:
        OptionsError: an option is wrong, or does not fit the others or the dataset.
        InputError: there is no dataset in ``path``, or no such split in it.
        FormatError: the manifest or an index breaks the format, or a shard is missing or has another size.
    """
    check_batch_size("batch_size", batch_size)
    check_remainder(remainder)
    worker, start, one_pass = worker or Worker(), start or Position(), start is not None or epochs != 1
    root = Path(path)
    manifest = read_manifest(root)
    name = split_name(manifest, split, root)
    features = _selected(manifest.schema, select, image, remainder)
    taken = manifest.splits[name]
    problems = file_problems(replace(manifest, splits={name: taken}), root)
    if problems:
        raise FormatError(f"{root}: the shards of split {name!r}", problems)
    assignment = assign(taken.num_examples, taken.num_bytes, batch_size, worker, remainder, shuffle)
    _check_start(start, epochs, assignment, shuffle)
    if assignment.num_steps == 0:
        warnings.warn(no_steps(name, assignment), stacklevel=2)
    shards = open_shards(root, taken)
    reading = _Reading(shards, assignment, features, select is not None, shuffle, image)
    random = shuffle is not None or (image is not None and image.crop == "random")
    pieces = read_pieces(assignment, shards, shuffle, start, epochs, random and not one_pass)
    return _batches(reading, pieces, start, epochs)


def split_name(manifest: Manifest, split: str | None, root: Path) -> str:
    """Return ``split``, or the name of the only split.

    Raises:
        InputError: there is no such split, or ``split`` is None and there are several.
    """
    names = ", ".join(map(repr, manifest.splits))
    if split is None and len(manifest.splits) > 1:
        raise InputError(f"{root} has several splits; name one of {names}")
    if split is not None and split not in manifest.splits:
        raise InputError(f"{root} has no split {split!r}; there is {names}")
    return split if split is not None else next(iter(manifest.splits))


def no_steps(name: str, assignment: Assignment) -> str:
    """Return the sentence that says why an epoch has no steps."""
    return (
        f"split {name!r} has {assignment.num_examples} examples, fewer than the global batch size "
        f"{assignment.global_batch_size} ({assignment.batch_size} * {assignment.worker.count} workers), so "
        f"that remainder={assignment.remainder!r} leaves no steps; use a smaller batch size or remainder='pad'"
    )


def _selected(
    schema: Schema, select: Sequence[str] | None, image: Image | None, remainder: Remainder
) -> tuple[Feature, ...]:
    if isinstance(select, str):
        raise OptionsError(f"select={select!r} must be a sequence of names; use select=({select!r},)")
    names = schema.names if select is None else tuple(select)
    there_are = f"there are {', '.join(map(repr, schema.names))}"
    if not names:
        raise OptionsError(f"select={select!r} is empty; {there_are}")
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise OptionsError(f"select={tuple(names)!r} has no feature for {unknown[0]!r}; {there_are}")
    if len(set(names)) < len(names):
        raise OptionsError(f"select={tuple(names)!r} names a feature twice")
    features = tuple(schema[name] for name in names)
    if remainder == "pad" and select is None and WEIGHT in names:
        raise OptionsError(f"remainder='pad' adds {WEIGHT!r}, which is a feature already; use select=")
    images = [feature for feature in features if feature.kind == "image"]
    if image is not None and not images:
        raise OptionsError(f"image= is given, but none of {', '.join(map(repr, names))} is of kind 'image'")
    for feature in images:
        if image is not None and image.size is None and None in feature.shape[:2]:
            raise OptionsError(
                f"image {feature.name!r} differs in size from example to example, shape {feature.shape}, so "
                "that it cannot be batched; use Image(size=(height, width)), or leave image= out"
            )
    return features


def _check_start(
    start: Position, epochs: int | None, assignment: Assignment, shuffle: Shuffle | None
) -> None:
    if epochs is not None and epochs < 1:
        raise OptionsError(f"epochs={epochs} must be at least 1, or None for no end")
    if epochs is not None and start.epoch >= epochs:
        raise OptionsError(
            f"start={start} lies behind the end, epochs={epochs}; epochs counts from the run's beginning, "
            f"use at least {start.epoch + 1}"
        )
    if start.step and start.step >= assignment.num_steps:
        raise OptionsError(f"start={start} does not exist: an epoch has {assignment.num_steps} steps")
    if shuffle is not None and shuffle.lanes is None and start != Position():
        usual = num_lanes(assignment.global_batch_size, 1)
        if assignment.lanes != usual:
            raise OptionsError(
                f"{assignment.worker.count} workers do not divide the {usual} lanes of the default order, so "
                f"that this run cannot be told to be the one to resume; use {divisors(usual)} workers, or "
                f"Shuffle(lanes={assignment.lanes}) if the run began with {assignment.worker.count}"
            )


def _batches(
    reading: _Reading, pieces: tf.data.Dataset, start: Position, epochs: int | None
) -> tf.data.Dataset:
    assignment = reading.assignment

    def parse(epoch: tf.Tensor, number: tf.Tensor, records: tf.Tensor) -> _Values:
        window = number[0] if assignment.lanes else number[0] // assignment.num_pieces
        return _parse_window(reading, epoch[0], window, tf.reshape(records, [-1]))

    # (epoch, piece, records), each with a first dimension of num_pieces
    records = pieces.batch(assignment.num_pieces)
    parsed = records.map(as_written(parse), PARSED_AHEAD).unbatch()
    skipped = start.step % (assignment.window if assignment.lanes else assignment.chunk)
    if reading.image is None:
        steps = parsed.skip(skipped)
    else:
        decode = as_written(lambda *example: _decode_images(reading, *example))
        examples = parsed.skip(skipped * assignment.batch_size).map(decode, tf.data.AUTOTUNE)
        steps = examples.batch(assignment.batch_size, drop_remainder=True)
    if assignment.remainder == "keep":
        steps = steps.map(as_written(_without_padding))
    steps = steps.map(as_written(lambda *batch: _delivered(reading, *batch)))
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    count = tf.data.INFINITE_CARDINALITY
    if epochs is not None or not assignment.num_steps:
        count = max(0, ((epochs or 1) - start.epoch) * assignment.num_steps - start.step)
    steps = steps.apply(tf.data.experimental.assert_cardinality(count))
    return steps.prefetch(tf.data.AUTOTUNE).with_options(options)


def _parse_window(reading: _Reading, epoch: tf.Tensor, window: tf.Tensor, records: tf.Tensor) -> _Values:
    """Return the values of a window, ``(steps, batch_size, ...)``, or ``(rows, ...)`` if images follow."""
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
    return _split_steps(values, assignment.batch_size), _split_steps(beside, assignment.batch_size)


def _without_elements(features: Sequence[Feature]) -> list[Feature]:
    return [feature for feature in features if feature.kind != "image" and 0 in feature.shape]


def _split_steps(values: Mapping[str, tf.Tensor], batch_size: int) -> dict[str, tf.Tensor]:
    split = {}
    for name, value in values.items():
        inner = value.shape[1:]
        shape = tf.concat([[tf.shape(value)[0] // batch_size, batch_size], inner], axis=0)
        split[name] = tf.ensure_shape(tf.reshape(value, shape), [None, batch_size, *inner])
    return split


def _decode_images(
    reading: _Reading, values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]
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
    reading: _Reading, values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]
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
