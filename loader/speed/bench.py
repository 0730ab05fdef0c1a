"""``bench``: measure how fast this machine reads a dataset, and find the stage that limits it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import tensorflow as tf

from tfshards.loader.examples.content import make_content
from tfshards.loader.integrity.damaged import open_shards
from tfshards.loader.options.boxes import Boxes, Keypoints
from tfshards.loader.options.image import Image
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.options.selection import Mix, Shuffle
from tfshards.loader.order.plan import make_plan
from tfshards.loader.pipeline import is_numbered, load_dataset
from tfshards.loader.reading.source import OpenSplit, open_source
from tfshards.loader.records.record_reader import RecordReader, on_graph
from tfshards.loader.records.streams import read_groups
from tfshards.schemas import OptionsError
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import RemotePath
from tfshards.schemas.storage.untrusted import open_regular
from tfshards.schemas.summary import table

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
    """Return the better rate of two rounds of each measurement, of ``seconds`` in both rounds together.

    The rounds take turns, so that other work of the machine slows down all of them rather than one.
    """
    rounds = [{name: measure(seconds / 2) for name, measure in measures.items()} for _ in range(2)]
    return {name: max(each[name] for each in rounds) for name in measures}


# In a larger split, the first examples are read repeatedly, so they stay in the page cache.
_BYTES = 512 << 20


def bench(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    batch_size: int,
    image: Image | Mapping[str, Image] | None = None,
    select: Sequence[str] | None = None,
    shuffle: Shuffle | None = None,
    boxes: Boxes | None = None,
    keypoints: Keypoints | None = None,
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
        keypoints: see ``load``.
        map_fn: see ``load``.
        seconds: time to measure each stage; there are up to five.

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
        keypoints=keypoints,
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
    encoded = replace(options, image=None, boxes=None, keypoints=None, map_fn=None)
    parsed = load_dataset(encoded)

    def of_batch(_: object) -> tf.Tensor:
        return tf.constant(batch_size)

    if is_remote:
        # what is fetched does not depend on what is parsed of it
        smallest = source.manifest.schema.names[-1]
        records = rate_in_graph(load_dataset(replace(encoded, select=(smallest,))), of_batch, seconds)
    else:
        shards, numbered = open_shards(source, options), is_numbered(content, plan.assignment)
        groups = read_groups(RecordReader(shards, on_graph(plan), numbered)).prefetch(2)
        records = rate_in_graph(groups, lambda *group: tf.size(group[-1][-1][0]), seconds)
    loaded = load_dataset(options)
    stages: dict[str, Callable[[float], float]] = {
        "parsed": lambda seconds: rate_in_graph(parsed, of_batch, seconds),
        "delivered": lambda seconds: rate_in_python(loaded, batch_size, seconds),
    }
    if content.by_example:
        stages["decoded"] = lambda seconds: rate_in_graph(loaded, of_batch, seconds)
    rates = rates_in_turns(stages, seconds)
    return Speeds(
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
    )


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


Limit: TypeAlias = Literal["disk", "store", "records", "parsing", "decoding", "Python"]

_MB = 1_000_000
_ADVICE: Mapping[str, str] = {
    "disk": "examples are read faster from memory than from this disk: put the dataset on a faster disk, or "
    'cache="disk:PATH" on one; if the dataset fits in memory, only the first epoch waits for the disk',
    "store": 'keep what is fetched on a local disk with cache="disk:PATH", and run close to the store',
    "records": "reading records from the page cache takes the most time: little is left to gain, unless the "
    "shards are compressed, which `tfshards reshard --compression none` changes",
    "parsing": "parsing takes the most time: deliver only the features that you need with select=, use "
    "larger batches if they are small, and store lists of numbers that have one length as arrays",
    "decoding": "decoding takes the most time: decode to a smaller Image(size=), store smaller images "
    "(tfshards build --resize), or use more cores",
    "Python": "the loop in Python takes the most time: use larger batches, or several steps in one "
    "tf.function (steps_per_execution= in Keras)",
}


@dataclass(frozen=True, repr=False)
class Speeds:
    """Examples per second that this machine reaches up to each stage; None where it was not measured.

    Attributes:
        dataset: path of the dataset.
        split: name of the split.
        batch_size: examples per batch.
        record_bytes: mean bytes of a record.
        num_examples: number of examples that were read again and again.
        is_remote: whether the dataset is in an object store.
        disk: reading the files, without the page cache.
        records: reading records: from the page cache, or from the store.
        parsed: also parsing them.
        decoded: also decoding images and calling ``map_fn``.
        delivered: also iterating over the batches in Python.
    """

    dataset: str
    split: str
    batch_size: int
    record_bytes: float
    num_examples: int
    is_remote: bool
    disk: float | None
    records: float
    parsed: float
    decoded: float | None
    delivered: float

    @property
    def limit(self) -> Limit:
        """The slowest stage, or the disk if it is slower than all stages together.

        The time of a stage is by how much an example takes longer with it than without it.
        """
        if self.disk is not None and self.disk < self.delivered:
            return "disk"
        last = self.decoded or self.parsed
        times: dict[Limit, float] = {
            "store" if self.is_remote else "records": 1 / self.records,
            "parsing": 1 / self.parsed - 1 / self.records,
            "decoding": 1 / last - 1 / self.parsed,
            "Python": 1 / self.delivered - 1 / last,
        }
        return max(times, key=lambda name: times[name])

    @property
    def advice(self) -> str:
        """What to change about the limit."""
        return _ADVICE[self.limit]

    def __repr__(self) -> str:
        """Return the table that ``tfshards bench`` prints."""
        head = (f"{self.split}, batch {self.batch_size}", "examples/s", "MB/s of records")
        return "\n".join([*table([head, *self._rows()]), f"limit: {self.limit}; {self.advice}"])

    def to_json(self) -> dict[str, Json]:
        """Return the figures, the limit and the advice as a JSON object."""
        stages = self._stages()
        return {
            "dataset": self.dataset,
            "split": self.split,
            "batch_size": self.batch_size,
            "record_bytes": round(self.record_bytes, 1),
            "num_examples": self.num_examples,
            "examples_per_second": {name: round(rate, 1) for name, rate in stages.items()},
            "bytes_per_second": {name: round(rate * self.record_bytes) for name, rate in stages.items()},
            "limit": self.limit,
            "advice": self.advice,
        }

    def _stages(self) -> dict[str, float]:
        named = {
            "disk": self.disk,
            "store" if self.is_remote else "records": self.records,
            "parsed": self.parsed,
            "decoded": self.decoded,
            "delivered": self.delivered,
        }
        return {name: rate for name, rate in named.items() if rate is not None}

    def _rows(self) -> list[tuple[str, ...]]:
        names = {
            "disk": "read from the disk",
            "records": "records, in the page cache",
            "store": "records, from the store",
            "delivered": "delivered to Python",
        }
        return [
            (names.get(name, name), f"{rate:,.0f}", f"{rate * self.record_bytes / _MB:,.1f}")
            for name, rate in self._stages().items()
        ]
