"""``Speeds``: measured speeds of the stages of reading, which of them is the limit, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from tfshards.schemas.json_reader import Json
from tfshards.schemas.sizes import size
from tfshards.schemas.summary import table

Limit: TypeAlias = Literal["disk", "store", "records", "parsing", "decoding", "Python"]

_MB = 1_000_000
# Larger batches are advised if they deliver more examples by this factor at least.
_WORTH = 1.5
# Smaller images are advised if they are decoded faster by this factor at least.
_WORTH_RESIZING = 1.2
# Figures of stages that contradict each other by less are not mentioned.
_NOISE = 0.02
_ADVICE: Mapping[str, str] = {
    "disk": "examples are read faster from memory than from this disk: put the dataset on a faster disk, or "
    'cache="disk:PATH" on one; if the dataset fits in memory, only the first epoch waits for the disk',
    "store": 'keep what is fetched on a local disk with cache="disk:PATH", and run close to the store',
    "records": "reading records from the page cache takes the most time: little is left to gain, unless the "
    "shards are compressed, which `tfshards reshard --compression none` changes",
    "parsing": "parsing takes the most time: deliver only the features that you need with select=, and store "
    "lists of numbers that have one length as arrays",
    "decoding": "decoding takes the most time: decode to a smaller Image(size=), let the JPEG decoder shrink "
    "images with Image(dct_scaling=True), or use more cores",
    "Python": "the loop in Python takes the most time: use larger batches, or several steps in one "
    "tf.function (steps_per_execution= in Keras)",
}


@dataclass(frozen=True)
class Resized:
    """Decoding of a sample as it is stored, and of the same images stored smaller.

    Attributes:
        option: the option of ``tfshards build`` that stores them like this, such as ``short=256``.
        num_images: number of images in the sample.
        stored: decoded images per second as they are stored.
        resized: decoded images per second if they are stored smaller.
        stored_bytes: mean bytes of an image as it is stored.
        resized_bytes: mean bytes of a smaller image.
    """

    option: str
    num_images: int
    stored: float
    resized: float
    stored_bytes: float
    resized_bytes: float

    @property
    def gain(self) -> float:
        """How many times as fast smaller images are decoded."""
        return self.resized / self.stored


@dataclass(frozen=True)
class Larger:
    """Reading in larger batches, with the same options.

    Attributes:
        batch_size: examples per batch.
        delivered: examples per second in a loop of Python.
    """

    batch_size: int
    delivered: float


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
        resized: what smaller images would bring; None if they are small, or none are decoded.
        larger: what larger batches bring; None unless batches are small and parsing or Python is the limit.
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
    resized: Resized | None = None
    larger: Larger | None = None

    @property
    def limit(self) -> Limit:
        """The stage that limits the speed."""
        return limit_of(
            disk=self.disk,
            records=self.records,
            parsed=self.parsed,
            decoded=self.decoded,
            delivered=self.delivered,
            is_remote=self.is_remote,
        )

    @property
    def advice(self) -> str:
        """What to change about the limit."""
        larger = self.larger
        if larger and larger.delivered >= _WORTH * self.delivered:
            costs = "what each batch costs takes the most time: use larger ones"
            advice = _ADVICE["Python"] if self.limit == "Python" else costs
            return (
                f"{advice}; in batches of {larger.batch_size}, "
                f"{larger.delivered / self.delivered:.1f} times as many examples are delivered "
                f"({self.delivered:,.0f} -> {larger.delivered:,.0f} examples/s)"
            )
        advice = _ADVICE[self.limit]
        if self.limit == "decoding" and self.resized and self.resized.gain >= _WORTH_RESIZING:
            advice += f"; or store smaller images (tfshards build --resize {self.resized.option})"
        return advice

    def __repr__(self) -> str:
        """Return the table that ``tfshards bench`` prints."""
        lines = [*table([self._head(), *self._rows()]), *self._lines()]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Json]:
        """Return the figures, the limit and the advice as a JSON object."""
        found: dict[str, Json] = {
            "dataset": self.dataset,
            "split": self.split,
            "batch_size": self.batch_size,
            "record_bytes": round(self.record_bytes, 1),
            "num_examples": self.num_examples,
            "examples_per_second": {name: round(rate, 1) for name, rate in self._stages().items()},
            "bytes_per_second": {
                name: round(rate * self.record_bytes) for name, rate in self._stages().items()
            },
            "limit": self.limit,
            "advice": self.advice,
        }
        if self.larger:
            found["larger_batches"] = {
                "batch_size": self.larger.batch_size,
                "examples_per_second": round(self.larger.delivered, 1),
            }
        if self.resized:
            found["resized"] = {
                "option": self.resized.option,
                "num_images": self.resized.num_images,
                "stored_images_per_second": round(self.resized.stored, 1),
                "resized_images_per_second": round(self.resized.resized, 1),
                "stored_bytes": round(self.resized.stored_bytes),
                "resized_bytes": round(self.resized.resized_bytes),
            }
        return found

    def _stages(self) -> dict[str, float]:
        named = {
            "disk": self.disk,
            "store" if self.is_remote else "records": self.records,
            "parsed": self.parsed,
            "decoded": self.decoded,
            "delivered": self.delivered,
        }
        return {name: rate for name, rate in named.items() if rate is not None}

    def _head(self) -> Sequence[str]:
        return (f"{self.split}, batch {self.batch_size}", "examples/s", "MB/s of records")

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

    def _lines(self) -> list[str]:
        lines = []
        rates = [rate for rate in (self.records, self.parsed, self.decoded, self.delivered) if rate]
        noise = max(after / before for before, after in pairwise(rates)) - 1
        if noise >= _NOISE:
            lines.append(
                f"a stage appears up to {noise:.0%} faster than the one before it, which it includes: "
                "figures that differ by less are within the noise of this machine"
            )
        lines.append(f"limit: {self.limit}; {self.advice}")
        found = self.resized
        if found:
            gain = found.gain
            faster = f"{gain:.1f} times as fast" if gain >= _WORTH_RESIZING else "hardly faster"
            lines.append(
                f"with --resize {found.option} at build time, images would be decoded {faster} "
                f"({found.stored:,.0f} -> {found.resized:,.0f} images/s) and have "
                f"{size(found.resized_bytes)} instead of {size(found.stored_bytes)}: measured apart "
                f"from the table, on {found.num_images} images in memory, without random crops and flips"
            )
        return lines


def limit_of(
    *,
    disk: float | None,
    records: float,
    parsed: float,
    decoded: float | None,
    delivered: float,
    is_remote: bool = False,
) -> Limit:
    """Return the slowest stage, or the disk if it is slower than all stages together.

    The time of a stage is by how much an example takes longer with it than without it.
    """
    if disk is not None and disk < delivered:
        return "disk"
    last = parsed if decoded is None else decoded
    times: dict[Limit, float] = {
        "store" if is_remote else "records": 1 / records,
        "parsing": 1 / parsed - 1 / records,
        "decoding": 0.0 if decoded is None else 1 / decoded - 1 / parsed,
        "Python": 1 / delivered - 1 / last,
    }
    return max(times, key=lambda name: times[name])
