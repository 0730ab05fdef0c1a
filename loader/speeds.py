"""``bench``: measure how fast this machine reads a dataset, and find the stage that limits it.

TensorFlow is imported when ``bench`` is called, not with its options.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from tfshards.loader.options.image import Crop, Image
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.options.selection import Shuffle
from tfshards.loader.options.validation import invalid, suggests
from tfshards.loader.reading.source import open_source
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.json_reader import Json

if TYPE_CHECKING:
    import tensorflow as tf

# Of a larger split, the first examples are read again and again, so that they stay in the page cache.
_BYTES = 512 << 20
# Elements that are counted before the graph returns to Python.
_TOGETHER = 16
# Rounds of each measurement, of which the better one counts: other work slows down all stages alike.
_ROUNDS = 2

Limit: TypeAlias = Literal["records", "parsing", "decoding", "Python"]
_ADVICE: Mapping[str, str] = {
    "records": "reading takes the most time: of a bucket or a slow disk, keep the dataset on a local disk by "
    'cache="disk:PATH"; from the page cache little is left to gain',
    "parsing": "parsing takes the most time: deliver only the features that you need with select=, use "
    "larger batches if they are small, and store lists of numbers that have one length as arrays",
    "decoding": "decoding takes the most time: decode to a smaller Image(size=), store smaller images "
    "(tfshards build --resize), or use more cores",
    "Python": "the loop in Python takes the most time: use larger batches, or several steps in one "
    "tf.function (steps_per_execution= in Keras)",
}


@dataclass(frozen=True, repr=False)
class Speeds:
    """Examples per second that this machine reaches up to each stage.

    Attributes:
        split: name of the split.
        batch_size: examples per batch.
        record_bytes: mean bytes of a record.
        records: reading records, of local files from the page cache.
        parsed: also parsing them.
        decoded: also decoding images and calling ``map_fn``; None without both.
        delivered: also iterating over the batches in Python.
    """

    split: str
    batch_size: int
    record_bytes: float
    records: float
    parsed: float
    decoded: float | None
    delivered: float

    @property
    def limit(self) -> Limit:
        """The slowest stage: the time of each is by how much an example takes longer with it than without."""
        last = self.decoded or self.parsed
        times: dict[Limit, float] = {
            "records": 1 / self.records,
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
        rows = [
            f"{name:<10}{rate:>12,.0f} examples/s{rate * self.record_bytes / 1e6:>10,.1f} MB/s"
            for name, rate in self._stages().items()
        ]
        head = f"{self.split}, batches of {self.batch_size}"
        return "\n".join([head, *rows, f"limit: {self.limit}; {self.advice}"])

    def to_json(self) -> dict[str, Json]:
        """Return the figures, the limit and the advice as a JSON object."""
        return {
            "split": self.split,
            "batch_size": self.batch_size,
            "record_bytes": round(self.record_bytes, 1),
            "examples_per_second": {name: round(rate, 1) for name, rate in self._stages().items()},
            "limit": self.limit,
            "advice": self.advice,
        }

    def _stages(self) -> dict[str, float]:
        names = ("records", "parsed", "decoded", "delivered")
        return {name: rate for name in names if (rate := getattr(self, name)) is not None}


@suggests
def bench(
    dataset: str | os.PathLike[str],
    split: str | None = None,
    *,
    batch_size: int = 32,
    select: Sequence[str] | None = None,
    shuffle: int | Shuffle | None = None,
    size: str | None = None,
    crop: Crop | None = None,
    map_fn: Callable[..., object] | None = None,
    cache: str | None = None,
    seconds: float = 2.0,
) -> Speeds:
    """Measure how fast this machine reads a dataset, stage by stage.

    Local files are read from the page cache; of a large split the first 512 MiB are read again and again.

    Args:
        dataset: folder of the dataset, or its URL.
        split: name of the split; by default the only one.
        batch_size: examples per batch.
        select: feature to deliver; by default all.
        shuffle: seed of a random order; by default the stored order.
        size: size of decoded images, as HEIGHTxWIDTH, or "none" to leave them encoded; by default 224x224 if
            there are images.
        crop: how to crop images; by default the whole image is resized.
        map_fn: function of the run, as for "load".
        cache: "disk:PATH", as for "load".
        seconds: time to measure each stage; there are up to four.

    Returns:
        Examples per second up to each stage. Printed, it is the table of ``tfshards bench``.

    Raises:
        OptionsError: an argument is not valid, or does not fit the dataset.
        InputError: there is no dataset, no such split in it, or a damaged record.
        FormatError: the manifest or an index breaks the format, or a shard differs from the manifest.
    """
    if not 0 < seconds <= 600:
        raise invalid("seconds", seconds, "a number above 0, and at most 600")
    options = LoadOptions(
        dataset,
        split,
        batch_size=batch_size,
        select=select,
        map_fn=map_fn,
        shuffle=shuffle if isinstance(shuffle, (Shuffle, type(None))) else Shuffle(shuffle),
        cache=cache,
        epochs=None,
    )
    source = open_source(options)
    has_images = any(feature.is_encoded for feature in source.manifest.schema.features)
    sides = _sides(size or ("224x224" if has_images else "none"))
    if not has_images and sides:
        raise OptionsError(f"size={size!r} is for images, which {dataset} does not have; leave it out")
    if sides is None and crop:
        raise OptionsError(f"crop={crop!r} needs images of a fixed size, such as size=224x224")
    num_bytes, num_examples = source.split.record_bytes, source.split.num_examples
    if batch_size > num_examples:
        raise OptionsError(f"batch_size={batch_size} exceeds the {num_examples} examples of {source.label}")
    if not source.root.is_far and num_bytes > _BYTES:
        take = max(num_examples * _BYTES // num_bytes, min(num_examples, 8 * batch_size))
        options = replace(options, take=take)
    # leaves out what TensorFlow logs about processors and GPUs while it is imported
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    from tfshards.loader.pipeline import load_dataset, make_feed
    from tfshards.loader.tensors.records import read_groups
    from tfshards.loader.tensors.stages import mapped

    def counted(dataset: tf.data.Dataset, count: Callable[..., object]) -> Iterator[int]:
        """Yield numbers of examples, of several elements each, which the graph counts."""
        return (
            int(each.numpy().sum())
            for each in mapped(dataset, count, in_calling_thread=True).batch(_TOGETHER)
        )

    feed, parsed = make_feed(options, source), load_dataset(replace(options, map_fn=None))
    image = None if sides is None else Image(size=sides, crop=crop)
    loaded = load_dataset(replace(options, image=image))
    groups = read_groups(feed, *feed.begin()).prefetch(2)
    stages = {
        "records": counted(groups, lambda *group: tf.size(group[-1])),
        "parsed": counted(parsed, lambda *_: tf.constant(batch_size)),
        "decoded": counted(loaded, lambda *_: tf.constant(batch_size)),
        "delivered": (batch_size for _ in loaded),
    }
    if image is None and map_fn is None:
        del stages["decoded"]
    rates: dict[str, float] = {}
    try:
        for _ in range(_ROUNDS):
            for name, examples in stages.items():
                rates[name] = max(rates.get(name, 0), _rate(examples, seconds / _ROUNDS))
    except tf.errors.InvalidArgumentError:
        text = f"{dataset} has damaged records: `tfshards verify {dataset} --deep` lists them"
        raise InputError(text, code="shard-damaged") from None
    return Speeds(
        source.name,
        batch_size,
        feed.plan.record_bytes,
        rates["records"],
        rates["parsed"],
        rates.get("decoded"),
        rates["delivered"],
    )


def _sides(text: str) -> tuple[int, int] | None:
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()) and text != "none":
        raise OptionsError(f"size={text!r} must be HEIGHTxWIDTH, such as 224x224, or none")
    return None if text == "none" else (int(height), int(width))


def _rate(examples: Iterator[int], seconds: float) -> float:
    """Return the examples per second of an endless iterator, after a quarter of the time to start."""
    for length in (seconds / 4, seconds):
        began, total = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < length:
            total += next(examples)
    return total / elapsed
