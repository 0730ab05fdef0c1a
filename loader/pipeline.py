"""``load``: a dataset as a ``tf.data.Dataset``. Here the stages are put together; other files do the work."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import tensorflow as tf

from tfshards.loader.assign import Assignment, Stored, assign
from tfshards.loader.batches import batches, num_cpus
from tfshards.loader.budget import ahead_within, forecast
from tfshards.loader.cache import Cache, cached
from tfshards.loader.checks import (
    check_class_names,
    check_start,
    decoded_images,
    no_steps,
    selected_features,
)
from tfshards.loader.examples import Classes, Mix, Part
from tfshards.loader.image_options import Image
from tfshards.loader.map_fn import user_map
from tfshards.loader.memory import budget_bytes
from tfshards.loader.open import open_shards
from tfshards.loader.options import (
    WEIGHT,
    Check,
    Lists,
    OnDamage,
    Position,
    Remainder,
    Shuffle,
    Worker,
)
from tfshards.loader.order import Order, order_seed
from tfshards.loader.places import Places
from tfshards.loader.population import Groups, Population, Ranges
from tfshards.loader.progress import Progress, check_same_order, check_workers, kept_shuffle, order_facts
from tfshards.loader.reading import Ahead, Reading
from tfshards.loader.request import Request
from tfshards.loader.scope import warn_of_other_readers
from tfshards.loader.sources import source_of
from tfshards.loader.streams import read_groups
from tfshards.loader.targets import one_hot_depths
from tfshards.loader.weights import SampleWeights, weighing
from tfshards.schemas import Manifest, OptionsError, Split

# Examples come in order: with one for each processor, one that takes long keeps the others waiting.
DECODED_PER_CPU = 4


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
    start: Position | Progress | None = None,
    lists: Lists = "ragged",
    one_hot: Sequence[str] | Mapping[str, int] | None = None,
    sample_weights: SampleWeights | None = None,
    map_fn: Callable[..., object] | None = None,
    static: object = None,
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
        path: the directory with ``dataset.json``, or a ``Mix`` of several.
        split: may be left out where there is one only.
        batch_size: of this worker.
        worker: which of several processes this is; each example goes to one of them. Left out, this is the
            only one, with a warning where ``TF_CONFIG`` or the strategy in scope names several.
        shuffle: another order in each epoch; None keeps the stored order.
        epochs: the epoch to stop before, or None to go on for ever. The result over the default, one epoch,
            gives the next epoch each time it is iterated if epochs differ in anything, as
            ``model.fit(dataset, epochs=90)`` and ``tf.data``'s own ``shuffle`` have it; any other result
            gives the same batches each time.
        remainder: "drop" leaves out the last ``n % G`` places of the epoch's order; "pad" fills the last step
            with the split's first example; "keep" makes the last step smaller, perhaps empty.
        take: how many examples to read, the first ones in stored order; or ``Part(index, count)``, one of
            several parts of the split. With ratios, the places of an epoch.
        classes: which classes to read, names or numbers; their labels stay what they are. Ratios by class
            resample: an epoch holds each class in exactly its share, up to rounding, and each example of a
            class as often as every other, but for one, over any number of epochs; without ``take`` it has as
            many places as there are examples of these classes.
        select: names of features; the result is then a tuple of them, also for one name.
        image: decodes the features of kind ``image``, or by name some of them; others are encoded bytes.
        start: the position from which on a run is resumed; for the same order it needs the same options, and
            a number of workers that divides the lanes (see ``Shuffle``). A ``Progress``, or a position that
            one gave, knows what these were: lanes and runs are taken from it, and another order is refused.
        lists: how features of shape ``(None,)`` come, lists of any length: "ragged" as a ``tf.RaggedTensor``
            of shape ``(batch_size, None)``; "padded" as a tensor, filled up to the longest list of the batch
            with 0, False or ``b""``.
        one_hot: names of features of integers that come as float32 vectors instead, with 1 at the place of
            the class; a list of classes as one vector with 1 for each of them. Their length is the number of
            class names, or that given by name, as in ``{"label": 10}``. Another number is an error.
        sample_weights: what each example weighs: "balanced" as ``class_weights`` has it, weights by name or
            number of the class, or the name of a feature that holds one number an example.
        map_fn: called in the graph for each example before batches are made, as ``map_fn(example, seed)``: a
            dict of the selected features, images decoded, and an int64 tensor of shape ``(2,)`` for
            ``tf.random.stateless_*``. The seed is a pure function of ``Shuffle``'s seed (0 without), the
            epoch and the example. What it returns, a tensor or dicts and tuples of such, is put into batches.
        static: tensors, or arrays, alone or in dicts and tuples, that ``map_fn(example, seed, static)`` is
            given; the graph holds them once, and no batch has them.
        class_names: the classes that the dataset must have, in the order of their numbers.
        check: "files" compares size, last bytes and index of each shard of the split with the manifest;
            "headers" also the length and the checksum of each record, without reading the data.
        on_damage: "raise" ends the run at a damaged record, with an error that names it; "skip", which needs
            ``remainder="pad"``, reads all of the split before the first step and delivers in the place of
            each damaged record the split's first good one, with weight 0.
        cache: where the split's shards are copied before the first step, each checked by its digest:
            "disk:PATH" a folder on a local disk, where later runs and other processes find them; "memory"
            that of this process, once for all its datasets of the split, until ``clear_cache()``. What is
            copied are the stored bytes, so that order, decoding and augmentation stay what they are.
        memory_budget: the memory that reading, decoding, batches ahead and ``cache="memory"`` may take beside
            TensorFlow and the model, as "2GiB" or in bytes. It decides how far ahead is worked, never the
            order, and is an error where the least does not fit.

    Returns:
        Batches of shape ``(batch_size, *shape)``: a dict by feature name in the schema's order, or the tuple
        ``select``; with ``map_fn`` what that returns. With ``remainder="pad"`` or ``sample_weights`` there is
        one more float32 value of shape ``(batch_size,)``: the dict's ``sample_weight``, or the tuple's last;
        1 or what the example weighs, 0 for padding.

    Raises:
        OptionsError: an option is wrong, or does not fit the others or the dataset.
        InputError: there is no dataset in ``path``, no such split in it, or no room for ``cache``.
        FormatError: the manifest or an index breaks the format, or a shard is not that of the manifest.
    """
    if worker is None:
        warn_of_other_readers()
    request = Request(
        path=path,
        split=split,
        batch_size=batch_size,
        worker=Worker() if worker is None else worker,
        shuffle=shuffle,
        epochs=epochs,
        remainder=remainder,
        take=take,
        classes=classes,
        select=select,
        image=image,
        start=start,
        lists=lists,
        one_hot=one_hot,
        sample_weights=sample_weights,
        map_fn=map_fn,
        static=static,
        class_names=class_names,
        check=check,
        on_damage=on_damage,
        cache=cache,
        memory_budget=memory_budget,
    )
    return _dataset(request)


def _dataset(request: Request) -> tf.data.Dataset:
    source, shuffle, start = source_of(request.path, request.split), request.shuffle, request.begin
    root, manifest, name, taken = source.root, source.manifest, source.name, source.split
    check_class_names(manifest.schema, request.class_names, root)
    is_mapped = request.map_fn is not None
    adds_name = request.adds_weight and request.sample_weights != WEIGHT and not is_mapped
    features = selected_features(manifest.schema, request.select, adds_name)
    images = decoded_images(features, request.image, is_mapped)
    depths = one_hot_depths(manifest.schema, features, taken.label_counts, request.one_hot)
    weights = weighing(manifest, name, request.sample_weights)
    mapped = user_map(request.map_fn, request.static, shuffle.seed if shuffle else 0)
    population = source.population(request.take, request.classes)
    stored = stored_as(manifest, taken)
    check_enterable(stored, population, shuffle)
    check_workers(start.order, request.batch_size, request.worker)
    shuffle = kept_shuffle(shuffle, start.order)
    assignment = assign(
        population.num_places, stored, request.batch_size, request.worker, request.remainder, shuffle
    )
    if start.order is not None or isinstance(request.start, Progress):
        facts = order_facts(manifest.build_id, name, population, assignment, shuffle)
        check_same_order(start.order, facts)
    check_start(start, request.epochs, assignment, shuffle)
    if isinstance(request.start, Progress):
        request.start.load_from_here(facts, assignment.num_steps, request.epochs)
    if assignment.num_steps == 0:
        # the line that called load() is the one to look at
        warnings.warn(no_steps(name, assignment), stacklevel=3)
    shards = open_shards(root, name, manifest, request.check, request.on_damage)
    reading = Reading(
        shards=shards,
        assignment=assignment,
        features=features,
        as_tuple=request.select is not None,
        shuffle=shuffle,
        images=images,
        lists=request.lists,
        one_hot=depths,
        weighing=weights,
        user_map=mapped,
        ahead=Ahead(decoded=DECODED_PER_CPU * num_cpus()),
    )
    # groups go on in each epoch where they stopped in the one before, in stored order too
    differs = shuffle is not None or reading.randomly_worked or isinstance(population, Groups)
    next_each_time = differs and not request.is_one_run

    seed = order_seed(shuffle.seed, manifest.build_id) if shuffle is not None else 0
    # to enter a lane of compressed shards at a random place would be to inflate twice as much
    is_entered = not stored.is_compressed
    order = Order(population.num_places, assignment.run, seed, assignment.lanes, is_entered)
    places = Places(shards, population, order, stored.record_bytes)

    def steps_of(reading: Reading) -> tf.data.Dataset:
        own = replace(places, shards=reading.shards)
        return batches(reading, read_groups(assignment, own, start, request.epochs, next_each_time))

    budget = budget_bytes(request.memory_budget)
    if budget is not None:
        copies = sum(shard.num_bytes for shard in taken.shards) if request.cache == "memory" else 0
        sizes = forecast(root, taken, reading, places, steps_of(reading).element_spec, copies)
        reading = replace(reading, ahead=ahead_within(sizes, budget, reading.ahead))
    if request.cache is not None:
        near = Cache(request.cache, strict=request.on_damage == "raise")
        reading = replace(reading, shards=cached(shards, root, name, taken, near))
    options = tf.data.Options()
    options.deterministic = True
    # Nothing here asks for tuning, whose thread makes the end of each iteration wait for up to seconds.
    options.autotune.enabled = False
    # Nor does anything gain from rewriting the graph, which takes as long as all else up to the first batch,
    # and would write static tensors into it as a second copy.
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    length = _length(assignment, start, request.epochs)
    return (
        steps_of(reading)
        .apply(tf.data.experimental.assert_cardinality(length))
        .prefetch(reading.ahead.batches)
        .with_options(options)
    )


def _length(assignment: Assignment, start: Position, epochs: int | None) -> int:
    if epochs is None and assignment.num_steps:
        return int(tf.data.INFINITE_CARDINALITY)
    return max(0, ((epochs or 1) - start.epoch) * assignment.num_steps - start.step)


def stored_as(manifest: Manifest, split: Split) -> Stored:
    """Return what the files of a split are like."""
    return Stored(
        max(1.0, split.record_bytes / max(1, split.num_examples)),
        len(split.shards),
        is_permuted=not _is_adopted(manifest.options),
        is_compressed=manifest.compression != "none",
    )


def check_enterable(stored: Stored, population: Population, shuffle: Shuffle | None) -> None:
    """Raise if single records of compressed shards would be read, each by inflating all before it.

    Raises:
        OptionsError: so it is.
    """
    is_full = shuffle is not None and shuffle.how == "full"
    if stored.is_compressed and (is_full or not isinstance(population, Ranges)):
        raise OptionsError(
            "records of compressed shards cannot be read one by one, as Shuffle('full'), classes= and Mix "
            "do; `tfshards reshard OUT NEW --compression none` makes shards that can"
        )


def _is_adopted(options: object) -> bool:
    """Return whether a build's options tell, at whatever depth, of files that were written elsewhere."""
    if isinstance(options, Mapping):
        return options.get("source") == "adopt" or any(map(_is_adopted, options.values()))
    return isinstance(options, list) and any(map(_is_adopted, options))
