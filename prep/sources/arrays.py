"""Arrays whose first axis counts the examples, one feature an array."""

from __future__ import annotations

import math
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from tfshards.prep.example import Values
from tfshards.prep.sources.array_files import (
    AnyArray,
    Chunk,
    Column,
    ColumnSource,
    Member,
    stage_chunks,
    stage_column,
)
from tfshards.prep.sources.listing import Accepted, Listing, Outcome, Row, RowKeys
from tfshards.schemas import KINDS, Feature, InputError, OptionsError, Schema
from tfshards.schemas.feature import ITEM_SIZES
from tfshards.schemas.reading import Json

_KEY = Feature("key", "bytes", "bytes")
# Above this, integers named "label" are a quantity rather than classes.
_MAX_CLASSES = 10_000


@dataclass(frozen=True)
class Arrays:
    """Arrays of equal length; the key of an example is its row number.

    Integer scalars are stored as int64 lists, every other value as raw little-endian bytes. A feature named
    ``label`` of integer scalars (at most 10,000 different ones, none negative) is the class.

    Attributes:
        columns: by feature name: a NumPy array, or the path of an .npy file, with the examples along axis 0.
            Or an iterable of dicts of arrays, which are concatenated along axis 0: it is read once, so that
            arrays larger than memory can come from a generator.
        lists: names of the features to store as int64 or float lists.

    Raises:
        OptionsError: there are no columns.
    """

    columns: Mapping[str, ColumnSource] | Iterable[Chunk]
    lists: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.columns, Mapping) and not self.columns:
            raise OptionsError("no arrays: give at least one")

    @classmethod
    def open(cls, arguments: Sequence[str], lists: tuple[str, ...] = ()) -> Arrays:
        """Return the arrays that a command line names.

        Args:
            arguments: ``NAME=FILE.npy``, ``FILE.npy`` (named by its stem) or ``FILE.npz`` (its members).
            lists: see the class.

        Raises:
            OptionsError: an argument is none of these, or a name stands twice.
            InputError: an .npz cannot be read.
        """
        columns: dict[str, ColumnSource] = {}
        for argument in arguments:
            for name, source in _named(argument):
                if name in columns:
                    raise OptionsError(
                        f"{argument}: there are two arrays {name!r}; name them with NAME=FILE.npy"
                    )
                columns[name] = source
        return cls(columns, lists)

    def location(self) -> None:
        """Return None: the output may lie beside array files."""
        return

    def stage(self, folder: Path, *, preview: bool = False) -> MappedArrays:
        """Return a reader of the arrays; what is in no .npy file is copied into ``folder``.

        Args:
            folder: exists and is empty.
            preview: copy no more than listing and grouping need.

        Raises:
            InputError: an array cannot be read or is of no supported dtype, or they differ in length.
        """
        if isinstance(self.columns, Mapping):
            columns = {
                name: stage_column(name, source, _folder(folder, index), preview=preview)
                for index, (name, source) in enumerate(self.columns.items())
            }
        else:
            columns = stage_chunks(self.columns, folder)
        return MappedArrays(columns, self.lists)


@dataclass(frozen=True)
class MappedArrays:
    """The reader of ``Arrays`` once each is in a file of its own."""

    columns: Mapping[str, Column]
    lists: tuple[str, ...]

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
        labels = self._labels()
        features = [
            _feature(
                name, column, as_list=name in self.lists, is_label=name == "label" and labels is not None
            )
            for name, column in self.columns.items()
        ]
        if "key" in lengths:
            raise InputError("an array is named 'key', which is the row number's name; give it another name")
        row_bytes = sum(_row_bytes(column) for column in self.columns.values())
        if not row_bytes:
            # nor would the number of rows be bounded by the files' sizes
            raise InputError("the arrays' rows hold no values; there is nothing to build")
        return Listing(
            schema=Schema((*features, _KEY)),
            keys=RowKeys(count),
            sizes=np.full(count, row_bytes, dtype=np.int64),
            stamps=np.zeros(count, dtype=np.int64),
            labels=labels,
            identity=repr(
                [(name, c.dtype, c.shape, c.fortran, c.identity) for name, c in self.columns.items()]
            ),
        )

    def read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        """Return the values of each row."""
        numbers = np.array([int(row.key) for row in rows])
        columns = [
            _values(schema[name], column.take(numbers), column.dtype) for name, column in self.columns.items()
        ]
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
        values = column.open()
        return (
            _strings(by, values)
            if values.dtype.kind in "SU"
            else [str(value).encode() for value in values.tolist()]
        )

    def _labels(self) -> np.typing.NDArray[np.int64] | None:
        column = self.columns.get("label")
        if column is None or len(column.shape) != 1 or np.dtype(column.dtype).kind not in "iu":
            return None
        values = column.open()
        if values.dtype.itemsize == 8 and values.dtype.kind == "u":
            return None
        distinct = np.unique(values)
        is_class = len(distinct) <= _MAX_CLASSES and (not len(distinct) or int(distinct[0]) >= 0)
        return values.astype(np.int64) if is_class else None


def _named(argument: str) -> list[tuple[str, ColumnSource]]:
    name, equals, path = argument.partition("=")
    if not equals or "/" in name:
        # no name; a folder on the way may have the sign, as in year=2024/
        name, equals, path = "", "", argument
    if path.endswith(".npz") and not equals:
        return [(member, Member(path, member)) for member in _members(path)]
    if not path.endswith(".npy") or (equals and not name):
        raise OptionsError(f"{argument}: must be NAME=FILE.npy, FILE.npy or FILE.npz")
    name = name or Path(path).stem
    if name == _KEY.name or not name.isprintable():
        raise OptionsError(f"{argument}: an array cannot be named {name!r}; name it with NAME=FILE.npy")
    return [(name, path)]


def _members(path: str) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception as error:  # zipfile raises almost anything for damaged bytes
        raise InputError(f"{path}: cannot be read: {error}") from None
    odd = [name for name in names if not name.endswith(".npy") or names.count(name) > 1]
    if odd or not names:
        found = f"the member {odd[0]!r} is no array, or stands twice" if odd else "it has no members"
        raise InputError(f"{path}: {found}")
    return sorted(name.removesuffix(".npy") for name in names)


def _folder(parent: Path, index: int) -> Path:
    folder = parent / str(index)
    folder.mkdir()
    return folder


def _feature(name: str, column: Column, *, as_list: bool, is_label: bool) -> Feature:
    try:
        return _feature_as(name, column, as_list=as_list, is_label=is_label)
    except ValueError as error:
        raise InputError(f"array {name!r}: {error}") from None


def _feature_as(name: str, column: Column, *, as_list: bool, is_label: bool) -> Feature:
    shape = column.shape[1:]
    dtype = "bfloat16" if column.dtype == "bfloat16" else np.dtype(column.dtype).newbyteorder("=").name
    if column.dtype != "bfloat16" and np.dtype(column.dtype).kind in "SU":
        return Feature(name, "bytes", "bytes", shape)
    if dtype not in ITEM_SIZES:
        raise InputError(f"array {name!r}: dtype {dtype} cannot be stored; {_remedy(dtype)}")
    if is_label:
        return Feature(name, "label", dtype, shape)
    scalar_int = not shape and dtype in KINDS["int"].dtypes and dtype != "bool"
    if not as_list and not scalar_int:
        return Feature(name, "raw", dtype, shape)
    kind = "float" if dtype in KINDS["float"].dtypes else "int"
    if dtype not in KINDS[kind].dtypes:
        raise InputError(f"--list {name}: {dtype} fits neither an int64 nor a float32 list; leave it raw")
    return Feature(name, kind, dtype, shape)


def _remedy(dtype: str) -> str:
    if dtype.startswith(("datetime64", "timedelta64")):
        return "convert it with array.view('int64')"
    if dtype == "void16":
        return "an .npy file forgets bfloat16: pass the array from Python, or save array.view('uint16')"
    if dtype.startswith("void"):
        return "save the fields of a structured array as arrays of their own"
    return f"convert it to one of {', '.join(sorted(ITEM_SIZES))}"


def _row_bytes(column: Column) -> int:
    item = 2 if column.dtype == "bfloat16" else np.dtype(column.dtype).itemsize
    return math.prod(column.shape[1:]) * item


def _values(feature: Feature, block: AnyArray, dtype: str) -> Sequence[Values]:
    """Return the values of each row of ``block`` as the encoder takes them."""
    if feature.kind == "raw":
        data = block.astype(block.dtype.newbyteorder("<"), copy=False).tobytes()
        step = feature.num_bytes
        return (
            [data[start : start + step] for start in range(0, len(data), step)]
            if step
            else [b""] * len(block)
        )
    if feature.kind == "bytes":
        strings, number = _strings(feature.name, block), feature.num_elements
        if not feature.shape:
            return strings
        return [strings[row * number : (row + 1) * number] for row in range(len(block))]
    if dtype == "bfloat16":
        # the upper half of a float32
        block = (block.astype(np.uint32) << 16).view(np.float32)
    values: Sequence[Values] = block.reshape(len(block), -1).tolist() if feature.shape else block.tolist()
    return values


def _strings(name: str, block: AnyArray) -> list[bytes]:
    """Return each element, row-major: text as UTF-8, and what ``os.fsdecode`` escaped as the bytes it was."""
    if block.dtype.kind == "S":
        return cast("list[bytes]", block.ravel().tolist())
    block = np.ascontiguousarray(block, block.dtype.newbyteorder("="))
    # a file may hold any number in the place of a character
    if block.size and block.itemsize and int(block.view(np.uint32).max()) > sys.maxunicode:
        raise InputError(f"array {name!r}: holds a number above {sys.maxunicode:#x}, which is no character")
    try:
        return [item.encode("utf-8", "surrogateescape") for item in block.ravel().tolist()]
    except UnicodeEncodeError as error:
        raise InputError(f"array {name!r}: holds text that is no Unicode: {error}") from None
