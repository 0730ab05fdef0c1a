"""Arrays as arguments of a command line name them: files, parts, and arrays of several splits."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tfshards.prep.sources.arrays.files import Files, GivenArray
from tfshards.prep.sources.arrays.mapped import MappedArray, join_parts
from tfshards.prep.sources.arrays.npz import Member, list_members
from tfshards.prep.sources.classes import SPLIT_FOLDERS, usual_order
from tfshards.prep.sources.fetching import unreadable
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import listed
from tfshards.schemas.names import name_fault
from tfshards.schemas.storage import RemotePath, any_path

_SPLITS = frozenset(name.decode() for name in SPLIT_FOLDERS)


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
    """Return the arrays of all splits, concatenated, if names give splits; or else the arrays themselves."""
    found = _split_arrays(list(arrays))
    by_split: dict[str, dict[str, str]] = {}
    for name, (split, array) in found.items():
        other = by_split.setdefault(split, {}).setdefault(array, name)
        if other != name:
            raise InputError("arrays-same-split", other=other, name=name, array=array, split=split)
    splits = sorted(by_split, key=usual_order)
    wanted = list(dict.fromkeys(array for _, array in found.values()))
    num_rows: dict[str, int] = {}
    for split in splits:
        if missing := [array for array in wanted if array not in by_split[split]]:
            raise InputError("split-lacks-array", split=split, missing=missing[0])
        lengths = {name: arrays[name].num_rows for name in by_split[split].values()}
        if len(set(lengths.values())) > 1:
            counted = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InputError("split-arrays-differ", split=split, counted=counted)
        num_rows[split] = next(iter(lengths.values()))
    joined = dict(arrays) if not found else {}
    for array in wanted:
        names = [by_split[split][array] for split in splits]
        parts = [(f"array {name!r}", part) for name in names for part in arrays[name].parts]
        joined[array] = join_parts(array, parts)
    return JoinedSplits(joined, num_rows, {name: array for name, (_, array) in found.items()})


def _split_arrays(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the split and the array that each name means; empty if names give no splits."""
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        split, colon, array = name.partition(":")
        if colon:
            fault = name_fault(split)
            if fault or not array:
                what = f"the split name {fault}" if fault else "NAME is empty"
                raise InputError("array-split-name", name=name, what=what)
            found[name] = split, array
    if found:
        for other in names:
            if other not in found:
                raise InputError("array-without-split", other=other, explicit=next(iter(found)))
        return found
    usual = {name: parts for name in names if (parts := _usual(name))}
    return usual if len(usual) == len(names) and len({split for split, _ in usual.values()}) > 1 else {}


def _usual(name: str) -> tuple[str, str] | None:
    """Return split and array in a name such as ``x_train`` or ``train_images``; None for others."""
    name, slash, fields = name.partition("/")
    for array, _, split in (name.rpartition("_"), name.partition("_")[::-1]):
        if array and split.lower() in _SPLITS:
            return split.lower(), array + slash + fields
    return None


_NUMBERED = re.compile(r"(.+?)-([0-9]+)(?:-of-([0-9]+))?")
# The files of a pattern belong together, so other ways of numbering are accepted as well.
_NUMBERED_IN_PATTERN = re.compile(r"(.*?)[-_.]?([0-9]+)(?:-of-([0-9]+))?")
_FORMS = "NAME=FILE.npy, FILE.npy or FILE.npz"
_SHOWN = 5


def open_arguments(arguments: Sequence[str]) -> dict[str, GivenArray]:
    """Return the arrays that the arguments of ``Arrays.open`` describe, by name."""
    numbered = _numbered([path for name, path in map(_split, arguments) if name is None])
    arrays: dict[str, GivenArray] = {}
    for argument in arguments:
        for name, given in _arrays(argument, numbered):
            known = arrays.setdefault(name, given)
            if known is given:
                continue
            both = [each for each in (known, given) if isinstance(each, Files) and each.is_named]
            if len(both) < 2:
                raise OptionsError("array-names-repeated", argument=argument, name=name)
            if repeated := [path for path in both[1].paths if path in both[0].paths]:
                raise OptionsError("array-part-repeated", argument=argument, repeated=repeated[0], name=name)
            arrays[name] = Files(both[0].paths + both[1].paths)
    return arrays


def _split(argument: str) -> tuple[str | None, str]:
    """Return the name, or None, and the path in ``NAME=PATH`` or ``PATH``."""
    name, equals, path = argument.partition("=")
    # the name of a folder may contain "=", as in year=2024/
    return (name, path) if equals and "/" not in name else (None, argument)


def _arrays(argument: str, numbered: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Files | Member]]:
    """Yield the name and the files of each array that an argument adds."""
    name, path = _split(argument)
    if path.endswith(".npz") and name is None:
        for member in list_members(path):
            yield member, Member(path, member)
        return
    if not path.endswith(".npy") or name == "":
        raise OptionsError("array-argument", argument=argument, forms=_FORMS)
    feature, paths = Path(path).stem, [path]
    if name is None and path in numbered:
        feature, paths = _prefix(path, _NUMBERED), [*numbered[path]]
    elif glob.has_magic(path) and not any_path(path).exists():
        paths = _matches(argument, path)
        try:
            paths = _in_order(paths, _NUMBERED_IN_PATTERN)
        except ValueError as error:
            raise InputError("array-argument-fault", argument=argument, error=error) from None
        feature = _prefix(paths[0], _NUMBERED_IN_PATTERN)
    if not paths:
        return
    feature = feature if name is None else name
    if feature == "key" or not feature.isprintable():
        raise OptionsError("array-name-of-file", argument=argument, feature=feature)
    yield feature, Files((*paths,), is_named=name is not None)


def _numbered(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return the parts of arrays among the paths, by the first of each array; none for the other parts."""
    by_prefix: dict[str, list[str]] = {}
    lone = set()
    for path in paths:
        part = _NUMBERED.fullmatch(Path(path).stem) if path.endswith(".npy") else None
        if part:
            by_prefix.setdefault(part[1], []).append(path)
            # the number of a single file may mean anything, but "3-of-8" implies other parts
            lone |= set() if part[3] else {path}
    found: dict[str, list[str]] = {}
    for prefix, parts in by_prefix.items():
        if len(parts) == 1 and parts[0] in lone:
            continue
        found |= {part: [] for part in parts}
        try:
            found[parts[0]] = _in_order(parts, _NUMBERED)
        except ValueError as error:
            raise OptionsError("array-parts-fault", prefix=prefix, error=error) from None
    return found


def _prefix(path: str, pattern: re.Pattern[str]) -> str:
    found = pattern.fullmatch(Path(path).stem)
    return found[1] if found else ""


def _matches(argument: str, pattern: str) -> list[str]:
    given = any_path(pattern)
    try:
        remote = isinstance(given, RemotePath)
        paths = map(str, given.parent.glob(given.name)) if remote else glob.glob(pattern)
        found = sorted(paths)
    except OSError as error:
        raise unreadable(given.parent, error) from None
    if not found:
        raise InputError("array-no-file", argument=argument)
    return found


def _in_order(paths: Sequence[str], pattern: re.Pattern[str]) -> list[str]:
    """Return parts in the order of their numbers; ValueError unless these are 0, 1, ... or 1, 2, ...."""
    stems = {path: pattern.fullmatch(Path(path).stem) for path in paths}
    alike = {found and (Path(path).parent, found[1], found[3]) for path, found in stems.items()}
    if len(alike) > 1 or None in alike:
        raise ValueError(
            "the files are not numbered in the same way in one folder; give them in order as "
            "NAME=A.npy NAME=B.npy"
        )
    ((_, _, of),) = filter(None, alike)
    in_order = sorted((int(found[2]), path) for path in paths if (found := stems[path]))
    numbers, count = [number for number, _ in in_order], int(of) if of else len(in_order)
    if len(numbers) != count or numbers not in (list(range(count)), list(range(1, count + 1))):
        shown = listed([str(number) for number in numbers], _SHOWN)
        raise ValueError(
            f"the numbers {shown} must be 0 to {count - 1}, or 1 to {count}, each once; give every part, or "
            "name arrays that are not parts of one with NAME=FILE.npy"
        )
    return [path for _, path in in_order]
