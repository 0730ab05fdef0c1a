"""``load``: a dataset as a ``tf.data.Dataset``. Here is checked what is asked for; other files read it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import tensorflow as tf

from tfshards.loader.assign import Assignment, assign, divisors, num_lanes
from tfshards.loader.batches import WEIGHT, Reading, batches
from tfshards.loader.options import (
    Image,
    Position,
    Remainder,
    Shuffle,
    Worker,
    check_batch_size,
    check_integer,
    check_remainder,
    check_type,
)
from tfshards.loader.read import open_shards
from tfshards.loader.streams import read_pieces
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

BATCHES_AHEAD = 2


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

    With a global batch size ``G = batch_size * worker.count`` and ``n`` examples an epoch has ``n // G``
    steps with ``remainder="drop"``, else ``n / G`` rounded up: the same number for each worker. ``len()`` of
    the result is known.

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
    for option, value, kind in (
        ("worker", worker, Worker),
        ("shuffle", shuffle, Shuffle),
        ("image", image, Image),
        ("start", start, Position),
    ):
        check_type(option, value, kind)
    if epochs is not None:
        check_integer("epochs", epochs)
    one_run = start is not None or epochs != 1
    worker, start = worker or Worker(), start or Position()
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
    random = shuffle is not None or (image is not None and image.crop == "random")
    pieces = read_pieces(assignment, shards, shuffle, start, epochs, random and not one_run)
    reading = Reading(shards, assignment, features, select is not None, shuffle, image)
    steps = batches(reading, pieces, start.step)
    options = tf.data.Options()
    options.deterministic = True
    # Nothing here asks for tuning, whose thread makes the end of each iteration wait for up to seconds.
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    length = _length(assignment, start, epochs)
    return (
        steps.apply(tf.data.experimental.assert_cardinality(length))
        .prefetch(BATCHES_AHEAD)
        .with_options(options)
    )


def split_name(manifest: Manifest, split: str | None, root: Path) -> str:
    """Return ``split``, or the name of the only split.

    Raises:
        InputError: there is no such split, or ``split`` is None and there are several.
    """
    names = ", ".join(map(repr, manifest.splits))
    if split is not None and not isinstance(split, str):
        raise OptionsError(f"split={split!r} must be one name; there is {names}")
    if split is None and len(manifest.splits) > 1:
        raise InputError(f"{root} has several splits; name one of {names}")
    if split is not None and split not in manifest.splits:
        raise InputError(f"{root} has no split {split!r}; there is {names}")
    return split if split is not None else next(iter(manifest.splits))


def no_steps(name: str, assignment: Assignment) -> str:
    """Return the sentence that says why an epoch has no steps."""
    return (
        f"split {name!r} has {assignment.num_examples} examples, fewer than the global batch size "
        f"{assignment.global_batch_size} (batch_size={assignment.batch_size} on each of "
        f"{assignment.worker.count} workers), so that remainder={assignment.remainder!r} leaves no steps; "
        "use a smaller batch size or remainder='pad'"
    )


def _selected(
    schema: Schema, select: Sequence[str] | None, image: Image | None, remainder: Remainder
) -> tuple[Feature, ...]:
    if select is not None and not isinstance(select, (tuple, list)):
        name = select if isinstance(select, str) else "image"
        raise OptionsError(f"select={select!r} must be a tuple of names, such as select=({name!r},)")
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


def _length(assignment: Assignment, start: Position, epochs: int | None) -> int:
    if epochs is None and assignment.num_steps:
        return int(tf.data.INFINITE_CARDINALITY)
    return max(0, ((epochs or 1) - start.epoch) * assignment.num_steps - start.step)
