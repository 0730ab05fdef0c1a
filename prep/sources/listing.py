"""What every source gives: a listing of its examples, and a way to read some of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, overload

import numpy as np

from tfshards.prep.example import Values
from tfshards.prep.plan import IntArray
from tfshards.schemas import Schema
from tfshards.schemas.reading import Json


class Row(NamedTuple):
    """One example in a plan file: all that a worker needs to read it.

    Attributes:
        key: names the example in its source.
        label: its class's number, or -1.
        size: bytes in the source.
        stamp: modification time in nanoseconds since 1970; 0 where the listing's identity covers the content.
    """

    key: str
    label: int
    size: int
    stamp: int


class Accepted(NamedTuple):
    """The values of an example, in the schema's order, and what was done to its images (see ``images``)."""

    values: Sequence[Values]
    conversions: tuple[str, ...] = ()


class Rejected(NamedTuple):
    """Why an input cannot be an example; a pure function of its bytes and the options."""

    reason: str
    detail: str


Outcome: TypeAlias = "Accepted | Rejected"


@dataclass(frozen=True)
class Listing:
    """The examples of a source, sorted by key. An example's number is its place here.

    Attributes:
        schema: what each example holds.
        keys: unique, sorted, without NUL.
        sizes: shape ``(num_examples,)`` int64, source bytes of each.
        stamps: shape ``(num_examples,)`` int64, see ``Row``.
        labels: shape ``(num_examples,)`` int64, or None where there are no labels.
        splits: the example numbers of each split, ascending, if the source itself has splits.
        skipped: how many entries are no input, by reason.
        identity: says what the content is where sizes and stamps do not.
        warnings: for the person who runs the build.
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

    @property
    def num_examples(self) -> int:
        """The number of examples."""
        return len(self.keys)

    @property
    def num_entries(self) -> int:
        """The number of examples and of skipped entries."""
        return len(self.keys) + sum(self.skipped.values())

    def find(self, key: str) -> int | None:
        """Return the number of the example with this key, as it stands in a plan, or None."""
        wanted = to_bytes(key)
        if isinstance(self.keys, RowKeys):
            number = int(key) if key.isdecimal() else len(self.keys)
        else:
            number = bisect_left(self.keys, wanted)
        return number if number < len(self.keys) and self.keys[number] == wanted else None

    def rows(self, numbers: IntArray) -> list[Row]:
        """Return the plan rows of these examples."""
        keys = [to_text(self.keys[number]) for number in numbers.tolist()]
        labels = np.full(len(numbers), -1) if self.labels is None else self.labels[numbers]
        columns = (keys, labels.tolist(), self.sizes[numbers].tolist(), self.stamps[numbers].tolist())
        return list(map(Row._make, zip(*columns, strict=True)))


def to_text(name: bytes) -> str:
    """Return a file's name as it stands in plans and manifests, whatever the locale's encoding is."""
    return name.decode("utf-8", "surrogateescape")


def to_bytes(name: str) -> bytes:
    """Return the bytes of a name in a plan or manifest, as the file system has them."""
    return name.encode("utf-8", "surrogateescape")


class Reader(Protocol):
    """A source whose content is in files, so that workers can read it."""

    def listing(self) -> Listing:
        """Return the listing; cheap: no pixels are read."""

    def read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        """Return what becomes of each row, in order.

        Raises:
            InputError: an input cannot be read, is gone, or is not what was listed.
        """

    def groups(self, listing: Listing, by: str) -> Sequence[bytes]:
        """Return each example's group; examples of one group never part in a split by ratio.

        Raises:
            OptionsError: ``by`` is nothing that this source can group by.
            InputError: an example has no group.
        """

    def options(self) -> dict[str, Json]:
        """Return the options that change the output, for the build id and the manifest."""


class Source(Protocol):
    """One kind of input, as a user names it. A file in this folder each."""

    def stage(self, folder: Path, *, preview: bool = False) -> Reader:
        """Return a reader, after copying into ``folder`` what workers could not read where it is.

        Args:
            folder: exists and is empty.
            preview: copy no more than listing and grouping need; nothing will be read.
        """

    def location(self) -> Path | None:
        """Return the folder that the output must not lie in, or None."""


class RowKeys(Sequence[bytes]):
    """The keys of arrays: the row numbers as decimal digits, made when asked for."""

    def __init__(self, count: int) -> None:
        self._range = range(count)

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [b"%d" % number for number in self._range[index]]
        return b"%d" % self._range[index]
