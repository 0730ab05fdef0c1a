"""``bench``: measure how fast this machine reads a dataset, and find the stage that limits it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import tensorflow as tf

from tfshards.loader.examples.batches import DECODED_PER_CPU, num_cpus
from tfshards.loader.examples.content import Content, make_content
from tfshards.loader.examples.images import decode_image
from tfshards.loader.graph.raw_ops import without_autograph
from tfshards.loader.integrity.damaged import open_shards
from tfshards.loader.options.image import Boxes, Image
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.options.position import Shuffle
from tfshards.loader.options.selection import Mix
from tfshards.loader.order.plan import ReadPlan, make_plan
from tfshards.loader.order.source import OpenSplit, open_source
from tfshards.loader.pipeline import is_numbered, load_dataset
from tfshards.loader.records.record_reader import RecordReader
from tfshards.loader.records.streams import read_groups
from tfshards.loader.speed.speeds import Larger, Resized, Speeds
from tfshards.schemas import OptionsError
from tfshards.schemas.storage import RemotePath
from tfshards.schemas.storage.untrusted import open_regular

_CHUNK_BYTES = 1 << 20
# as many as the streams that the loader reads at the same time
_NUM_THREADS = 2


def cold_bytes_per_second(files: Sequence[tuple[Path, int]], seconds: float) -> float | None:
    """Return the bytes per second of reading the beginnings of files that are not in the page cache.

    Their pages are taken out of the cache first, and are in it afterwards.

    Args:
        seconds: time after which the rest of the bytes is read without counting.

    Returns:
        The speed; None where the system cannot take pages out of the cache.
    """
    if not hasattr(os, "posix_fadvise"):
        return None
    for path, _ in files:
        with open_regular(path) as file:
            # pages that are not on the disk yet stay
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    chunks = [
        (path, offset, min(_CHUNK_BYTES, num_bytes - offset))
        for path, num_bytes in files
        for offset in range(0, num_bytes, _CHUNK_BYTES)
    ]
    began = time.perf_counter()

    def read(chunk: tuple[Path, int, int]) -> tuple[int, float]:
        path, offset, num_bytes = chunk
        with open_regular(path, buffering=0) as file:
            file.seek(offset)
            return len(file.read(num_bytes)), time.perf_counter() - began

    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        done = list(pool.map(read, chunks))
    counted = [each for each in done if each[1] <= seconds] or done
    return sum(num_bytes for num_bytes, _ in counted) / max(each[1] for each in counted)


def rate_in_graph(
    dataset: tf.data.Dataset, examples_of: Callable[[tf.Tensor], tf.Tensor], seconds: float
) -> float:
    """Return the examples per second of an endless dataset, iterated without Python.

    Args:
        seconds: time to measure, after a quarter as long to start.
    """

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def advance(iterator: object, count: tf.Tensor) -> tf.Tensor:
        def step(index: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            element = iterator.get_next()  # type: ignore[attr-defined]
            return index + 1, total + tf.cast(examples_of(element), tf.int64)

        zeros = (tf.zeros([], tf.int64), tf.zeros([], tf.int64))
        return tf.while_loop(lambda index, _: index < count, step, zeros, parallel_iterations=1)[1]

    iterator = iter(dataset)
    advance(iterator, tf.constant(1, tf.int64))
    count = 1
    for length in (seconds / 4, seconds):
        began, total = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < length:
            since = time.perf_counter()
            total += int(advance(iterator, tf.constant(count, tf.int64)))
            # calls of about a tenth of a second, which Python does not slow down
            count = max(1, min(8 * count, int(count * 0.1 / max(time.perf_counter() - since, 1e-6))))
    return total / elapsed


def rate_in_python(dataset: tf.data.Dataset, batch_size: int, seconds: float) -> float:
    """Return the examples per second of an endless dataset of batches in a loop of Python."""
    iterator = iter(dataset)
    for length in (seconds / 4, seconds):
        began, total = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < length:
            next(iterator)
            total += batch_size
    return total / elapsed


def rates_in_turns(measures: Mapping[str, Callable[[float], float]], seconds: float) -> dict[str, float]:
    """Return the better rate of two rounds of each measurement.

    The rounds take turns, so that other work of the machine slows down all of them rather than one.

    Args:
        measures: functions that measure for a number of seconds, and return a rate.
        seconds: time to measure each of them, in both rounds together.
    """
    rounds = [{name: measure(seconds / 2) for name, measure in measures.items()} for _ in range(2)]
    return {name: max(each[name] for each in rounds) for name in measures}


_NUM_IMAGES = 128
# The usual margin for crops: 256 for 224.
_MARGIN, _MULTIPLE, _DEFAULT = 8 / 7, 32, 256
# A smaller copy of images that are hardly larger gains nothing.
_LARGER = 1.1
# As `tfshards build` stores a resized JPEG.
_QUALITY = 95


def speed_of_smaller(
    encoded: tf.data.Dataset, image: Image, batch_size: int, seconds: float
) -> Resized | None:
    """Return how fast images are decoded as they are stored, and stored smaller; None if they are small.

    Args:
        encoded: encoded images of a dataset, scalar strings.
        seconds: time to measure each of both.
    """
    # with the same work, but without random draws
    image = replace(image, crop="center" if image.crop else None, flip=None)
    sample = [each.numpy() for each in encoded.take(_NUM_IMAGES)]
    short = short_side(image)
    channels = image.channels

    def smaller(data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pixels = tf.io.decode_image(data, channels, expand_animations=False)
        sides = tf.cast(tf.shape(pixels)[:2], tf.float32)
        scale = tf.minimum(1.0, short / tf.reduce_min(sides))
        size = tf.cast(tf.maximum(1.0, tf.round(sides * scale)), tf.int32)
        resized = tf.image.resize(pixels, size, "lanczos3", antialias=True)
        resized = tf.saturate_cast(tf.round(resized), tf.uint8)
        stored = tf.cond(
            tf.io.is_jpeg(data),
            lambda: tf.io.encode_jpeg(resized, quality=_QUALITY),
            lambda: tf.io.encode_png(resized),
        )
        return stored, scale

    stored = tf.data.Dataset.from_tensor_slices(sample)
    made = [
        (each.numpy(), float(scale)) for each, scale in stored.map(without_autograph(smaller), num_cpus())
    ]
    if sum(scale for _, scale in made) / len(made) > 1 / _LARGER:
        return None
    resized = [data for data, _ in made]

    def rate(images: list[bytes], seconds: float) -> float:
        decoded = (
            tf.data.Dataset.from_tensor_slices(images)
            .repeat()
            .map(lambda data: decode_image(data, image, {}), DECODED_PER_CPU * num_cpus())
            .batch(batch_size)
            .prefetch(2)
        )
        return rate_in_graph(decoded, lambda batch: tf.shape(batch)[0], seconds)

    measures = {"stored": partial(rate, sample), "resized": partial(rate, resized)}
    rates = rates_in_turns(measures, seconds)
    return Resized(
        option=f"short={short}",
        num_images=len(sample),
        stored=rates["stored"],
        resized=rates["resized"],
        stored_bytes=sum(map(len, sample)) / len(sample),
        resized_bytes=sum(map(len, resized)) / len(resized),
    )


def short_side(image: Image) -> int:
    """Return the short side at which to store images that are decoded to a size, with a margin for crops."""
    if image.size is None:
        return _DEFAULT
    return _MULTIPLE * round(min(image.size) * _MARGIN / _MULTIPLE + 0.499)


# In a larger split, the first examples are read repeatedly, so they stay in the page cache.
_BYTES = 512 << 20
# If a batch has at most a quarter of these examples, larger batches are measured as well.
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
    cache; all other stages read them from the cache. In a large split, the first 512 MiB are read.

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


def _disk_rate(source: OpenSplit, num_examples: int, seconds: float) -> float | None:
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
    encoded: LoadOptions, content: Content, plan: ReadPlan, num_examples: int, seconds: float
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
