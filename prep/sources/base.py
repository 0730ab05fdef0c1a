"""The interface of every source: the listing of its examples, and the reader of their values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from tfshards.prep.records.example import Values
from tfshards.prep.sources.keys import RowKeys, to_bytes, to_text
from tfshards.schemas import Schema
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.reasons import Reason
from tfshards.schemas.storage import AnyPath


class Row(NamedTuple):
    """One example in a plan file, with everything that a worker needs to read it.

    Attributes:
        key: key of the example, unique in its source.
        label: number of the class, or -1.
        size: number of bytes in the source.
        stamp: modification time in nanoseconds since 1970; 0 where the listing's identity covers the content.
    """

    key: str
    label: int
    size: int
    stamp: int


class Columns(NamedTuple):
    """Examples as in ``Row``, by column: a plan has millions of them, too many for an object each."""

    keys: Sequence[str]
    labels: Sequence[int]
    sizes: Sequence[int]
    stamps: Sequence[int]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Columns:
        """Return the columns of these rows."""
        return cls(
            [row.key for row in rows],
            [row.label for row in rows],
            [row.size for row in rows],
            [row.stamp for row in rows],
        )

    def rows(self) -> list[Row]:
        """Return the examples one by one."""
        return list(map(Row._make, zip(*self, strict=True)))


class Accepted(NamedTuple):
    """The values of an example, in the order of the schema, and how its images were converted."""

    values: Sequence[Values]
    conversions: tuple[str, ...] = ()


class Rejected(NamedTuple):
    """Why an input is rejected: a pure function of its bytes and the options."""

    reason: Reason
    detail: str


Outcome: TypeAlias = "Accepted | Rejected"


@dataclass(frozen=True)
class Listing:
    """The examples of a source, sorted by key. The number of an example is its index in this order.

    Attributes:
        schema: schema of the examples.
        keys: unique keys, sorted, without NUL.
        sizes: source bytes of each example, shape ``(num_examples,)`` int64.
        stamps: stamp of each example (see ``Row``), shape ``(num_examples,)`` int64.
        labels: class number of each example, shape ``(num_examples,)`` int64; None without labels.
        splits: example numbers of each split, ascending, if the source has splits; each example is in one.
        skipped: number of skipped entries by reason.
        identity: text that changes with any content that sizes and stamps do not cover.
        warnings: warnings for the user.
        groups: group of each example, if examples may share one, such as rows that name the same image; a
            split by ratios keeps them together unless the user names other groups.
        is_numbered: whether keys are the numbers of the examples in the source, so that the same key may be
            another example in another source.
    """

    schema: Schema
    keys: Sequence[bytes]
    sizes: IntArray
    stamps: IntArray
    labels: IntArray | None = None
    splits: Mapping[str, IntArray] | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)
    identity: str = ""
    warnings: tuple[str, ...] = ()
    groups: Sequence[bytes] | None = None
    is_numbered: bool = False

    @property
    def num_examples(self) -> int:
        """The number of examples."""
        return len(self.keys)

    @property
    def num_entries(self) -> int:
        """The number of examples and skipped entries."""
        return len(self.keys) + sum(self.skipped.values())

    def find(self, key: str) -> int | None:
        """Return the number of the example with this key, as plans store it, or None."""
        wanted = to_bytes(key)
        if isinstance(self.keys, RowKeys):
            number = int(key) if key.isdecimal() else len(self.keys)
        else:
            number = bisect_left(self.keys, wanted)
        return number if number < len(self.keys) and self.keys[number] == wanted else None

    def columns(self, numbers: IntArray) -> Columns:
        """Return what plans hold of these examples."""
        keys = [to_text(self.keys[number]) for number in numbers.tolist()]
        labels = np.full(len(numbers), -1) if self.labels is None else self.labels[numbers]
        return Columns(keys, labels.tolist(), self.sizes[numbers].tolist(), self.stamps[numbers].tolist())

    def rows(self, numbers: IntArray) -> list[Row]:
        """Return the plan rows of these examples."""
        return self.columns(numbers).rows()


class Reader(Protocol):
    """A source whose content is in files, so that workers can read it."""

    def listing(self) -> Listing:
        """Return the listing, without reading pixels."""

    def read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        """Return the values of each row, or why it is rejected, in order.

        Raises:
            InputError: an input cannot be read, is missing, or has changed since it was listed.
        """

    def groups(self, listing: Listing, by: str) -> Sequence[bytes]:
        """Return the group of each example; a split by ratio keeps the examples of a group together.

        Raises:
            OptionsError: this source cannot group by ``by``.
            InputError: an example has no group.
        """

    def options(self) -> dict[str, Json]:
        """Return the options that change the output, for the build id and the manifest."""


class Started(Protocol):
    """Rows whose content is being read."""

    def result(self) -> list[Outcome]:
        """Return what ``Reader.read`` returns, and raise what it raises."""

    def cancel(self) -> None:
        """Read no more; there will be no result."""


@runtime_checkable
class DistantReader(Protocol):
    """A reader of content that may be far away, so that many requests are worth being made at once."""

    @property
    def num_in_flight(self) -> int:
        """The number of requests to make at the same time; 0 if the content is on this machine."""

    def start(self, rows: Sequence[Row], schema: Schema) -> Started:
        """Start to read rows; only if there are requests to make."""


@runtime_checkable
class SpooledSource(Protocol):
    """A source that may be slow to read, or readable only once: its copy outlives a build that was killed.

    ``stage`` uses what an earlier call has left complete in its folder.
    """

    @property
    def spool_id(self) -> str:
        """Eight hex digits that change with whatever makes the copy another one."""


class Source(Protocol):
    """An input as a user describes it."""

    def stage(self, folder: Path, *, preview: bool = False) -> Reader:
        """Return a reader, after copying into ``folder`` what workers cannot read in place.

        Args:
            folder: an empty folder.
            preview: copy no more than listing and grouping need; no rows will be read.
        """

    def location(self) -> AnyPath | None:
        """Return the folder that must not contain the output, or None."""

    def with_class_names(self, names: Sequence[str]) -> Source:
        """Return the source with the class names of the dataset that it is appended to.

        These need not all occur in the source. A source whose class names the user gave keeps them.
        """
