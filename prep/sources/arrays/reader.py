"""Read rows of staged arrays, and list them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tfshards.prep.records.example import Values
from tfshards.prep.sources.arrays.features import (
    feature_of,
    is_class_dtype,
    read_labels,
    splits_of,
    strings,
    unused_label,
    values_of,
    widened,
)
from tfshards.prep.sources.arrays.mapped import MappedArray
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Row
from tfshards.prep.sources.classes import twins
from tfshards.prep.sources.keys import KEY_FEATURE, RowKeys, require_values
from tfshards.schemas import Feature, InputError, Schema
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json


@dataclass(frozen=True)
class ArraysReader:
    """The reader of ``Arrays``, after each array was staged in files that can be mapped.

    Attributes:
        arrays: mapped arrays by feature name.
        lists, class_names, label, split: see ``Arrays``; the names are those of existing arrays.
        is_label_named: whether the user named the array of labels.
        num_rows: number of rows of each split, in order; empty unless the names of the arrays give splits.
    """

    arrays: Mapping[str, MappedArray]
    lists: tuple[str, ...]
    class_names: tuple[str, ...] = ()
    label: str | None = None
    split: str | None = None
    is_label_named: bool = False
    num_rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def stored(self) -> dict[str, MappedArray]:
        """The arrays that are features, by name."""
        return {name: array for name, array in self.arrays.items() if name != self.split}

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        options: dict[str, Json] = {"source": "arrays", "lists": [*sorted(self.lists)]}
        return options if self.split is None else {**options, "split_array": self.split}

    def listing(self) -> Listing:
        """Return the listing; only the labels are read."""
        lengths = {name: array.num_rows for name, array in self.arrays.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InputError("arrays-differ-in-length", listed=listed)
        unknown = sorted(set(self.lists) - set(lengths))
        if unknown:
            raise InputError("list-unknown", unknown=unknown[0], lengths=lengths)
        count = next(iter(lengths.values()))
        if not count:
            raise InputError("arrays-no-rows")
        if KEY_FEATURE.name in lengths:
            raise InputError("array-named-key")
        label = self.arrays.get(self.label or "")
        labels = read_labels(self.label or "", label, self.class_names)
        if labels is None and self.is_label_named:
            shape = self.arrays[self.label or ""].layout.shape[1:]
            per_row = f"; each of its rows has the shape {shape}" if shape else ""
            raise InputError("label-not-classes", label=self.label, per_row=per_row)
        features = [
            feature_of(
                name,
                array.layout,
                as_list=name in self.lists,
                is_label=name == self.label and labels is not None,
            )
            for name, array in self.stored.items()
        ]
        splits = self._splits()
        size = sum(array.layout.row_bytes for array in self.stored.values())
        if not size:
            # for arrays without values, the size of a file does not limit the number of rows
            raise InputError("arrays-no-values")
        return Listing(
            schema=Schema((*features, KEY_FEATURE), labels.class_names if labels else ()),
            keys=RowKeys(count),
            sizes=np.full(count, size, dtype=np.int64),
            stamps=np.full(count, self._stamp()),
            labels=labels.numbers if labels else None,
            splits=splits,
            warnings=(
                *(
                    f"the split {split!r} has no rows; it is left out"
                    for split, n in self.num_rows.items()
                    if not n
                ),
                *(twins(labels.class_names) if labels else unused_label(self.label, label)),
                *twins(splits or (), "splits"),
            ),
            identity=repr([(name, *array.summary) for name, array in self.arrays.items()])
            + (repr(self.num_rows) if self.num_rows else ""),
        )

    def _stamp(self) -> int:
        """Return a number that changes with the modification time of any file, or 0 for copies."""
        identities = ", ".join(filter(None, (array.identity for array in self.arrays.values())))
        digest = hashlib.blake2b(identities.encode("ascii"), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1 if identities else 0

    def _splits(self) -> dict[str, IntArray] | None:
        if self.split is not None:
            return splits_of(self.split, self.arrays[self.split])
        ends = np.cumsum([*self.num_rows.values()])
        splits = {
            split: np.arange(end - count, end, dtype=np.int64)
            for (split, count), end in zip(self.num_rows.items(), ends.tolist(), strict=True)
            if count
        }
        return splits or None

    def read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        """Return the values of each row."""
        numbers = np.array([int(row.key) for row in rows], dtype=np.int64)
        columns = [_values(schema[name], array, rows, numbers) for name, array in self.stored.items()]
        keys = [row.key.encode("ascii") for row in rows]
        return [Accepted(values) for values in zip(*columns, keys, strict=True)]

    def groups(self, listing: Listing, by: str) -> Sequence[bytes]:
        """Return the group of each row: its value in the array of scalars ``by``."""
        scalars = {name: array for name, array in self.arrays.items() if len(array.layout.shape) == 1}
        if by not in scalars:
            raise InputError("group-by-array", by=by, join=", ".join(scalars) or "none")
        layout = scalars[by].layout
        values = widened(scalars[by].whole(), layout)
        if layout.is_text:
            groups = strings(by, values)
        else:
            # -0.0 becomes 0.0, which it equals
            numbers = (
                value + 0 if isinstance(value, (float, complex)) else value for value in values.tolist()
            )
            groups = [str(number).encode() for number in numbers]
        num_missing = groups.count(b"") if layout.is_text else int(np.count_nonzero(values != values))
        require_values(by, num_missing, "array")
        return groups


def _values(feature: Feature, array: MappedArray, rows: Sequence[Row], numbers: IntArray) -> Sequence[Values]:
    if feature.kind == "label" and not is_class_dtype(array.layout):
        # the listing has the numbers of the classes
        array.check_unchanged()
        return [row.label for row in rows]
    return values_of(feature, array.take(numbers), array.layout)
