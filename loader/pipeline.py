"""``load``: a dataset as a ``tf.data.Dataset``, from options to batches stage by stage."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tfshards.loader.examples.content import make_content, notes_of
from tfshards.loader.options.boxes import Boxes, Keypoints
from tfshards.loader.options.image import Image
from tfshards.loader.options.load_options import LoadOptions, OnDamage, Remainder, SampleWeights
from tfshards.loader.options.position import Counter, Position
from tfshards.loader.options.selection import Classes, Mix, Part, Shuffle
from tfshards.loader.options.validation import invalid, suggests
from tfshards.loader.options.worker import Worker, log_part, other_workers, reads_all
from tfshards.loader.order.plan import choose_population, make_plan, no_steps
from tfshards.loader.reading.opening import open_frames, open_windows
from tfshards.loader.reading.source import OpenSplit, open_source, without_class
from tfshards.loader.tensors.batches import make_batches
from tfshards.loader.tensors.feed import Feed
from tfshards.loader.tensors.stages import finished, keep_alive


@suggests
def load(
    path: str | os.PathLike[str] | Mix,
    split: str | None = None,
    *,
    batch_size: int,
    select: Sequence[str] | None = None,
    take: int | Part | None = None,
    classes: Classes | None = None,
    image: Image | Mapping[str, Image] | None = None,
    boxes: Boxes | None = None,
    keypoints: Keypoints | None = None,
    sample_weights: SampleWeights | None = None,
    map_fn: Callable[..., object] | None = None,
    shuffle: Shuffle | None = None,
    remainder: Remainder = "drop",
    epochs: int | None = 1,
    start: Position | Counter | None = None,
    worker: Worker | None = None,
    cache: str | None = None,
    on_damage: OnDamage = "raise",
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
        select: names of features; the result is then a tuple of them, also for one name.
        take: the number of examples to read, the first ones in stored order; or ``Part(index, count)``, one
            of several parts of the split. With ratios, the positions of an epoch.
        classes: the classes to read, names or numbers; their labels do not change. Of lists of classes, one
            must be among them, for which all records of the split are read before the first step. Ratios by
            class resample: an epoch holds each class in exactly its share, up to rounding, and over any
            number of epochs the numbers of times that examples of a class occur differ by at most one;
            without ``take`` an epoch has as many positions as there are examples of these classes. Ratios
            are weights in any unit: each share is relative to their sum.
        image: how to decode the features of kind ``image`` and ``mask``, or some of them by name; the others
            come as encoded bytes. Masks are cut, resized and mirrored as their images are.
        boxes: the feature that holds the boxes of an image, which are moved as the image is cropped, resized
            and flipped; they come as a ``tf.RaggedTensor`` of shape ``(batch_size, None, 4)``, float32.
        keypoints: the feature that holds the keypoints of an image, which are moved in the same way.
        sample_weights: the weight of each example: "balanced" as in ``class_weights``, weights by name or
            number of the class, or the name of a feature that holds one number for each example.
        map_fn: called in the graph for each example before batches are made, as ``map_fn(example, seed)``: a
            dict of the selected features, images decoded, and an int64 tensor of shape ``(2,)`` for
            ``tf.random.stateless_*``. The seed is a pure function of ``Shuffle``'s seed (0 without), the
            epoch and the example. The result, a tensor or dicts and tuples of tensors, is put into batches.
            A tensor that it captures is held once by the graph, and by no batch.
        shuffle: a different order in each epoch; None keeps the stored order.
        remainder: "drop" leaves out the last ``n % G`` positions of the epoch's order; "keep" makes the last
            step smaller, perhaps empty, as ``evaluate`` and ``predict`` on one host need it; "pad" fills the
            last step with the split's first example, of weight 0, for custom loops and several hosts.
        epochs: the epoch to stop before, or None for no end. With the default, one epoch, each iteration
            of the result is the next epoch if epochs differ in anything, as ``model.fit(dataset, epochs=90)``
            expects and ``tf.data``'s own ``shuffle`` does; otherwise every iteration gives the same batches.
            A look at one batch uses up no epoch, nor one at up to four, if none came right before it.
        start: the position at which a run is resumed; for the same order it requires the same options, and a
            number of workers that divides the lanes (see ``Shuffle``). A ``Progress``, or a position from
            one, knows these: lanes and runs are taken from it, and a different order is refused.
        worker: which of several processes this is; each example goes to one of them. If left out, the rank
            in an initialized process group of PyTorch or JAX, else the only one, with a warning where
            the variables of a launcher or the strategy in scope name several, or where the replicas of the
            strategy in scope do not divide ``batch_size``.
        cache: "disk:PATH", a folder on a local disk (or in ``/dev/shm``) to which the split's shards are
            copied before the first step, each checked by its digest; its parent must exist. Later runs and
            other processes find the copies. Stored bytes are copied: order, decoding and augmentation do not
            change. Compressed shards are unpacked, and are read only from there. "disk:PATH, 200GiB" keeps
            the records of the split that are read first, until they have that many bytes: never more traffic
            than without a cache. None reads local files as they are, and what the order needs next of a
            bucket into memory.
        on_damage: "raise" ends the run at a damaged record, with an error that names it; "skip", which
            requires ``remainder="pad"``, makes it padding where it is met, with the values of the split's
            first sound record and weight 0, and logs it.

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
    options = LoadOptions(**locals())
    if options.worker is None and options.this_worker.count == 1:
        _warn_of_strategy(options)
    return load_dataset(options)


def load_dataset(options: LoadOptions) -> tf.data.Dataset:
    """Return the dataset of ``load``."""
    source = open_source(options)
    feed = make_feed(options, source)
    content, plan = feed.content, feed.plan
    # The warnings point to the line that called load().
    for note in [*notes_of(content, source), *without_class(options, source, content.features)]:
        warnings.warn(note, stacklevel=4)
    if plan.order.num_steps == 0:
        warnings.warn(no_steps(plan), stacklevel=4)
    dataset = keep_alive(finished(make_batches(feed), plan.num_steps), feed)
    log_part(source.label, options.this_worker, plan.order.num_steps)
    # Last, so that a load that fails leaves the Progress unchanged.
    if options.tracker is not None:
        options.tracker.load_from_here(plan.facts, plan.order.num_steps)
    return dataset


def make_feed(options: LoadOptions, source: OpenSplit) -> Feed:
    """Return what the graph reads, after the checks of the files."""
    content, plan = make_content(options, source), make_plan(options, source)
    empty = [feature.name for feature in content.parsed if not feature.is_encoded and 0 in feature.shape]
    if empty:
        # unbatch() ends the process on a tensor without elements (TensorFlow 2.21)
        allowed = f"without {empty[0]!r}, whose values have no elements; or use loader.batches"
        raise invalid("select", options.select, allowed)
    frames, damage = open_frames(source, options)
    windows = open_windows(source, options.cached, frames, is_scattered=plan.is_scattered)
    return Feed(plan, content, frames, windows, damage)


def _warn_of_strategy(options: LoadOptions) -> None:
    """Warn, at the line that called ``load`` without ``worker=``, where the strategy in scope does not fit.

    Either each of several hosts would read the whole split, or Keras could not split the batches over the
    replicas: with TensorFlow 2.21 and Keras 3.15 ``fit`` and ``evaluate`` then fail in the operation AddN,
    with an error that names no batch. ``predict`` works, and so does a smaller batch after the first one.
    """
    strategy, where = tf.distribute.get_strategy(), other_workers()
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        cluster = strategy.cluster_resolver.cluster_spec().as_dict()
        count = sum(len(cluster.get(kind, ())) for kind in ("chief", "master", "worker"))
        if count > 1:
            where = f"this is the scope of a MultiWorkerMirroredStrategy of {count} workers"
    replicas, size = int(strategy.num_replicas_in_sync), options.batch_size
    if replicas > 1 and options.remainder == "keep":
        size = min(size, choose_population(options, open_source(options)).num_positions)
    if where is not None:
        warnings.warn(reads_all(where, "load"), stacklevel=4)
    elif size % replicas:
        text = (
            f"batches of {size} examples cannot be divided evenly among the {replicas} replicas of the "
            "strategy in scope, and fit and evaluate of Keras would end with an error of the operation AddN: "
            f"use a multiple of {replicas}, or remainder='pad' with weighted metrics where the split has no "
            "more examples, or pass worker=loader.Worker() if this is intended"
        )
        warnings.warn(text, stacklevel=4)
