"""Arrays whose first axis counts the examples; each array, or field of a structured array, is a feature."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tfshards.prep.records.example import Values
from tfshards.prep.sources.arrays.arguments import open_arguments
from tfshards.prep.sources.arrays.features import (
    feature_of,
    is_class_dtype,
    is_text,
    row_bytes,
    strings,
    values_of,
    widened,
)
from tfshards.prep.sources.arrays.files import (
    Chunk,
    GivenArray,
    bytes_to_copy,
    fields_of,
    stage_array,
    stage_chunks,
    two_features,
)
from tfshards.prep.sources.arrays.labels import read_labels, usual_label
from tfshards.prep.sources.arrays.mapped import AnyArray, MappedArray, whole
from tfshards.prep.sources.arrays.split_names import join_splits
from tfshards.prep.sources.arrays.splits import is_split_array, splits_of
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Row
from tfshards.prep.sources.classes import check_class_names
from tfshards.prep.sources.groups import require_values
from tfshards.prep.sources.keys import KEY_FEATURE, RowKeys
from tfshards.schemas import Feature, InputError, OptionsError, Schema
from tfshards.schemas.argument_types import check_strings
from tfshards.schemas.files import require_space
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json


@dataclass(frozen=True)
class Arrays:
    """Arrays of equal length; the key of an example is its row number.

    If every name is that of an array of a split, such as ``x_train`` or ``test_labels`` of two or more
    splits or ``train:image``, the arrays are splits of the features ``x``, ``labels`` or ``image``. Rows are
    then numbered through the splits in their usual order: train, val, test.

    Integer scalars are stored as int64 lists, strings as byte strings, and other values as raw little-endian
    bytes. The array of labels holds classes if it consists of integer or boolean scalars (at most 10,000
    different ones, none negative), or of strings, which are then the class names.

    Attributes:
        arrays: a dict by feature name of NumPy arrays, paths of .npy files, or lists of paths of files whose
            arrays are concatenated; axis 0 counts the examples, and the fields of a structured array become
            features ``NAME/FIELD``. Or a structured array, whose fields are the features. Or an iterable of
            such dicts or structured arrays, which are concatenated along axis 0; it is read once, so that a
            generator can supply arrays larger than memory.
        lists: names of the features to store as int64 or float lists.
        class_names: class names in label order; the array of labels must hold the names or their numbers.
            A class may have no examples.
        label: name of the array of labels, or of that of one split; by default ``label``, ``labels`` or
            ``y``, the first that exists, also in capitals; ``""`` for none.
        split: name of the array that names the split of each example, as text or an integer, and is not
            stored; by default ``split``, if it exists and holds such values; ``""`` for none.

    Raises:
        OptionsError: there are no arrays, or the class names are empty or repeated.
    """

    arrays: Mapping[str, GivenArray] | AnyArray | Iterable[Chunk]
    lists: tuple[str, ...] = ()
    class_names: Sequence[str] | None = None
    label: str | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.arrays, np.ndarray):
            if not self.arrays.dtype.names:
                raise OptionsError(
                    "arrays= is an array without fields, which has no name; give {'NAME': array}"
                )
        elif isinstance(self.arrays, Mapping) and not self.arrays:
            raise OptionsError("arrays= is empty; give at least one array")
        check_class_names(self.class_names)
        check_strings("lists", self.lists)
        if self.label and self.label == self.split:
            raise OptionsError(f"label={self.label!r} is also split=; an array has one role")

    @classmethod
    def open(
        cls,
        arguments: Sequence[str],
        lists: tuple[str, ...] = (),
        class_names: Sequence[str] | None = None,
        *,
        label: str | None = None,
        split: str | None = None,
    ) -> Arrays:
        """Return the arrays that the arguments of a command line describe.

        Args:
            arguments: ``NAME=FILE.npy``, ``FILE.npy`` (the file's stem is the name), ``FILE.npz`` (all its
                arrays), or parts of one array: ``X-0.npy X-1.npy``, ``NAME=X-*.npy``, or
                ``NAME=A.npy NAME=B.npy``.
            lists: see the class.
            class_names: see the class.
            label: see the class.
            split: see the class.

        Raises:
            OptionsError: an argument has another form, a name is repeated, or a part is missing.
            InputError: an .npz file cannot be read, or the files of a pattern are not parts of one array.
        """
        return cls(open_arguments(arguments), lists, class_names, label, split)

    def location(self) -> None:
        """Return None, because the dataset may be in the folder of the array files."""
        return

    def with_class_names(self, names: Sequence[str]) -> Arrays:
        """Return the source with these class names, unless it has its own."""
        return self if self.class_names is not None else replace(self, class_names=names)

    def stage(self, folder: Path, *, preview: bool = False) -> ArraysReader:
        """Return a reader of the arrays; arrays that are not in .npy files are copied into ``folder``.

        Args:
            folder: an empty folder.
            preview: copy no more than listing and grouping need.

        Raises:
            InputError: an array cannot be read, ``label`` or ``split`` is not the name of one, or the disk
                has too little space for the copies.
        """
        given = self.arrays
        if isinstance(given, np.ndarray):
            given = fields_of(given)
        if isinstance(given, Mapping):
            staged = _stage(given, folder, preview=preview)
        else:
            staged = stage_chunks(given, folder)
        staged, num_rows, array_of = join_splits(staged)
        if num_rows and self.split:
            raise InputError(
                f"split={self.split!r}: the names of the arrays already give the splits; leave it out"
            )
        # the array of any split stands for that of all
        label, split = (name and array_of.get(name, name) for name in (self.label, self.split))
        for role, name in (("label", label), ("split", split)):
            if name and name not in staged:
                raise InputError(
                    f"{role}={name!r} is not the name of an array; the arrays are {', '.join(staged)}"
                )
        if (
            split is None
            and not num_rows
            and label != "split"
            and "split" in staged
            and is_split_array(staged["split"])
        ):
            split = "split"
        if label is None:
            label = usual_label([name for name in staged if name != split])
        return ArraysReader(
            staged,
            self.lists,
            tuple(self.class_names or ()),
            label or None,
            split or None,
            is_label_named=bool(self.label),
            num_rows=num_rows,
            label_arrays=tuple(given for given, name in array_of.items() if name == label),
        )


def _stage(given: Mapping[str, GivenArray], folder: Path, *, preview: bool) -> dict[str, MappedArray]:
    if not preview:
        require_space(folder, sum(map(bytes_to_copy, given.values())), "the copy of the arrays")
    staged: dict[str, MappedArray] = {}
    for index, (name, source) in enumerate(given.items()):
        for feature, array in stage_array(name, source, _folder(folder, index), preview=preview).items():
            if feature in staged:
                raise InputError(two_features(feature))
            staged[feature] = array
    return staged


def _folder(parent: Path, index: int) -> Path:
    folder = parent / str(index)
    folder.mkdir()
    return folder


@dataclass(frozen=True)
class ArraysReader:
    """The reader of ``Arrays``, after each array was staged in files that can be mapped.

    Attributes:
        arrays: mapped arrays by feature name.
        lists: see ``Arrays``.
        class_names: see ``Arrays``; empty if there are none.
        label: name of the array of labels, or None.
        split: name of the array of splits, or None.
        is_label_named: whether the user named the array of labels.
        num_rows: number of rows of each split, in order; empty unless the names of the arrays give splits.
        label_arrays: names of the given arrays, one for each split, that hold the labels.
    """

    arrays: Mapping[str, MappedArray]
    lists: tuple[str, ...]
    class_names: tuple[str, ...] = ()
    label: str | None = None
    split: str | None = None
    is_label_named: bool = False
    num_rows: Mapping[str, int] = field(default_factory=dict)
    label_arrays: tuple[str, ...] = ()

    @property
    def stored(self) -> dict[str, MappedArray]:
        """The arrays that are features, by name."""
        return {name: array for name, array in self.arrays.items() if name != self.split}

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        options: dict[str, Json] = {"source": "arrays", "lists": [*sorted(self.lists)]}
        return options if self.split is None else {**options, "split_array": self.split}

    def listing(self) -> Listing:
        """Return the listing; only the labels are read.

        Raises:
            InputError: the arrays differ in length, have no rows, or one has an unsupported dtype.
        """
        lengths = {name: array.shape[0] for name, array in self.arrays.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InputError(
                f"the arrays differ in length: {listed}; every array needs one row per example; "
                "arrays of splits have names such as train:x and test:x"
            )
        unknown = sorted(set(self.lists) - set(lengths))
        if unknown:
            raise InputError(
                f"lists={unknown[0]!r} is not the name of an array; the arrays are {', '.join(lengths)}"
            )
        count = next(iter(lengths.values()))
        if not count:
            raise InputError("the arrays have no rows; there is nothing to build")
        if KEY_FEATURE.name in lengths:
            raise InputError(
                "an array is named 'key', which is the name of the row number; choose another name, "
                "or name the structured array that has this field with NAME=FILE.npy"
            )
        labels = read_labels(self.label or "", self.arrays.get(self.label or ""), self.class_names)
        if labels is None and self.is_label_named:
            shape = self.arrays[self.label or ""].shape[1:]
            per_row = f"; each of its rows has the shape {shape}" if shape else ""
            raise InputError(
                f"label={self.label!r} does not hold classes, which are one string or one integer "
                f"of at least 0 per example, with at most 10,000 different values{per_row}; leave out label="
            )
        features = [
            feature_of(
                name, array, as_list=name in self.lists, is_label=name == self.label and labels is not None
            )
            for name, array in self.stored.items()
        ]
        size = sum(map(row_bytes, self.stored.values()))
        if not size:
            # for arrays without values, the size of a file does not limit the number of rows
            raise InputError("the rows of the arrays hold no values; there is nothing to build")
        return Listing(
            schema=Schema((*features, KEY_FEATURE), labels.class_names if labels else ()),
            keys=RowKeys(count),
            sizes=np.full(count, size, dtype=np.int64),
            stamps=np.full(count, self._stamp()),
            labels=labels.numbers if labels else None,
            splits=self._splits(),
            warnings=(*self._empty_splits(), *(() if labels else self._nested_label())),
            identity=repr([(name, *array.summary()) for name, array in self.arrays.items()])
            + (repr(self.num_rows) if self.num_rows else ""),
        )

    def _stamp(self) -> int:
        """Return a number that changes with the modification time of any file, or 0 for copies."""
        identities = ", ".join(filter(None, (array.identity for array in self.arrays.values())))
        digest = hashlib.blake2b(identities.encode("ascii"), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1 if identities else 0

    def _nested_label(self) -> tuple[str, ...]:
        array = self.arrays.get(self.label or "")
        if array is None or array.shape[1:] != (1,):
            return ()
        one, many = (
            f"the array {self.label!r} has",
            f"the arrays {' and '.join(map(repr, self.label_arrays))} have",
        )
        have = one if len(self.label_arrays) < 2 else many
        return (
            f"{have} the shape (n, 1), so the values are not classes; if they are, save them with the shape "
            "(n,), by reshape(-1)",
        )

    def _empty_splits(self) -> list[str]:
        return [
            f"the split {split!r} has no rows; it is left out"
            for split, count in self.num_rows.items()
            if not count
        ]

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
        """Return the group of each row: its value in the array ``by``.

        Raises:
            InputError: there is no array of scalars with this name.
        """
        array = self.arrays.get(by)
        if array is None or len(array.shape) != 1:
            scalars = [name for name, array in self.arrays.items() if len(array.shape) == 1]
            raise InputError(
                f"group_by={by!r} is not an array of scalars; these are {', '.join(scalars) or 'none'}"
            )
        values = widened(whole(array), array.dtype)
        if is_text(array):
            groups = strings(by, values)
        else:
            # -0.0 becomes 0.0, which it equals
            numbers = (
                value + 0 if isinstance(value, (float, complex)) else value for value in values.tolist()
            )
            groups = [str(number).encode() for number in numbers]
        num_missing = groups.count(b"") if is_text(array) else int(np.count_nonzero(values != values))
        require_values(by, num_missing, "array")
        return groups


def _values(feature: Feature, array: MappedArray, rows: Sequence[Row], numbers: IntArray) -> Sequence[Values]:
    if feature.kind == "label" and not is_class_dtype(array):
        # the listing has the numbers of the classes
        array.check_unchanged()
        return [row.label for row in rows]
    return values_of(feature, array.take(numbers), array.dtype)
