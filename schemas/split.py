"""A split of a dataset: its shards, the examples of each class; and the totals of a dataset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tfshards.schemas.digests import DIGEST_PATTERN, NUM_LAST_BYTES, digest_together
from tfshards.schemas.index import IntArray, companion_path
from tfshards.schemas.json_reader import Json, JsonRecord, as_json, shown
from tfshards.schemas.names import shard_path_fault


@dataclass(frozen=True)
class Totals(JsonRecord):
    """How many entries of the source were accepted, rejected and skipped; these add up to ``entries``.

    Attributes:
        entries: number of entries: of a folder everything but directories, of arrays and tables the rows.
        accepted: number of examples in all splits.
        rejected: number of rejected inputs, which is the number of lines in the rejects file.
        skipped: number of entries that are not inputs, such as hidden files.
        reasons: counts by reason, for ``rejected`` and for ``skipped``.
        conversions: number of accepted images by conversion, such as ``orientation applied``.
    """

    entries: int
    accepted: int
    rejected: int = 0
    skipped: int = 0
    reasons: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    conversions: Mapping[str, int] = field(default_factory=dict)

    def fault(self) -> tuple[str, str] | None:
        """Return the number that the others do not add up to, and why; None if they do."""
        together = self.accepted + self.rejected + self.skipped
        if together != self.entries:
            return "entries", f"is {self.entries}, but accepted + rejected + skipped is {together}"
        return None


def digest_fault(digest: str) -> str | None:
    """Return what is wrong with a digest, or None."""
    if re.fullmatch(DIGEST_PATTERN, digest):
        return None
    return f"is {shown(digest)}, must match {DIGEST_PATTERN}"


@dataclass(frozen=True)
class Shard(JsonRecord):
    """One TFRecord file.

    Attributes:
        path: path relative to the dataset's directory, with ``/`` between the parts.
        num_examples: number of records.
        num_bytes: size of the file.
        record_bytes: number of bytes of the frames of all records; the size of the file if it is not
            compressed.
        digest: ``sha256:`` and 64 hex digits: the digest of the file.
        index_digest: digest of the index file, in the same form.
        examples_digest: digest of the records, independent of order (see ``digests.examples_digest``).
        last_bytes: the last 8 bytes of the file in hex, or fewer if it is shorter; a quick check before
            reading.
        labels_digest: digest of the file of labels, in the same form; empty if the schema has no label.
        keys_digest: digest of the file of keys, in the same form; empty if the schema has no key.
        companions: for a file that another program wrote, the path that it would have in the folder of the
            build, where its index, labels and keys are; empty if they are next to the file itself.
    """

    path: str
    num_examples: int
    num_bytes: int
    record_bytes: int
    digest: str
    index_digest: str
    examples_digest: str
    last_bytes: str
    labels_digest: str = ""
    keys_digest: str = ""
    companions: str = ""

    optional: ClassVar[tuple[str, ...]] = ("companions",)

    @property
    def index_path(self) -> str:
        """Path of the index."""
        return companion_path(self.companions or self.path, "idx")

    @property
    def labels_path(self) -> str:
        """Path of the file of labels, which exists if the schema has a label."""
        return companion_path(self.companions or self.path, "labels")

    @property
    def keys_path(self) -> str:
        """Path of the file of keys, which exists if the schema has a key."""
        return companion_path(self.companions or self.path, "keys")

    @property
    def companion_digests(self) -> dict[str, str]:
        """Digests of the other files of the shard, by path: its index, its labels and keys if it has any."""
        labels = {self.labels_path: self.labels_digest} if self.labels_digest else {}
        keys = {self.keys_path: self.keys_digest} if self.keys_digest else {}
        return {self.index_path: self.index_digest, **labels, **keys}

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all files of the shard; the shard itself is the last one."""
        return tuple(self.digests)

    @property
    def digests(self) -> dict[str, str]:
        """Digests of all files of the shard, by path, in the order of ``files``."""
        return {**self.companion_digests, self.path: self.digest}

    def fault(self) -> tuple[str, str] | None:
        """Return the first path or digest that is wrong, and what is wrong with it; None if all are valid."""
        faults = {"path": shard_path_fault(self.path)}
        if self.companions:
            faults["companions"] = shard_path_fault(self.companions)
        given = [name for name in ("labels_digest", "keys_digest") if getattr(self, name)]
        for name in ("digest", "index_digest", *given):
            faults[name] = digest_fault(getattr(self, name))
        for name, least, most in (("examples_digest", 16, 16), ("last_bytes", 0, 2 * NUM_LAST_BYTES)):
            text = getattr(self, name)
            if not re.fullmatch(rf"[0-9a-f]{{{least},{most}}}", text):
                faults[name] = f"is {shown(text)}, must be {most} lower-case hex digits"
        return next(((name, fault) for name, fault in faults.items() if fault), None)


def rows_by_shard(
    shards: Sequence[Shard], numbers: IntArray
) -> Iterator[tuple[int, Shard, IntArray, IntArray]]:
    """Yield each shard that holds some examples: its index, the shard, rows of ``numbers``, and records.

    The numbers are counted through all shards. The records, ``numbers[rows]`` counted in the shard, ascend.
    """
    ends = np.cumsum([shard.num_examples for shard in shards], dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    shard_of = np.searchsorted(ends, numbers[order], side="right")
    starts = np.flatnonzero(np.diff(shard_of, prepend=-1))
    for index, rows in zip(shard_of[starts].tolist(), np.split(order, starts[1:]), strict=False):
        yield index, shards[index], rows, numbers[rows] - (ends[index] - shards[index].num_examples)


@dataclass(frozen=True)
class Split(JsonRecord):
    """One split: its shards in order, and the number of examples of each class.

    Attributes:
        shards: shards, in the order in which their examples are numbered.
        label_counts: number of examples by class name, or by class number if the classes have no names, in
            label order; empty if there is no label.
    """

    shards: tuple[Shard, ...]
    label_counts: Mapping[str, int] = field(default_factory=dict)

    stated: ClassVar[tuple[str, ...]] = ("num_examples",)

    @property
    def num_examples(self) -> int:
        """Number of examples."""
        return sum(shard.num_examples for shard in self.shards)

    @property
    def num_bytes(self) -> int:
        """Total size of the shards in bytes."""
        return sum(shard.num_bytes for shard in self.shards)

    @property
    def record_bytes(self) -> int:
        """Total size of the records in bytes, uncompressed."""
        return sum(shard.record_bytes for shard in self.shards)

    @property
    def examples_digest(self) -> str:
        """Digest of all examples, independent of their order and their distribution over shards."""
        return digest_together(shard.examples_digest for shard in self.shards)

    def to_json(self) -> dict[str, Json]:
        """Return the split as JSON values, as in ``dataset.json``."""
        return {
            "num_examples": self.num_examples,
            "label_counts": as_json(self.label_counts),
            "shards": as_json(self.shards),
        }

    def fault(self) -> tuple[str, str] | None:
        """Return the first field that is wrong, and what is wrong with it; None if both are valid."""
        if not self.shards:
            return "shards", "is empty, must hold at least one shard"
        labeled = sum(self.label_counts.values())
        if self.label_counts and labeled != self.num_examples:
            return "label_counts", f"adds up to {labeled}, but the shards hold {self.num_examples} examples"
        return None
