"""``load``: a dataset as a ``tf.data.Dataset``, from options to batches stage by stage."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import tensorflow as tf

from tfshards.loader.examples.boxes import unmoved_boxes
from tfshards.loader.examples.content import Content, make_content, unmoved_arrays
from tfshards.loader.fetching.open import fetched_shards, is_fetched
from tfshards.loader.graph.raw_ops import pipeline_options, with_cardinality
from tfshards.loader.graph.stages import keep_alive
from tfshards.loader.integrity.damaged import open_shards
from tfshards.loader.options.load_options import LoadOptions, takes
from tfshards.loader.order.assignment import Assignment
from tfshards.loader.order.plan import make_plan, no_steps
from tfshards.loader.order.source import open_source, without_class
from tfshards.loader.records.record_reader import RecordReader, on_graph
from tfshards.loader.resources.budget import ahead_within, forecast
from tfshards.loader.resources.cache import copied_shards
from tfshards.loader.tensors.batches import Ahead, make_batches, needs_numbers
from tfshards.loader.tensors.specs import example_spec, traced
from tfshards.loader.training.strategies import warn_of_strategy
from tfshards.schemas.coordinates import coordinates_of

# With fewer positions, numbering the records takes less time than tracing the functions that name a damaged
# record without numbers: 1 microsecond for each, against a tenth of a second.
FEW_POSITIONS = 10_000


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


# The loads that have put it off, of all threads.
_num_without = 0
_lock = threading.Lock()


@contextmanager
def _without_collection() -> Iterator[None]:
    """Put off the collection of garbage.

    The many new objects of a graph otherwise start one of all that TensorFlow has made while it was imported,
    which takes as long as the rest of ``load``, and finds nothing.
    """
    global _num_without
    with _lock:
        _num_without += gc.isenabled() or _num_without > 0
        is_counted = _num_without > 0
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _num_without -= is_counted
            if is_counted and not _num_without:
                gc.enable()


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
    shards = open_shards(source, options)
    budget, sizes = options.budget_bytes, None
    if budget is not None:
        example = example_spec(content)
        spec: object = example
        if content.user_map is not None:
            user_map, spec = traced(content.user_map, example)
            content = replace(content, user_map=user_map)
        sizes = forecast(source, RecordReader(shards, plan), content, spec)
    fetches = is_fetched(options, source, shards, plan)
    if fetches:
        # shorter streams by steps, so that fewer blocks are read at the same time
        chunk = min(1, plan.assignment.chunk)
        plan = replace(plan, assignment=replace(plan.assignment, chunk=chunk))
        most_bytes = None if budget is None or sizes is None else budget - sizes.least
        shards = fetched_shards(shards, plan, source, options, most_bytes)
    ahead = Ahead()
    if budget is not None and sizes is not None:
        fetched = 0 if shards.fetcher is None else shards.fetcher.memory_bytes
        ahead = ahead_within(replace(sizes, fetched=fetched), budget, ahead)
    reader = RecordReader(shards, on_graph(plan))
    if options.cache_folder is not None and not fetches:
        strict = options.on_damage == "raise"
        paths = copied_shards(source, options.cache_folder, strict=strict)
        reader = replace(reader, shards=replace(shards, paths=tuple(map(str, paths))))
    reader = replace(reader, numbered=fetches or is_numbered(content, assignment))
    with _without_collection():
        batches = make_batches(reader, content, ahead)
    num_steps = tf.data.INFINITE_CARDINALITY if plan.num_steps is None else plan.num_steps
    dataset = with_cardinality(batches, num_steps).prefetch(ahead.batches).with_options(pipeline_options())
    if reader.shards.fetcher is not None:
        dataset = keep_alive(dataset, reader.shards.fetcher)
    # Last, so that a load that fails leaves the Progress unchanged.
    if options.tracker is not None and plan.facts is not None:
        options.tracker.load_from_here(plan.facts, assignment.num_steps, options.epochs)
    return dataset


def is_numbered(content: Content, assignment: Assignment) -> bool:
    """Return whether the records of local files are read with their numbers."""
    return assignment.num_positions < FEW_POSITIONS or needs_numbers(content, assignment)
