"""A split of a dataset: its shards, the examples of each class; and the totals of a dataset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Literal

import numpy as np

from tfshards.schemas.digests import NUM_LAST_BYTES, digest_together
from tfshards.schemas.index import FRAME_OVERHEAD, IntArray, index_path, keys_path, labels_path
from tfshards.schemas.json_reader import Fault, Json, JsonRecord, ObjectReader, as_json, matching
from tfshards.schemas.names import shard_path_fault
from tfshards.schemas.schema import Schema


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

    @classmethod
    def read(cls, reader: ObjectReader) -> Totals:
        """Return the totals in ``reader``, and note their problems."""
        reader.only(each.name for each in fields(cls))
        entries, accepted, rejected, skipped = (
            reader.count(name) for name in ("entries", "accepted", "rejected", "skipped")
        )
        together = accepted + rejected + skipped
        if together != entries:
            reader.note("entries", f"is {entries}, but accepted + rejected + skipped is {together}")
        outcomes = reader.object("reasons")
        stated = {"rejected": rejected, "skipped": skipped}
        outcomes.only(stated)
        reasons = {outcome: outcomes.counts(outcome) for outcome in outcomes.value if outcome in stated}
        for outcome, total in stated.items():
            counted = sum(reasons.get(outcome, {}).values())
            if counted != total:
                outcomes.note(outcome, f"adds up to {counted}, but totals.{outcome} is {total}")
        return cls(entries, accepted, rejected, skipped, reasons, reader.counts("conversions"))


digest_fault: Fault = matching(r"sha256:[0-9a-f]{64}", "'sha256:' and 64 lower-case hex digits")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


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

    @property
    def companion_digests(self) -> dict[str, str]:
        """Digests of the other files of the shard, by path: its index, its labels and keys if it has any."""
        labels = {labels_path(self.path): self.labels_digest} if self.labels_digest else {}
        keys = {keys_path(self.path): self.keys_digest} if self.keys_digest else {}
        return {index_path(self.path): self.index_digest, **labels, **keys}

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all files of the shard; the shard itself is the last one."""
        return tuple(self.digests)

    @property
    def digests(self) -> dict[str, str]:
        """Digests of all files of the shard, by path, in the order of ``files``."""
        return {**self.companion_digests, self.path: self.digest}

    @classmethod
    def read(cls, reader: ObjectReader, schema: Schema | None) -> Shard:
        """Return the shard in ``reader``, and note its problems; see ``Split.read``."""
        known = len(reader.problems)
        optional = {
            "labels_digest": partial(_optional_digest_fault, schema=schema, role="label"),
            "keys_digest": partial(_optional_digest_fault, schema=schema, role="key"),
        }
        shard = cls(**reader.values(cls, {**_SHARD_FAULTS, **optional}))
        least = shard.num_examples * FRAME_OVERHEAD
        if len(reader.problems) > known:
            return shard
        if shard.record_bytes < least:
            message = f"is {shard.record_bytes}, but {shard.num_examples} records need at least {least}"
            reader.note("record_bytes", message)
        for name in ("num_bytes", "record_bytes"):
            value = getattr(shard, name)
            if value and not shard.num_examples:
                reader.note(name, f"is {value}, but a shard without examples is empty")
        if shard.num_examples and not shard.num_bytes:
            reader.note("num_bytes", f"is 0, but there are {shard.num_examples} records")
        return shard


_SHARD_FAULTS = {
    "path": shard_path_fault,
    "digest": digest_fault,
    "index_digest": digest_fault,
    "examples_digest": matching(r"[0-9a-f]{16}", "16 lower-case hex digits"),
    # a quick check before reading
    "last_bytes": matching(rf"([0-9a-f]{{2}}){{0,{NUM_LAST_BYTES}}}", f"up to {NUM_LAST_BYTES} bytes in hex"),
}


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
class Split:
    """One split: its shards in order, and the number of examples of each class.

    Attributes:
        shards: shards, in the order in which their examples are numbered.
        label_counts: number of examples by class name, or by class number if the classes have no names, in
            label order; empty if there is no label.
    """

    shards: tuple[Shard, ...]
    label_counts: Mapping[str, int] = field(default_factory=dict)

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

    @classmethod
    def read(cls, reader: ObjectReader, schema: Schema | None) -> Split:
        """Return the split in ``reader``, and note its problems.

        Labels are checked against ``schema``, unless it is None because it has problems of its own.
        """
        reader.only(("num_examples", "label_counts", "shards"))
        split = cls(
            tuple(Shard.read(item, schema) for item in reader.objects("shards")),
            reader.counts("label_counts"),
        )
        if reader.value.get("shards") == []:
            reader.note("shards", "is empty, must hold at least one shard")
        stated = reader.count("num_examples")
        if stated != split.num_examples:
            reader.note("num_examples", f"is {stated}, but the shards hold {split.num_examples}")
        labeled = sum(split.label_counts.values())
        if split.label_counts and labeled != split.num_examples:
            message = f"adds up to {labeled}, but the shards hold {split.num_examples} examples"
            reader.note("label_counts", message)
        if split.label_counts and schema is not None:
            _note_unknown_labels(reader, schema)
        return split


def _note_unknown_labels(reader: ObjectReader, schema: Schema) -> None:
    counts = reader.object("label_counts")
    if schema.label is None:
        reader.note("label_counts", "is not empty, but the schema has no scalar feature of kind 'label'")
    elif schema.class_names:
        for name in sorted(set(counts.value) - set(schema.class_names)):
            counts.note(name, "is not a class of the schema")
    else:
        limits = np.iinfo(schema.label.dtype)
        for name in counts.value:
            if not _INTEGER.fullmatch(name) or not limits.min <= int(name) <= limits.max:
                counts.note(
                    name, f"is not an integer of type {schema.label.dtype}, and the schema has no class names"
                )


_WITHOUT = {
    "label": "is given, but the schema has no scalar feature of kind 'label'",
    "key": "is given, but the schema has no scalar feature 'key' of kind 'bytes'",
}


def _optional_digest_fault(digest: str, schema: Schema | None, role: Literal["label", "key"]) -> str | None:
    """Return what is wrong with the digest of a file that exists only if the schema has such a feature."""
    if schema is None:
        # it is not known whether there is one
        return digest_fault(digest) if digest else None
    if (schema.label if role == "label" else schema.key) is not None:
        return digest_fault(digest)
    return _WITHOUT[role] if digest else None
