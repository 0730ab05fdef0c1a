"""Arrays as arguments of a command line name them, and splits that follow from names of arrays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tfshards.prep.sources.arrays.mapped import Layout, MappedArray, MappedFile
from tfshards.prep.sources.arrays.npz import Member, list_members
from tfshards.prep.sources.splits import usual_order, usual_split
from tfshards.schemas import InputError, OptionsError


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


def join_splits(arrays: Mapping[str, MappedFile]) -> JoinedSplits:
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
        lengths = {name: arrays[name].layout.shape[0] for name in by_split[split].values()}
        if len(set(lengths.values())) > 1:
            counted = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InputError("split-arrays-differ", split=split, counted=counted)
        num_rows[split] = next(iter(lengths.values()))
    joined = {} if found else {name: MappedArray((file,)) for name, file in arrays.items()}
    for array in wanted:
        names = [by_split[split][array] for split in splits]
        joined[array] = _join(array, {name: arrays[name] for name in names})
    return JoinedSplits(joined, num_rows, {name: array for name, (_, array) in found.items()})


def _join(array: str, given: Mapping[str, MappedFile]) -> MappedArray:
    (first, wanted), *others = given.items()
    for name, file in others:
        if _item(file.layout) != _item(wanted.layout):
            shown = [f"{each.layout.stored} {each.layout.shape[1:]}" for each in (file, wanted)]
            raise InputError(
                "split-arrays-shape", array=array, name=name, found=shown[0], first=first, wanted=shown[1]
            )
    return MappedArray(tuple(given.values()))


def _item(layout: Layout) -> tuple[object, ...]:
    return layout.kind if layout.is_text else layout.name, layout.shape[1:]


def _split_arrays(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the split and the array that each name means; empty if names give no splits."""
    for name in names:
        split, colon, array = name.partition(":")
        if colon and usual_split(split):
            raise OptionsError("array-split-name", name=name, wanted=f"{array or 'x'}_{split}")
    usual = {name: parts for name in names if (parts := _usual(name))}
    return usual if len(usual) == len(names) and len({split for split, _ in usual.values()}) > 1 else {}


def _usual(name: str) -> tuple[str, str] | None:
    """Return split and array in a name such as ``x_train`` or ``train_images``; None for others."""
    for array, _, split in (name.rpartition("_"), name.partition("_")[::-1]):
        if array and (found := usual_split(split)):
            return found, array
    return None


_NUMBERED = re.compile(r"(.+?)-[0-9]+(?:-of-[0-9]+)?")
_FORMS = "NAME=FILE.npy, FILE.npy or FILE.npz"


def open_arguments(arguments: Sequence[str]) -> dict[str, str | Member]:
    """Return the arrays that the arguments of ``Arrays.open`` describe, by name."""
    stems = [
        Path(path).stem for name, path in map(_split, arguments) if name is None and path.endswith(".npy")
    ]
    numbered = Counter(found[1] for found in map(_NUMBERED.fullmatch, stems) if found)
    if several := [prefix for prefix, count in numbered.items() if count > 1]:
        raise OptionsError("array-in-parts", name=several[0])
    arrays: dict[str, str | Member] = {}
    for argument in arguments:
        for name, given in _arrays(argument):
            if name in arrays:
                raise OptionsError("array-names-repeated", argument=argument, name=name)
            arrays[name] = given
    return arrays


def _split(argument: str) -> tuple[str | None, str]:
    """Return the name, or None, and the path in ``NAME=PATH`` or ``PATH``."""
    name, equals, path = argument.partition("=")
    # the name of a folder may contain "=", as in year=2024/
    return (name, path) if equals and "/" not in name else (None, argument)


def _arrays(argument: str) -> Iterator[tuple[str, str | Member]]:
    """Yield the name and the file of each array that an argument adds."""
    name, path = _split(argument)
    if path.endswith(".npz") and name is None:
        for member in list_members(path):
            yield member, Member(path, member)
        return
    if not path.endswith(".npy") or name == "":
        raise OptionsError("array-argument", argument=argument, forms=_FORMS)
    feature = Path(path).stem if name is None else name
    if feature == "key" or not feature.isprintable():
        raise OptionsError("array-name-of-file", argument=argument, feature=feature)
    yield feature, path
