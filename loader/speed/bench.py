"""``bench``: measure how fast this machine reads a dataset, and find the stage that limits it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import tensorflow as tf

from tfshards.loader.examples.content import Content, make_content
from tfshards.loader.integrity.open import open_shards
from tfshards.loader.options.boxes import Boxes
from tfshards.loader.options.image import Image
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.options.selection import Mix
from tfshards.loader.options.shuffle import Shuffle
from tfshards.loader.order.plan import Plan, make_plan
from tfshards.loader.order.source import Source, open_source
from tfshards.loader.pipeline import is_numbered, load_dataset
from tfshards.loader.records.record_reader import RecordReader
from tfshards.loader.records.streams import read_groups
from tfshards.loader.speed.disk import cold_bytes_per_second
from tfshards.loader.speed.rate import rate_in_graph, rate_in_python, rates_in_turns
from tfshards.loader.speed.resized import speed_of_smaller
from tfshards.loader.speed.speeds import Larger, Resized, Speeds
from tfshards.schemas import OptionsError
from tfshards.schemas.storage import RemotePath

# Of a larger split, the first examples are read again and again, so that they stay in the page cache.
_BYTES = 512 << 20
# Of batches with a quarter of these examples or fewer, larger ones are measured as well.
_LARGE_BATCH = 256


def bench(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    batch_size: int,
    image: Image | Mapping[str, Image] | None = None,
    select: Sequence[str] | None = None,
    shuffle: Shuffle | None = None,
    boxes: Boxes | None = None,
    map_fn: Callable[..., object] | None = None,
    seconds: float = 2.0,
) -> Speeds:
    """Measure how fast this machine reads a dataset, stage by stage.

    The files of a local dataset are first read from the disk, after their pages are taken out of the page
    cache; all other stages read them from the cache. Of a large split, the first 512 MiB are read.

    Args:
        path: the directory or URL of the dataset.
        split: its name; may be left out if there is only one.
        batch_size: as for ``load``, like the arguments below.
        image: see ``load``; without it, images stay encoded.
        select: see ``load``.
        shuffle: see ``load``.
        boxes: see ``load``.
        map_fn: see ``load``.
        seconds: time to measure each stage; there are up to eight.

    Returns:
        Examples per second up to each stage. Printed, it is the table of ``tfshards bench``.

    Raises:
        OptionsError: an argument is not valid, or does not fit the dataset.
        InputError: there is no dataset in ``path``, or no such split in it.
        FormatError: the manifest or an index breaks the format, or a shard differs from the manifest.
    """
    if isinstance(path, Mix):
        raise OptionsError("bench-path", path=path)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= 600:
        raise OptionsError("bench-seconds", seconds=seconds)
    options = LoadOptions(
        path=path,
        split=split,
        batch_size=batch_size,
        image=image,
        select=select,
        shuffle=shuffle,
        boxes=boxes,
        map_fn=map_fn,
        epochs=None,
    )
    source = open_source(options)
    num_bytes, num_examples = source.split.record_bytes, source.split.num_examples
    is_remote = isinstance(source.root, RemotePath)
    if not is_remote and num_bytes > _BYTES:
        take = max(num_examples * _BYTES // num_bytes, min(num_examples, 8 * batch_size))
        options, num_examples = replace(options, take=take), take
    content, plan = make_content(options, source), make_plan(options, source)
    if plan.assignment.num_steps == 0:
        raise OptionsError(
            "bench-batch-size", batch_size=batch_size, num_examples=num_examples, label=source.label
        )
    disk = None if is_remote else _disk_rate(source, num_examples, seconds)
    encoded = replace(options, image=None, boxes=None, map_fn=None)
    parsed = load_dataset(encoded)

    def of_batch(_: object) -> tf.Tensor:
        return tf.constant(batch_size)

    if is_remote:
        # what is fetched does not depend on what is parsed of it
        smallest = source.manifest.schema.names[-1]
        records = rate_in_graph(load_dataset(replace(encoded, select=(smallest,))), of_batch, seconds)
    else:
        shards, numbered = open_shards(source, options), is_numbered(content, plan.assignment)
        reader = RecordReader(shards, plan.population, plan.order, plan.record_bytes, numbered)
        groups = read_groups(plan, reader).prefetch(2)
        records = rate_in_graph(groups, lambda *group: tf.size(group[-1][-1][0]), seconds)
    is_decoded = content.by_example
    loaded = load_dataset(options)
    stages: dict[str, Callable[[float], float]] = {
        "parsed": lambda seconds: rate_in_graph(parsed, of_batch, seconds),
        "delivered": lambda seconds: rate_in_python(loaded, batch_size, seconds),
    }
    if is_decoded:
        stages["decoded"] = lambda seconds: rate_in_graph(loaded, of_batch, seconds)
    rates = rates_in_turns(stages, seconds)
    speeds = Speeds(
        dataset=str(path),
        split=source.name,
        batch_size=batch_size,
        record_bytes=plan.record_bytes,
        num_examples=num_examples,
        is_remote=is_remote,
        disk=disk,
        records=records,
        parsed=rates["parsed"],
        decoded=rates.get("decoded"),
        delivered=rates["delivered"],
        resized=_resized(encoded, content, plan, num_examples, seconds),
    )
    return replace(speeds, larger=_larger(options, speeds, seconds))


def _disk_rate(source: Source, num_examples: int, seconds: float) -> float | None:
    """Return the examples per second of reading the shards of the first examples from the disk."""
    files: list[tuple[Path, int]] = []
    left, counted = num_examples, 0
    for shard in source.split.shards:
        if left > 0:
            taken = min(left, shard.num_examples)
            files.append((Path(str(source.root)) / shard.path, shard.num_bytes * taken // shard.num_examples))
            left, counted = left - taken, counted + taken
    speed = cold_bytes_per_second(files, seconds)
    return None if speed is None else speed * counted / sum(num_bytes for _, num_bytes in files)


def _larger(options: LoadOptions, speeds: Speeds, seconds: float) -> Larger | None:
    """Return the speed in larger batches; None unless they are small, and their number may be the limit."""
    larger = min(_LARGE_BATCH, speeds.num_examples)
    if speeds.limit not in ("parsing", "Python") or larger < 4 * speeds.batch_size:
        return None
    loaded = load_dataset(replace(options, batch_size=larger))
    return Larger(larger, rate_in_python(loaded, larger, seconds))


def _resized(
    encoded: LoadOptions, content: Content, plan: Plan, num_examples: int, seconds: float
) -> Resized | None:
    """Return what smaller images would bring; None unless one image of 8 bits is decoded."""
    kinds = {feature.name: feature for feature in content.features if feature.name in content.images}
    if len(kinds) != 1:
        return None
    ((name, feature),) = kinds.items()
    if feature.kind != "image" or feature.dtype != "uint8" or plan.num_steps == 0:
        return None
    images = load_dataset(replace(encoded, select=(name,))).map(lambda *batch: batch[0]).unbatch()
    # the dataset repeats them without end
    images = images.take(num_examples)
    return speed_of_smaller(images, content.images[name], encoded.batch_size, seconds)
