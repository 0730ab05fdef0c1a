"""Arrays as arguments of a command line name them: files, parts, and arrays of several splits."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tfshards.prep.sources.arrays.files import Files, GivenArray
from tfshards.prep.sources.arrays.mapped import MappedArray, MappedFile, MappedParts, join_parts
from tfshards.prep.sources.arrays.npz import Member, list_members
from tfshards.prep.sources.classes import SPLIT_FOLDERS, usual_order
from tfshards.prep.sources.fetching import unreadable
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.names import name_fault
from tfshards.schemas.storage import RemotePath, any_path

_SPLITS = frozenset(name.decode() for name in SPLIT_FOLDERS)


class SplitArray(NamedTuple):
    """An array of one split: the split, and the name of the array in all splits."""

    split: str
    array: str


class JoinedSplits(NamedTuple):
    """The arrays of all splits, concatenated in the order of the splits.

    Attributes:
        arrays: the arrays by name.
        num_rows: number of rows of each split, in order; empty if names give no splits.
        array_of: the name in ``arrays`` of each array that was given.
    """

    arrays: dict[str, MappedArray]
    num_rows: Mapping[str, int]
    array_of: Mapping[str, str]


def join_splits(arrays: dict[str, MappedArray]) -> JoinedSplits:
    """Return the arrays of all splits, concatenated, if names give splits; otherwise the arrays themselves.

    Raises:
        InputError: only some names give a split, two arrays are the same one, or splits have different arrays
            or arrays of different length.
    """
    by_name = _split_arrays(arrays)
    if not by_name:
        return JoinedSplits(arrays, {}, {name: name for name in arrays})
    by_split: dict[str, dict[str, str]] = {}
    for name, found in by_name.items():
        other = by_split.setdefault(found.split, {}).setdefault(found.array, name)
        if other != name:
            raise InputError(
                "arrays-same-split", other=other, name=name, array=found.array, split=found.split
            )
    splits = sorted(by_split, key=usual_order)
    wanted = list(dict.fromkeys(found.array for found in by_name.values()))
    for split in splits:
        missing = [array for array in wanted if array not in by_split[split]]
        if missing:
            raise InputError("split-lacks-array", split=split, missing=missing[0])
        lengths = {name: arrays[name].shape[0] for name in by_split[split].values()}
        if len(set(lengths.values())) > 1:
            counted = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InputError("split-arrays-differ", split=split, counted=counted)
    joined = {
        array: join_parts(
            array,
            [
                (f"array {by_split[split][array]!r}", part)
                for split in splits
                for part in _parts(arrays[by_split[split][array]])
            ],
        )
        for array in wanted
    }
    num_rows = {split: arrays[by_split[split][wanted[0]]].shape[0] for split in splits}
    return JoinedSplits(joined, num_rows, {name: found.array for name, found in by_name.items()})


def _split_arrays(names: Iterable[str]) -> dict[str, SplitArray]:
    """Return the split and the array that each name means; empty if names give no splits."""
    names = list(names)
    explicit = {name: SplitArray(*name.split(":", 1)) for name in names if ":" in name}
    for name, found in explicit.items():
        fault = name_fault(found.split)
        if fault or not found.array:
            what = f"the split name {fault}" if fault else "NAME is empty"
            raise InputError("array-split-name", name=name, what=what)
    if explicit:
        if len(explicit) < len(names):
            other = next(name for name in names if name not in explicit)
            raise InputError("array-without-split", other=other, explicit=next(iter(explicit)))
        return explicit
    usual = {name: parts for name in names if (parts := _usual(name))}
    splits = {found.split for found in usual.values()}
    return usual if len(usual) == len(names) and len(splits) > 1 else {}


def _usual(name: str) -> SplitArray | None:
    """Return the parts of a name such as ``x_train`` or ``train_images``; None for others."""
    name, slash, fields = name.partition("/")
    for array, _, split in (name.rpartition("_"), name.partition("_")[::-1]):
        if array and split.lower() in _SPLITS:
            return SplitArray(split.lower(), array + slash + fields)
    return None


def _parts(array: MappedArray) -> tuple[MappedFile, ...]:
    if isinstance(array, MappedParts):
        return array.parts
    assert isinstance(array, MappedFile)
    return (array,)


_NUMBERED = re.compile(r"(.+?)-([0-9]+)(?:-of-([0-9]+))?")
# The files of a pattern belong together, so other ways of numbering are accepted as well.
_NUMBERED_IN_PATTERN = re.compile(r"(.*?)[-_.]?([0-9]+)(?:-of-([0-9]+))?")
_FORMS = "NAME=FILE.npy, FILE.npy or FILE.npz"
_REMEDY = "give every part, or name arrays that are not parts of one with NAME=FILE.npy"


class _Group(NamedTuple):
    name: str
    paths: tuple[str, ...]


class _ArrayPart(NamedTuple):
    path: str
    prefix: str
    number: int
    of: int | None


def open_arguments(arguments: Sequence[str]) -> dict[str, GivenArray]:
    """Return the arrays that the arguments describe, by name.

    Raises:
        OptionsError: an argument has another form, a name is repeated, or a part is missing.
        InputError: an .npz file cannot be read, or the files of a pattern are not parts of one array.
    """
    bare = [path for name, path in map(_split, arguments) if name is None]
    groups = _numbered_groups(bare)
    columns: dict[str, GivenArray] = {}
    for argument in arguments:
        for name, source in _sources(argument, groups):
            known = columns.get(name)
            if isinstance(known, Files) and isinstance(source, Files) and known.is_named and source.is_named:
                repeated = sorted(set(known.paths) & set(source.paths))
                if repeated:
                    raise OptionsError(
                        "array-part-repeated", argument=argument, repeated=repeated[0], name=name
                    )
                columns[name] = Files(known.paths + source.paths)
            elif known is not None:
                raise OptionsError("array-names-repeated", argument=argument, name=name)
            else:
                columns[name] = source
    return columns


def _split(argument: str) -> tuple[str | None, str]:
    """Return the name, or None, and the path in ``NAME=PATH`` or ``PATH``."""
    name, equals, path = argument.partition("=")
    # the name of a folder may contain "=", as in year=2024/
    return (name, path) if equals and "/" not in name else (None, argument)


def _sources(argument: str, groups: Mapping[str, _Group | None]) -> Iterator[tuple[str, GivenArray]]:
    name, path = _split(argument)
    given = any_path(path)
    if path.endswith(".npz") and name is None:
        yield from ((member, Member(path, member)) for member in list_members(path))
        return
    if not path.endswith(".npy") or name == "":
        raise OptionsError("array-argument", argument=argument, forms=_FORMS)
    group: _Group | None = _Group(Path(path).stem, (path,))
    if name is None and path in groups:
        group = groups[path]
    elif glob.has_magic(path) and not given.exists():
        group = _matches(argument, path)
    if group is None:
        return
    feature = group.name if name is None else name
    if feature == "key" or not feature.isprintable():
        raise OptionsError("array-name-of-file", argument=argument, feature=feature)
    yield feature, Files(group.paths, is_named=name is not None)


def _numbered_groups(paths: Sequence[str]) -> dict[str, _Group | None]:
    """Return the parts among the paths: the first path of a group maps to the group, others to None."""
    found: dict[str, list[_ArrayPart]] = {}
    for path in paths:
        part = _part(path, _NUMBERED)
        if part:
            found.setdefault(part.prefix, []).append(part)
    groups: dict[str, _Group | None] = {}
    for prefix, parts in found.items():
        # the number of a single file may mean anything, but "3-of-8" implies other parts
        if len(parts) == 1 and parts[0].of is None:
            continue
        try:
            group = _in_order(parts)
        except ValueError as error:
            raise OptionsError("array-parts-fault", prefix=prefix, error=error) from None
        groups.update({part.path: None for part in parts})
        groups[parts[0].path] = group
    return groups


def _matches(argument: str, pattern: str) -> _Group:
    given = any_path(pattern)
    if isinstance(given, RemotePath):
        try:
            paths = sorted(map(str, given.parent.glob(given.name)))
        except OSError as error:
            raise unreadable(given.parent, error) from None
    else:
        paths = sorted(glob.glob(pattern))
    if not paths:
        raise InputError("array-no-file", argument=argument)
    parts = [_part(path, _NUMBERED_IN_PATTERN) for path in paths]
    try:
        return _in_order(parts)
    except ValueError as error:
        raise InputError("array-argument-fault", argument=argument, error=error) from None


def _part(path: str, pattern: re.Pattern[str]) -> _ArrayPart | None:
    found = pattern.fullmatch(Path(path).stem) if path.endswith(".npy") else None
    return found and _ArrayPart(path, found[1], int(found[2]), int(found[3]) if found[3] else None)


def _in_order(parts: Sequence[_ArrayPart | None]) -> _Group:
    """Return the parts in the order of their numbers.

    Raises:
        ValueError: the parts are not numbered in the same way, without gaps, from 0 or 1.
    """
    numbered = [part for part in parts if part]
    alike = {(Path(part.path).parent, part.prefix, part.of) for part in numbered}
    if len(numbered) < len(parts) or len(alike) > 1:
        raise ValueError(
            "the files are not numbered in the same way in one folder; give them in order as "
            "NAME=A.npy NAME=B.npy"
        )
    by_number = {part.number: part for part in numbered}
    if len(by_number) < len(numbered):
        twice = next(part for part in numbered if by_number[part.number] is not part)
        raise ValueError(
            f"{twice.path} and {by_number[twice.number].path} have the same number; give each part once"
        )
    of = numbered[0].of
    # counted from 0, like shards, or from 1
    first = 0 if 0 in by_number or (of is not None and of not in by_number) else 1
    end = max(by_number) + 1 if of is None else first + of
    missing = list(islice((number for number in range(first, end) if number not in by_number), 4))
    if missing:
        listed = ", ".join(map(str, missing[:3])) + (", ..." if len(missing) > 3 else "")
        raise ValueError(f"number {listed} is missing; {_REMEDY}")
    if len(by_number) > end - first:
        raise ValueError(f"there are {len(by_number)} parts of {of}; {_REMEDY}")
    return _Group(numbered[0].prefix, tuple(by_number[number].path for number in range(first, end)))
