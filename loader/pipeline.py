"""``load``: a dataset as a ``tf.data.Dataset``, from options to batches stage by stage."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import tensorflow as tf

from tfshards.loader.examples.batches import Ahead, make_batches, needs_numbers
from tfshards.loader.examples.boxes import unmoved_boxes
from tfshards.loader.examples.content import Content, example_spec, make_content
from tfshards.loader.examples.map_fn import traced
from tfshards.loader.fetching.open import check_remote, fetched_shards, is_fetched, with_short_streams
from tfshards.loader.graph.raw_ops import pipeline_options, with_cardinality
from tfshards.loader.graph.stages import keep_alive
from tfshards.loader.integrity.damaged import open_shards
from tfshards.loader.options.image import Boxes, Image
from tfshards.loader.options.load_options import Check, LoadOptions, OnDamage, Remainder, SampleWeights
from tfshards.loader.options.position import Position, Shuffle
from tfshards.loader.options.selection import Classes, Mix, Part
from tfshards.loader.options.worker import Worker
from tfshards.loader.order.assignment import Assignment
from tfshards.loader.order.plan import make_plan, no_steps
from tfshards.loader.order.source import open_source
from tfshards.loader.records.record_reader import RecordReader
from tfshards.loader.records.streams import read_groups
from tfshards.loader.resources.budget import ahead_within, forecast
from tfshards.loader.resources.cache import cached_shards
from tfshards.loader.training.progress import Progress
from tfshards.loader.training.strategies import warn_of_other_workers, warn_of_uneven_replicas

# With fewer positions, numbering the records takes less time than tracing the functions that name a damaged
# record without numbers: 1 microsecond for each, against a tenth of a second.
FEW_POSITIONS = 10_000


def load(
    path: str | os.PathLike[str] | Mix,
    split: str | None = None,
    *,
    batch_size: int,
    worker: Worker | None = None,
    shuffle: Shuffle | None = None,
    epochs: int | None = 1,
    remainder: Remainder = "drop",
    take: int | Part | None = None,
    classes: Classes | None = None,
    select: Sequence[str] | None = None,
    image: Image | Mapping[str, Image] | None = None,
    boxes: Boxes | None = None,
    start: Position | Progress | None = None,
    sample_weights: SampleWeights | None = None,
    map_fn: Callable[..., object] | None = None,
    class_names: Sequence[str] | None = None,
    check: Check = "files",
    on_damage: OnDamage = "raise",
    cache: str | None = None,
    memory_budget: str | int | None = None,
) -> tf.data.Dataset:
    """Return the batches of one split, as one worker reads them.

    With a global batch size ``G = batch_size * worker.count`` and ``n`` examples an epoch has ``n // G``
    steps with ``remainder="drop"``, else ``n / G`` rounded up: the same number for each worker. ``len()`` of
    the result is known.

    Args:
        path: the directory with ``dataset.json``, ``s3://BUCKET/FOLDER``, ``gs://`` or ``az://``; or a
            ``Mix`` of several local ones. From a bucket, what the order needs next is fetched ahead.
        split: its name; may be left out if there is only one.
        batch_size: the number of examples in each batch of this worker.
        worker: which of several processes this is; each example goes to one of them. If left out, this is the
            only one, with a warning where ``TF_CONFIG`` or the strategy in scope names several, or where the
            replicas of the strategy in scope do not divide ``batch_size``.
        shuffle: a different order in each epoch; None keeps the stored order.
        epochs: the epoch to stop before, or None for no end. With the default, one epoch, each iteration
            of the result is the next epoch if epochs differ in anything, as ``model.fit(dataset, epochs=90)``
            expects and ``tf.data``'s own ``shuffle`` does; otherwise every iteration gives the same batches.
        remainder: "drop" leaves out the last ``n % G`` positions of the epoch's order; "keep" makes the last
            step smaller, perhaps empty, as ``evaluate`` and ``predict`` on one host need it; "pad" fills the
            last step with the split's first example, of weight 0, for custom loops and several hosts.
        take: the number of examples to read, the first ones in stored order; or ``Part(index, count)``, one
            of several parts of the split. With ratios, the positions of an epoch.
        classes: the classes to read, names or numbers; their labels do not change. Ratios by class resample:
            an epoch holds each class in exactly its share, up to rounding, and over any number of epochs the
            numbers of times that examples of a class occur differ by at most one; without ``take`` an epoch
            has as many positions as there are examples of these classes. Ratios are weights in any unit:
            each share is relative to their sum.
        select: names of features; the result is then a tuple of them, also for one name.
        image: how to decode the features of kind ``image`` and ``mask``, or some of them by name; the others
            come as encoded bytes. Masks are cut, resized and mirrored as their images are.
        boxes: the feature that holds the boxes of an image, which are moved as the image is cropped, resized
            and flipped; they come as a ``tf.RaggedTensor`` of shape ``(batch_size, None, 4)``, float32.
        start: the position at which a run is resumed; for the same order it requires the same options, and a
            number of workers that divides the lanes (see ``Shuffle``). A ``Progress``, or a position from
            one, knows these: lanes and runs are taken from it, and a different order is refused.
        sample_weights: the weight of each example: "balanced" as in ``class_weights``, weights by name or
            number of the class, or the name of a feature that holds one number for each example.
        map_fn: called in the graph for each example before batches are made, as ``map_fn(example, seed)``: a
            dict of the selected features, images decoded, and an int64 tensor of shape ``(2,)`` for
            ``tf.random.stateless_*``. The seed is a pure function of ``Shuffle``'s seed (0 without), the
            epoch and the example. The result, a tensor or dicts and tuples of tensors, is put into batches.
            A tensor that it captures is held once by the graph, and by no batch.
        class_names: the classes that the dataset must have, in the order of their numbers.
        check: "files" compares size, last bytes and index of each shard of the split with the manifest;
            "headers" also compares the length of each record and its checksum, without reading the data.
        on_damage: "raise" ends the run at a damaged record, with an error that names it; "skip", which
            requires ``remainder="pad"``, reads all of the split before the first step and delivers the
            split's first good record, with weight 0, instead of each damaged one.
        cache: "disk:PATH", a folder on a local disk (or in ``/dev/shm``) to which the split's shards are
            copied before the first step, each checked by its digest; its parent must exist. Later runs and
            other processes find the copies. Stored bytes are copied: order, decoding and augmentation do not
            change. "disk:PATH, 200GiB" has at most that many bytes of blocks, about 1 MiB each, which are
            fetched in the order of the run, checked, and kept by when that order needs them next; processes
            that use it at the same time divide the bytes. None reads local files as they are; from a
            bucket, blocks go to a temporary folder until they are read.
        memory_budget: the memory that reading, decoding and batches ahead may use in addition to TensorFlow
            and the model, as "2GiB" or in bytes. It decides how far ahead is worked, never the order, and
            is an error where the least does not fit.

    Returns:
        Batches of shape ``(batch_size, *shape)``: a dict by feature name in the schema's order, or the tuple
        ``select``; with ``map_fn`` its result. Lists of any length are a ``tf.RaggedTensor`` of shape
        ``(batch_size, None)``, or ``(batch_size, None, k)`` for lists of rows of ``k`` numbers. With
        ``remainder="pad"`` or ``sample_weights`` there is one more float32 value of shape ``(batch_size,)``:
        the dict's ``sample_weight``, or the tuple's last element; 1 or the weight of the example, 0 for
        padding.

    Raises:
        OptionsError: an option is not allowed, or contradicts the others or the dataset.
        InputError: there is no dataset in ``path``, no such split in it, or no space for ``cache``.
        FormatError: the manifest or an index breaks the format, or a shard differs from the manifest.
    """
    # The parameters above are exactly the fields of LoadOptions.
    options = LoadOptions(**locals())
    if worker is None:
        warn_of_other_workers()
        warn_of_uneven_replicas(batch_size)
    return load_dataset(options)


def load_dataset(options: LoadOptions) -> tf.data.Dataset:
    """Return the dataset of ``load``.

    Raises:
        TfshardsError: as for ``load``.
    """
    source = open_source(options)
    content = make_content(options, source)
    unmoved = unmoved_boxes(content.boxes, content.features, content.images, source.manifest.options)
    # The warnings point to the line that called load().
    if unmoved:
        warnings.warn(unmoved, stacklevel=3)
    plan = make_plan(options, source)
    assignment = plan.assignment
    if assignment.num_steps == 0:
        warnings.warn(no_steps(source, assignment), stacklevel=3)
    check_remote(options, source)
    shards = open_shards(source, options)
    reader = RecordReader(shards, plan.population, plan.order, plan.record_bytes)
    fetches = is_fetched(options, source, reader)
    if fetches:
        plan = with_short_streams(plan)
        reader = replace(reader, shards=fetched_shards(plan, reader, source, options))
    ahead = Ahead()
    if options.budget_bytes is not None:
        content, spec = _delivered_spec(content)
        ahead = ahead_within(forecast(source, plan, reader, content, spec), options.budget_bytes, ahead)
    if options.cache_folder is not None and not fetches:
        strict = options.on_damage == "raise"
        reader = replace(reader, shards=cached_shards(shards, source, options.cache_folder, strict=strict))
    reader = replace(reader, numbered=fetches or is_numbered(content, assignment))
    groups = read_groups(plan, reader)
    batches = make_batches(groups, content, shards=reader.shards, assignment=assignment, ahead=ahead)
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


def _delivered_spec(content: Content) -> tuple[Content, object]:
    """Return ``content`` with the user's function traced, and the specification of a delivered example."""
    spec = example_spec(content)
    if content.user_map is None:
        return content, spec
    user_map, returned = traced(content.user_map, spec)
    return replace(content, user_map=user_map), returned
