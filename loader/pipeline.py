"""``load``: a dataset as a ``tf.data.Dataset``, from options to batches stage by stage."""

from __future__ import annotations

import warnings

import tensorflow as tf

from tfshards.loader.examples.boxes import unmoved_boxes
from tfshards.loader.examples.content import make_content, unmoved_arrays
from tfshards.loader.graph.raw_ops import pipeline_options, with_cardinality
from tfshards.loader.graph.stages import keep_alive
from tfshards.loader.options.load_options import LoadOptions, takes
from tfshards.loader.order.plan import make_plan, no_steps
from tfshards.loader.reading.opening import open_frames, open_windows
from tfshards.loader.reading.source import open_source, without_class
from tfshards.loader.tensors.batches import BATCHES_AHEAD, make_batches
from tfshards.loader.tensors.feed import Feed
from tfshards.loader.training.strategies import warn_of_strategy
from tfshards.schemas.coordinates import coordinates_of


@takes(LoadOptions)
def load(options: LoadOptions) -> tf.data.Dataset:
    """Return the batches of one split, as one worker reads them.

    With a global batch size ``G = batch_size * worker.count`` and ``n`` examples an epoch has ``n // G``
    steps with ``remainder="drop"``, else ``n / G`` rounded up: the same number for each worker. ``len()`` of
    the result is known.

    Args:
        {options}

    Returns:
        Batches of shape ``(batch_size, *shape)``: a dict by feature name in the schema's order, or the tuple
        ``select``; with ``map_fn`` its result. Lists of any length are a ``tf.RaggedTensor`` of shape
        ``(batch_size, None)``, or ``(batch_size, None, k)`` for lists of rows of ``k`` numbers; lists of
        decoded images are ``(batch_size, None, height, width, channels)``, and with ``k`` images in every
        example a tensor of shape ``(batch_size, k, height, width, channels)``. With
        ``remainder="pad"`` or ``sample_weights`` there is one more float32 value of shape ``(batch_size,)``:
        the dict's ``sample_weight``, or the tuple's last element; 1 or the weight of the example, 0 for
        padding.

    Raises:
        OptionsError: an option is not allowed, or contradicts the others or the dataset.
        InputError: there is no dataset in ``path``, no such split in it, or no space for ``cache``.
        FormatError: the manifest or an index breaks the format, or a shard differs from the manifest.
    """
    if options.worker is None:
        warn_of_strategy(options)
    return load_dataset(options)


def load_dataset(options: LoadOptions) -> tf.data.Dataset:
    """Return the dataset of ``load``."""
    source = open_source(options)
    content = make_content(options, source)
    known = coordinates_of(source.manifest.schema.features)
    # The warnings point to the line that called load().
    for unmoved in unmoved_boxes(content.moved, content.features, content.images, known):
        warnings.warn(unmoved, stacklevel=4)
    for unlabeled in without_class(options, source, content.features):
        warnings.warn(unlabeled, stacklevel=4)
    for unmoved in unmoved_arrays(content.features, content.images):
        warnings.warn(unmoved, stacklevel=4)
    plan = make_plan(options, source)
    assignment = plan.assignment
    if assignment.num_steps == 0:
        warnings.warn(no_steps(source, assignment), stacklevel=4)
    frames, damage = open_frames(source, options)
    windows = open_windows(source, options, frames, is_scattered=plan.is_scattered)
    feed = Feed(plan, content, frames, windows, damage)
    batches = make_batches(feed, content)
    num_steps = tf.data.INFINITE_CARDINALITY if plan.num_steps is None else plan.num_steps
    dataset = with_cardinality(batches, num_steps).prefetch(BATCHES_AHEAD).with_options(pipeline_options())
    dataset = keep_alive(dataset, feed)
    # Last, so that a load that fails leaves the Progress unchanged.
    if options.tracker is not None and plan.facts is not None:
        options.tracker.load_from_here(plan.facts, assignment.num_steps, options.epochs)
    return dataset
