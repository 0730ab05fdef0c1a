"""Arrays of several splits: which array of which split a name means, and how they become one array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tfshards.prep.sources.arrays.mapped import MappedArray, MappedFile, MappedParts, join_parts
from tfshards.prep.sources.usual_splits import SPLIT_FOLDERS, usual_order
from tfshards.schemas import InputError
from tfshards.schemas.names import name_fault

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
