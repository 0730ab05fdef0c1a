"""The interface of every source: the listing of its examples, and the reader of their values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import numpy as np

from tfshards.prep.imaging.reasons import Reason
from tfshards.prep.records.example import Values
from tfshards.prep.sources.classes import ClassNames
from tfshards.prep.sources.keys import find_key, to_bytes, to_text
from tfshards.schemas import Schema
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
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


# The values of each field of rows: a plan has millions of them, too many for an object each.
RowFields: TypeAlias = "Sequence[Sequence[str] | Sequence[int]]"
# What a thread reads at a time: about this many bytes, and at most this many rows.
_PIECE_BYTES, _PIECE_ROWS = 1 << 20, 512


def pieces_of(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield consecutive rows in pieces, so that memory does not depend on the number of rows.

    A row that reaches the limit of bytes ends its piece.
    """
    ends = np.cumsum(np.fromiter((row.size for row in rows), np.int64, len(rows)))
    start = 0
    while start < len(rows):
        filled = ends[start - 1] if start else 0
        full = int(np.searchsorted(ends, filled + _PIECE_BYTES)) + 1
        yield rows[start : (start := min(full, start + _PIECE_ROWS))]


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
        groups: group of each example, if ``stage`` was called with ``group_by``; a split by ratio keeps the
            examples of a group together.
        shared: the ``group_by`` that a split by ratio needs, because several examples name the same file;
            None if no two do.
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
    shared: str | None = None
    is_numbered: bool = False

    @property
    def num_examples(self) -> int:
        """The number of examples."""
        return len(self.keys)

    def find(self, key: str) -> int | None:
        """Return the number of the example with this key, as plans store it, or None."""
        return find_key(self.keys, to_bytes(key))

    def fields_of(self, numbers: IntArray) -> RowFields:
        """Return what plans hold of these examples."""
        keys = [to_text(self.keys[number]) for number in numbers.tolist()]
        labels = np.full(len(numbers), -1) if self.labels is None else self.labels[numbers]
        return keys, labels.tolist(), self.sizes[numbers].tolist(), self.stamps[numbers].tolist()


class Reader(Protocol):
    """A source whose content is in files, so that workers can read it; a reader can be pickled."""

    def listing(self) -> Listing:
        """Return the listing, without reading pixels."""

    def read(self, rows: Sequence[Row], schema: Schema) -> Iterator[Outcome]:
        """Yield the values of each row, or why it is rejected, in order.

        There may be any number of rows: memory does not depend on it. What is far away is requested before it
        is needed, see ``storage.in_flight``.

        Raises:
            InputError: an input cannot be read, is missing, or has changed since it was listed.
        """

    def options(self) -> dict[str, Json]:
        """Return the options that change the output, for the build id and the manifest."""


class Source(ABC):
    """An input as a user describes it: a dataclass, whose fields include the class names."""

    class_names: ClassNames

    @abstractmethod
    def stage(self, folder: Path | None, *, group_by: str | None = None) -> Reader:
        """Return a reader, after copying into ``folder`` what workers cannot read in place.

        Args:
            folder: a folder that is empty, except for the record of tfshards; None to write nothing, if only
                the listing and the options will be asked for.
            group_by: what the listing groups examples by; None for no groups.

        Raises:
            OptionsError: this source cannot group by ``group_by``.
            InputError: the source cannot be read, or an example has no group.
        """

    def location(self) -> AnyPath | None:
        """Return the folder that must not contain the output, or None."""
        return None

    def with_class_names(self, names: Sequence[str]) -> Source:
        """Return the source with the class names of the dataset that it is appended to.

        These need not all occur in the source. A source whose class names the user gave keeps them.
        """
        return self if self.class_names is not None else replace(cast("Any", self), class_names=names)
