"""Arrays whose first axis counts the examples: in memory, in .npy and .npz files, or in chunks."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from tfshards.prep.sources.array_files import (
    AnyArray,
    Chunk,
    Member,
    OpenArray,
    copy_chunks,
    members,
    open_file,
)
from tfshards.prep.sources.base import Source
from tfshards.prep.sources.classes import (
    ClassNames,
    given_class_names,
    usual_order,
    usual_split,
)
from tfshards.prep.sources.features import TEXT, array_of, kind_of, relisted
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.sources.labels import groups_of, key_column, label_column, split_names
from tfshards.prep.sources.roles import (
    check_effect,
    check_roles,
    flag,
    resolve_roles,
    unknown_column,
)
from tfshards.prep.sources.staged import Rows, stage
from tfshards.prep.sources.staged_reader import StagedReader
from tfshards.schemas import Feature, InputError, OptionsError, Schema
from tfshards.schemas.schema import ITEM_SIZES, KINDS, RAW_PIXELS, UNCOMMON_DTYPES
from tfshards.schemas.storage import LocalPath

_BY_NAME = {role: role for role in ("label", "split", "key")}
ArrayRole: TypeAlias = Literal["label", "split", "key", "list", "image", "value", "drop"]
_ROLES = get_args(ArrayRole)
_TEXTS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Arrays(Source):
    """Arrays of equal length, each of which is a feature; the key of an example is its row number.

    The arrays ``label``, ``split`` and ``key`` have these roles by their names; ``roles`` declares those of
    others. If every name is that of an array of a split, such as ``x_train`` or ``test_labels`` of two or
    more splits, the arrays are splits of the features ``x`` or ``labels``, and ``roles`` has these names.
    Rows are then numbered through the splits in their usual order: train, val, test.

    Integer scalars are stored as int64 lists, text as byte strings, and other values as raw little-endian
    bytes.

    Attributes:
        arrays: file of an array: NAME=FILE.npy, FILE.npy (the stem is the name) or FILE.npz (all its arrays).
            In Python also a dict by name of NumPy arrays, or paths or URLs of .npy files; or an iterable of
            dicts of NumPy arrays, which are concatenated along axis 0: it is read once, so that a generator
            can supply arrays larger than memory.
        roles: role of each array: "label", one integer or text per example, at most 10,000 different ones (-1
            is no class); "split"; "key"; "list", stored as an int64 or float list; "image", uint8 or uint16
            of shape (n, height, width) or (n, height, width, 1 | 3 | 4), which is recorded; "value",
            stored as it is; "drop", not stored. Without a declared image, the only array of this kind with
            sides of at least 8, or the one of several that is named "image", is loaded as images.
        class_names: file of the class names in label order, one per line, or a dataset that has them, or, in
            Python, the names; the array of labels must hold these names or their numbers.

    Raises:
        OptionsError: there are no arrays, an array has no name, a role does not exist, or the class names are
            empty or repeated.
    """

    arrays: Sequence[str] | str | Mapping[str, AnyArray | str | os.PathLike[str]] | Iterable[Chunk]
    roles: Mapping[str, ArrayRole] = field(default_factory=dict)
    class_names: ClassNames = None

    def __post_init__(self) -> None:
        if isinstance(self.arrays, np.ndarray):
            raise OptionsError("arrays= is one array, which has no name; give {'NAME': array}")
        if isinstance(self.arrays, (Mapping, Sequence)) and not self.arrays:
            raise OptionsError("arrays= is empty; give at least one array")
        check_roles(self.roles)
        for name, role in self.roles.items():
            if role not in _ROLES:
                raise OptionsError(
                    f"array {name!r}: the role {role} is not one of those of arrays, {', '.join(_ROLES)}"
                )
        given_class_names(self.class_names)

    @classmethod
    def from_recorded(cls, options: Mapping[str, Any], inputs: Sequence[str], _: Schema) -> Arrays:
        """Return a source with the roles of a build from the arguments that name its arrays."""
        return cls([*inputs], options["columns"])

    def stage(self, folder: Path | None, *, group_by: str | None = None) -> StagedReader:
        """Return a reader of the arrays; those that are not in local .npy files are copied into ``folder``.

        Raises:
            OptionsError: a text does not name files of arrays.
            InputError: an array does not exist, or cannot be read or stored, or there is too little space for
                the copies.
        """
        names, files, chunks = _given(self.arrays)
        if wrong := [name for name in names if not isinstance(name, str)]:
            raise OptionsError(f"the name of an array is {wrong[0]!r}, but must be text")
        splits, parts = _by_split(names)
        roles = resolve_roles([*parts], self.roles, "the source", usual=_BY_NAME)
        for name in {*roles} - {*parts}:
            raise unknown_column(name, [*parts], "the source")
        kept = [name for name in parts if roles.get(name) != "drop" or name == group_by]
        needed = {part for name in kept for part in parts[name]}
        with nullcontext(folder) if folder else TemporaryDirectory(prefix="tfshards-") as target:
            opened = {
                name: open_file(file, LocalPath(target, f"{number}.npy"))
                for number, (name, file) in enumerate(files.items())
                if name in needed
            }
            is_described = folder is None and isinstance(chunks, list)
            opened |= copy_chunks(chunks, needed, None if is_described else LocalPath(target))
            arrays = {name: [opened[part] for part in parts[name]] for name in kept}
            rows = _rows(self, arrays, roles, _row_counts(arrays, splits), group_by)
        return stage(rows, folder)


def _given(arrays: object) -> tuple[list[str], dict[str, str | Member], Iterable[Chunk]]:
    """Return the names of all arrays, those that are in files, and the others in chunks along axis 0."""
    texts = [arrays] if isinstance(arrays, str) else arrays
    if isinstance(texts, (list, tuple)) and all(isinstance(each, str) for each in texts):
        arrays = _named_files(texts)
    if isinstance(arrays, Mapping):
        files = {
            name: each if isinstance(each, Member) else os.fspath(each)
            for name, each in arrays.items()
            if isinstance(each, (str, os.PathLike, Member))
        }
        values = {name: each for name, each in arrays.items() if name not in files}
        return [*arrays], files, [values]
    chunks = iter(arrays)  # type: ignore[call-overload]
    first: Chunk = next(chunks, {})
    return [*first] if isinstance(first, Mapping) else [], {}, chain([first], chunks)


def _named_files(arguments: Sequence[str]) -> dict[str, str | Member]:
    """Return the files in ``NAME=FILE.npy``, ``FILE.npy`` and ``FILE.npz`` by name."""
    files: dict[str, str | Member] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or "/" in name:
            # the name of a folder may contain "=", as in year=2024/
            name, path = Path(argument).stem, argument
        found: dict[str, str | Member] = {name: path}
        if path == argument and path.endswith(".npz"):
            found = {member: Member(path, member) for member in members(path)}
        elif not path.endswith(".npy") or not name:
            raise OptionsError(f"{argument}: must be NAME=FILE.npy, FILE.npy or FILE.npz")
        if repeated := sorted({*files} & {*found}):
            raise OptionsError(
                f"{argument}: two arrays are named {repeated[0]!r}; name them with NAME=FILE.npy, or give "
                "the parts of one array as chunks, from Python"
            )
        files |= found
    return files


def _by_split(names: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the splits that names of arrays give, in their usual order, and the names of each array in them.

    If not all names give splits, or only one, there are no splits, and each name is that of an array.
    """
    found = {name: parts for name in names if (parts := _split_and_array(name))}
    splits = sorted({split for split, _ in found.values()}, key=usual_order)
    if len(found) < len(names) or len(splits) < 2:
        return [], {name: [name] for name in names}
    arrays: dict[str, dict[str, str]] = {}
    for name, (split, array) in found.items():
        other = arrays.setdefault(array, {}).setdefault(split, name)
        if other != name:
            raise InputError(f"{other!r} and {name!r} are both the array {array!r} of the split {split!r}")
    for array, of in arrays.items():
        for split in splits:
            if split not in of:
                raise InputError(
                    f"the split {split!r} has no array {array!r}; every split needs the same arrays"
                )
    return splits, {array: [of[split] for split in splits] for array, of in arrays.items()}


def _split_and_array(name: str) -> tuple[str, str] | None:
    """Return split and array in a name such as ``x_train`` or ``train_images``; None for others."""
    for array, split in (name.rpartition("_")[::2], name.partition("_")[::-2]):
        if array and (usual := usual_split(split)):
            return usual, array
    return None


def _row_counts(arrays: Mapping[str, Sequence[OpenArray]], splits: Sequence[str]) -> dict[str, int]:
    """Return the number of rows of each split, or of the only one, ``""``, after comparing all arrays."""
    counts: dict[str, int] = {}
    for index, split in enumerate(splits or [""]):
        lengths = {name: len(parts[index].values) for name, parts in arrays.items()}
        if len({*lengths.values()}) > 1:
            listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            where = f" of the split {split!r}" if split else ""
            raise InputError(f"the arrays{where} differ in length: {listed}; give one row per example")
        counts[split] = next(iter(lengths.values()), 0)
    for name, (first, *others) in arrays.items():
        for part in others:
            if _item(part) != _item(first):
                shown = [f"{each.dtype} {each.values.shape[1:]}" for each in (first, part)]
                raise InputError(f"array {name!r}: its splits differ: {' and '.join(shown)} per example")
    if not any(counts.values()) or not any(
        part.file.row_bytes for parts in arrays.values() for part in parts
    ):
        # without values, the size of a file does not limit the number of rows
        raise InputError("the rows of the arrays hold no values; there is nothing to build")
    return counts


def _item(array: OpenArray) -> tuple[str, tuple[int, ...]]:
    return array.values.dtype.kind if array.is_text else array.dtype, array.values.shape[1:]


def _rows(
    source: Arrays,
    arrays: Mapping[str, Sequence[OpenArray]],
    roles: Mapping[str, str],
    counts: Mapping[str, int],
    group_by: str | None,
) -> Rows:
    """Return what is staged of arrays; each has a part for each split in ``counts``."""
    special = {role: name for name, role in roles.items() if role in _BY_NAME}
    columns = {role: _column(name, arrays[name], role) for role, name in special.items()}
    check_effect("the source", roles.values(), (), ["class_names"] * (source.class_names is not None))
    splits = split_names(special["split"], columns["split"]) if "split" in special else None
    if "" not in counts:
        if splits is not None:
            raise InputError(f"the names of the arrays give the splits, and so does {special['split']!r}")
        names = [pa.repeat(pa.scalar(to_bytes(split), TEXT), count) for split, count in counts.items()]
        splits = pa.chunked_array(names)
    features: list[Feature] = []
    values: dict[str, pa.ChunkedArray] = {}
    class_names: tuple[str, ...] = ()
    warnings = [f"the split {split!r} has no rows; it is left out" for split, n in counts.items() if not n]
    for name, parts in arrays.items():
        role = roles.get(name, "value")
        if role == "label":
            column = label_column(name, columns[role], source.class_names)
            dtype = parts[0].dtype if parts[0].dtype in KINDS["label"].dtypes else "int64"
            features.append(replace(column.feature, dtype=dtype))
            values[name], class_names = column.values, column.class_names
            warnings += [column.warning] if column.warning else []
        elif role not in ("split", "key", "drop"):
            features.append(_feature(name, parts[0], role))
            values |= {name: _texts(name, parts)} if parts[0].is_text else {}
    if not features:
        raise InputError("no array is left to store")
    if group_by is not None and group_by not in arrays:
        raise unknown_column(group_by, [*arrays], "group_by: the source")
    return Rows(
        num_rows=sum(counts.values()),
        features=features,
        rules=None,
        recorded={"source": "arrays", "columns": dict(sorted(roles.items()))},
        values=values,
        arrays={
            each.name: tuple(part.file for part in arrays[each.name])
            for each in features
            if each.name not in values
        },
        keys=key_column(special["key"], columns["key"]) if "key" in special else None,
        splits=splits,
        groups=groups_of(group_by, _column(group_by, arrays[group_by], "group")) if group_by else None,
        class_names=class_names,
        warnings=warnings,
    )


def _feature(name: str, array: OpenArray, role: str) -> Feature:
    """Return the feature that an array is stored as."""
    if name == "key":
        raise InputError("an array cannot be stored as 'key', which is the key of the example; rename it")
    shape, dtype = array.values.shape[1:], "bytes" if array.is_text else array.dtype
    kind = kind_of(dtype, shape, is_list=role == "list")
    try:
        return Feature(name, kind, dtype, shape, pixels=RAW_PIXELS if role == "image" else None)
    except ValueError as error:
        raise InputError(f"array {name!r} cannot be stored as {role}: {error}") from None


def _column(name: str, parts: Sequence[OpenArray], role: str) -> pa.ChunkedArray:
    """Return an array of one value per example as a column, for a role that needs one."""
    first = parts[0]
    if first.values.ndim > 1 or (first.dtype not in {*ITEM_SIZES} - {*UNCOMMON_DTYPES} and not first.is_text):
        reshaped = "array.reshape(-1)" if first.values.shape[1:] == (1,) else "array.argmax(1)"
        raise InputError(
            f"array {name!r} holds {first.dtype} {first.values.shape[1:]} per example, but a {role} is one "
            f"integer or text; {reshaped} may give it; {flag(name, 'value')} "
            "stores the values as they are"
        )
    if first.is_text:
        return _texts(name, parts)
    arrays = [part.values.astype(part.values.dtype.newbyteorder("="), copy=False) for part in parts]
    if first.dtype == "bool":
        # the classes 0 and 1
        arrays = [each.view(np.uint8) for each in arrays]
    return pa.chunked_array([array_of(each) for each in arrays])


def _texts(name: str, parts: Sequence[OpenArray]) -> pa.ChunkedArray:
    """Return byte strings, or text as UTF-8, as a column of ``TEXT``, or of lists of it."""
    chunks = [pa.array([], TEXT)]
    for part in parts:
        for start in range(0, len(part.values), _TEXTS_AT_ONCE):
            try:
                items = part.values[start : start + _TEXTS_AT_ONCE].ravel().tolist()
                texts = [item if isinstance(item, bytes) else to_bytes(item) for item in items]
            except (UnicodeEncodeError, SystemError) as error:
                # a file may hold numbers that are not characters
                raise InputError(f"array {name!r} holds text that is not valid Unicode: {error}") from None
            chunks.append(pa.array(texts, TEXT))
    shape, count = parts[0].values.shape[1:], sum(len(part.values) for part in parts)
    return relisted(pa.chunked_array(chunks), np.full(count, math.prod(shape)) if shape else None)
