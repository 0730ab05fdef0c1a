"""``Speeds``: measured speeds of the stages of reading, which of them is the limit, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from tfshards.schemas.json_reader import Json
from tfshards.schemas.summary import table

Limit: TypeAlias = Literal["disk", "store", "records", "parsing", "decoding", "Python"]

_MB = 1_000_000
# Figures of stages that contradict each other by less are not mentioned.
_NOISE = 0.02
_ADVICE: Mapping[str, str] = {
    "disk": "examples are read faster from memory than from this disk: put the dataset on a faster disk, or "
    'cache="disk:PATH" on one; if the dataset fits in memory, only the first epoch waits for the disk',
    "store": 'keep what is fetched on a local disk with cache="disk:PATH", and run close to the store',
    "records": "reading records from the page cache takes the most time: little is left to gain, unless the "
    "shards are compressed, which `tfshards reshard --compression none` changes",
    "parsing": "parsing takes the most time: deliver only the features that you need with select=, use "
    "larger batches if they are small, and store lists of numbers that have one length as arrays",
    "decoding": "decoding takes the most time: decode to a smaller Image(size=), store smaller images "
    "(tfshards build --resize), let the JPEG decoder shrink them with Image(dct_scaling=True), or use more "
    "cores",
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
        lines = [*table([self._head(), *self._rows()]), *self._lines()]
        return "\n".join(lines)

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
        lines = [f"limit: {self.limit}; {self.advice}"]
        rates = [rate for rate in (self.records, self.parsed, self.decoded, self.delivered) if rate]
        noise = max(after / before for before, after in pairwise(rates)) - 1
        if noise >= _NOISE:
            lines.insert(
                0,
                f"a stage appears up to {noise:.0%} faster than the one before it, which it includes: "
                "figures that differ by less are within the noise of this machine",
            )
        return lines
