"""Arrays whose first axis counts the examples, one feature an array, or a field of a structured one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfshards.prep.classes import check_class_names
from tfshards.prep.example import Values
from tfshards.prep.files import require_space
from tfshards.prep.plan import IntArray
from tfshards.prep.sources.array_arguments import open_arguments
from tfshards.prep.sources.array_features import feature_of, is_text, row_bytes, strings, values_of
from tfshards.prep.sources.array_files import (
    Chunk,
    ColumnSource,
    bytes_to_copy,
    fields_of,
    stage_chunks,
    stage_column,
    two_features,
)
from tfshards.prep.sources.array_labels import read_labels
from tfshards.prep.sources.columns import AnyArray, Column, whole
from tfshards.prep.sources.listing import Accepted, Listing, Outcome, Row, RowKeys
from tfshards.schemas import Feature, InputError, OptionsError, Schema
from tfshards.schemas.reading import Json

_KEY = Feature("key", "bytes", "bytes")


@dataclass(frozen=True)
class Arrays:
    """Arrays of equal length; the key of an example is its row number.

    Integer scalars are stored as int64 lists, strings as byte strings, every other value as raw little-endian
    bytes. A feature named ``label`` of integer scalars (at most 10,000 different ones, none negative) is the
    class; so is one of strings, which are then the names of the classes.

    Attributes:
        columns: by feature name: a NumPy array, the path of an .npy file, or a list of paths whose arrays are
            concatenated, with the examples along axis 0. A structured array's field becomes the feature
            ``NAME/FIELD``. Or a structured array, whose fields are the features. Or an iterable of dicts of
            arrays, or of structured arrays, which are concatenated along axis 0: it is read once, so that
            arrays larger than memory can come from a generator.
        lists: names of the features to store as int64 or float lists.
        class_names: in the order of their numbers; the feature ``label`` must hold these numbers, or
            these names. A class may have no examples.

    Raises:
        OptionsError: there are no columns, or the class names are none, or not different.
    """

    columns: Mapping[str, ColumnSource] | AnyArray | Iterable[Chunk]
    lists: tuple[str, ...] = ()
    class_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.columns, np.ndarray):
            if not self.columns.dtype.names:
                raise OptionsError("an array without fields has no name: give it as {'NAME': array}")
        elif isinstance(self.columns, Mapping) and not self.columns:
            raise OptionsError("no arrays: give at least one")
        check_class_names(self.class_names)

    @classmethod
    def open(
        cls,
        arguments: Sequence[str],
        lists: tuple[str, ...] = (),
        class_names: Sequence[str] | None = None,
    ) -> Arrays:
        """Return the arrays that a command line names.

        Args:
            arguments: ``NAME=FILE.npy``, ``FILE.npy`` (named by its stem), ``FILE.npz`` (its members), or
                parts of one array: ``X-0.npy X-1.npy``, ``NAME=X-*.npy``, ``NAME=A.npy NAME=B.npy``.
            lists: see the class.
            class_names: see the class.

        Raises:
            OptionsError: an argument is none of these, a name stands twice, or a part is missing.
            InputError: an .npz cannot be read, or a pattern's files are not parts of one array.
        """
        return cls(open_arguments(arguments), lists, class_names)

    def location(self) -> None:
        """Return None: the output may lie beside array files."""
        return

    def stage(self, folder: Path, *, preview: bool = False) -> MappedArrays:
        """Return a reader of the arrays; what is in no .npy file is copied into ``folder``.

        Args:
            folder: exists and is empty.
            preview: copy no more than listing and grouping need.

        Raises:
            InputError: an array cannot be read, or the copies need more room than there is.
        """
        given = self.columns
        if isinstance(given, np.ndarray):
            given = fields_of(given)
        if isinstance(given, Mapping):
            columns = _stage(given, folder, preview=preview)
        else:
            columns = stage_chunks(given, folder)
        return MappedArrays(columns, self.lists, tuple(self.class_names or ()))


def _stage(given: Mapping[str, ColumnSource], folder: Path, *, preview: bool) -> dict[str, Column]:
    if not preview:
        require_space(folder, sum(map(bytes_to_copy, given.values())), "the copy of the arrays")
    columns: dict[str, Column] = {}
    for index, (name, source) in enumerate(given.items()):
        for feature, column in stage_column(name, source, _folder(folder, index), preview=preview).items():
            if feature in columns:
                raise InputError(two_features(feature))
            columns[feature] = column
    return columns


def _folder(parent: Path, index: int) -> Path:
    folder = parent / str(index)
    folder.mkdir()
    return folder


@dataclass(frozen=True)
class MappedArrays:
    """The reader of ``Arrays`` once each is in a file of its own."""

    columns: Mapping[str, Column]
    lists: tuple[str, ...]
    class_names: tuple[str, ...] = ()

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        return {"source": "arrays", "lists": [*sorted(self.lists)]}

    def listing(self) -> Listing:
        """Return the listing; of the data only the labels are read.

        Raises:
            InputError: the arrays differ in length, have no rows, or one is of no supported dtype.
        """
        lengths = {name: column.shape[0] for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InputError(f"the arrays differ in length: {listed}; every array needs one row an example")
        unknown = sorted(set(self.lists) - set(lengths))
        if unknown:
            raise InputError(f"--list {unknown[0]}: there is no such array; there are {', '.join(lengths)}")
        count = next(iter(lengths.values()))
        if not count:
            raise InputError("the arrays have no rows; there is nothing to build")
        if _KEY.name in lengths:
            raise InputError(
                "an array is named 'key', which is the row number's name; give it another name, "
                "or name the array of which it is a field with NAME=FILE.npy"
            )
        labels = read_labels(self.columns.get("label"), self.class_names)
        features = [
            feature_of(
                name, column, as_list=name in self.lists, is_label=name == "label" and labels is not None
            )
            for name, column in self.columns.items()
        ]
        size = sum(map(row_bytes, self.columns.values()))
        if not size:
            # nor would the number of rows be bounded by the files' sizes
            raise InputError("the arrays' rows hold no values; there is nothing to build")
        return Listing(
            schema=Schema((*features, _KEY), labels.class_names if labels else ()),
            keys=RowKeys(count),
            sizes=np.full(count, size, dtype=np.int64),
            stamps=np.zeros(count, dtype=np.int64),
            labels=labels.numbers if labels else None,
            identity=repr([(name, *column.summary()) for name, column in self.columns.items()]),
        )

    def read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        """Return the values of each row."""
        numbers = np.array([int(row.key) for row in rows], dtype=np.int64)
        columns = [_values(schema[name], column, rows, numbers) for name, column in self.columns.items()]
        keys = [row.key.encode("ascii") for row in rows]
        return [Accepted(values) for values in zip(*columns, keys, strict=True)]

    def groups(self, listing: Listing, by: str) -> Sequence[bytes]:
        """Return each row's group: its value in the column ``by``.

        Raises:
            InputError: there is no such column of scalars.
        """
        column = self.columns.get(by)
        if column is None or len(column.shape) != 1:
            scalars = [name for name, column in self.columns.items() if len(column.shape) == 1]
            raise InputError(
                f"--group-by {by}: no array of scalars; there are {', '.join(scalars) or 'none'}"
            )
        values = whole(column)
        return strings(by, values) if is_text(column) else [str(value).encode() for value in values.tolist()]


def _values(feature: Feature, column: Column, rows: Sequence[Row], numbers: IntArray) -> Sequence[Values]:
    if feature.kind == "label" and is_text(column):
        # the listing has looked up the names
        column.check_unchanged()
        return [row.label for row in rows]
    return values_of(feature, column.take(numbers), column.dtype)
