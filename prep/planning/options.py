"""Options of a build other than its source and seed, with the numbers of its shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from numbers import Integral
from typing import Literal, TypeAlias, get_args

from tfshards.prep.option import check_choices, option, to_json
from tfshards.prep.planning.splits import parse_fraction, parse_ratios
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.compression import COMPRESSIONS, Compression, recorded_release
from tfshards.schemas.errors import counted, parse_size, size
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import name_fault

Duplicates = Literal["keep", "drop", "fail"]

DEFAULT_SHARD_SIZE = 128 << 20
DEFAULT_MAX_REJECTED = "1%"


@dataclass(frozen=True)
class Options:
    """Options of a build.

    Attributes:
        splits: ratio of each split, in order; they add up to 1. If empty, the splits are those of the source,
            or a single split ``train``. Use a Fraction, or a string such as ``"1/3"`` or ``"90%"``, for a
            ratio that is not exact as a float.
        stratify: apply the ratios to each class separately; with groups, as nearly as whole groups allow.
        group_by: keep the examples of a group in one split; the kind of source defines the allowed values.
        shard_size: source bytes per shard, if the number of shards is not given; 128 MiB by default.
        name: name of the dataset; by default the last part of its path.
        max_rejected: largest share of the inputs that may be rejected; the build fails if there are more.
        duplicates: ``keep`` all inputs with the same content, ``drop`` all but the one with the smallest key,
            or ``fail``.
        compression: compression of the shards; ``gzip`` makes shards of uncompressed examples smaller, and
            slower to read.

    Raises:
        OptionsError: an option is not allowed.
    """

    splits: Mapping[str, Fraction | float | str] = option(
        {},
        "split at random by ratio, such as --split train=0.9 --split val=0.1",
        flag="split",
        metavar="NAME=RATIO",
        is_repeatable=True,
        parse=parse_ratios,
        recorded="always",
        to_json=lambda splits: {name: str(ratio) for name, ratio in _exact(splits).items()},
    )
    stratify: bool = option(False, "apply the ratios to each class separately", recorded="always")
    group_by: str | None = option(
        None, "keep examples of one group in one split", metavar="WHAT", recorded="always"
    )
    shard_size: int | None = option(
        None,
        "choose the number of shards by source bytes per shard",
        metavar="SIZE",
        parse=partial(parse_size, name="shard_size"),
        default_text=size(DEFAULT_SHARD_SIZE).replace(" ", "").replace(".0", ""),
        recorded="never",
    )
    name: str | None = option(
        None, "name of the dataset", default_text="the last part of DATASET", recorded="never"
    )
    max_rejected: Fraction | float | str = option(
        DEFAULT_MAX_REJECTED,
        "fail if more than this share of the inputs is rejected",
        metavar="SHARE",
        recorded="never",
    )
    # "fail" is recorded as well: it shows that the dataset has no duplicates.
    duplicates: Duplicates = option(
        "keep",
        "keep examples with the same content, drop all but the one with the smallest key, or fail; content "
        "is the images, or the values of examples without images",
        choices=get_args(Duplicates),
    )
    compression: Compression = option(
        "none",
        "compression of the shards",
        choices=COMPRESSIONS,
        to_json=recorded_release,
    )

    def __post_init__(self) -> None:
        if not isinstance(self.splits, Mapping):
            raise OptionsError(
                f"splits={self.splits!r} must be a ratio for each split, as {{'train': 0.9, 'val': 0.1}}"
            )
        ratios = self.ratios
        for given, value in (("stratify=True", self.stratify), ("group_by=", self.group_by)):
            if value and not ratios:
                raise OptionsError(f'{given} requires ratios, such as splits={{"train": 0.9, "val": 0.1}}')
        check_choices(self)
        check_shard_size(self.shard_size)
        if self.name is not None and name_fault(self.name):
            raise OptionsError(f"name={name_fault(self.name)}")
        try:
            is_share = 0 <= self.rejected_share <= 1
        except (ValueError, ZeroDivisionError):
            is_share = False
        if not is_share:
            raise OptionsError(
                f"max_rejected={str(self.max_rejected)!r} must be from 0% to 100%, such as 1% or 0.01"
            )

    @property
    def ratios(self) -> dict[str, Fraction]:
        """Exact split ratios; a float is taken as the decimal number that it prints as."""
        return _exact(self.splits)

    @property
    def rejected_share(self) -> Fraction:
        """Exact value of ``max_rejected``."""
        return parse_fraction(str(self.max_rejected))

    def to_json(self) -> dict[str, Json]:
        """Return the options that change which bytes are written, for the build id and the manifest."""
        # shards differ by at most one example
        return {**to_json(self), "balance": "count"}


def _exact(splits: Mapping[str, Fraction | float | str]) -> dict[str, Fraction]:
    return parse_ratios([f"{name}={ratio}" for name, ratio in splits.items()])


def check_shard_size(shard_size: int | None) -> None:
    """Raise OptionsError if ``shard_size`` is given and is less than one byte."""
    if shard_size is not None and shard_size < 1:
        raise OptionsError(f"shard_size={shard_size} must be at least 1 byte")


@dataclass(frozen=True)
class ShardCounts:
    """Numbers of shards that a caller asks for, of single splits and of all others.

    Without ``default`` the number follows from the size of the shards.
    """

    default: int | None = None
    by_split: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        asked_for = {_asked(split, count): count for split, count in self.by_split.items()}
        if self.default is not None:
            asked_for[f"shards={self.default!r}"] = self.default
        for asked, count in asked_for.items():
            if not isinstance(count, Integral) or isinstance(count, bool):
                raise OptionsError(f'{asked} must be an integer, or a dict such as {{"train": 64, "val": 8}}')
            if count < 1:
                raise OptionsError(f"{asked} must be at least 1")

    @classmethod
    def of(cls, shards: Shards, shard_size: int | None = None) -> ShardCounts:
        """Return the numbers in an argument ``shards``: an int for all splits, or a dict by split.

        Raises:
            OptionsError: a number is not allowed, or a number for all splits and a size are given.
        """
        if not isinstance(shards, ShardCounts):
            shards = cls(None, dict(shards)) if isinstance(shards, Mapping) else cls(shards)
        if shards.default is not None and shard_size is not None:
            raise OptionsError("shards= and shard_size= exclude each other: give one of them")
        return shards

    def of_splits(
        self, num_examples: Mapping[str, int], by_size: Mapping[str, int], shard_size: int | None
    ) -> dict[str, int]:
        """Return the number of shards of each split, or raise InputError if what was asked for does not fit.

        Splits for which none is requested get ``by_size``, at most one per example; a split without examples
        gets one.
        """
        if unknown := sorted(set(self.by_split) - set(num_examples)):
            asked = _asked(unknown[0], self.by_split[unknown[0]])
            raise InputError(f"{asked} must name one of {', '.join(num_examples)}", code="split-unknown")
        if shard_size is not None and set(self.by_split) == set(num_examples):
            raise InputError("shard_size= has no effect: shards= names every split; leave out one of them")
        counts = {
            split: self.by_split.get(split, self.default or max(1, min(by_size[split], examples)))
            for split, examples in num_examples.items()
        }
        for split, count in counts.items():
            if count > max(1, num_examples[split]):
                asked = _asked(split, count) if split in self.by_split else f"shards={count}"
                raise too_many_shards(asked, split, counts, num_examples)
        return counts


# What functions accept as their argument ``shards``.
Shards: TypeAlias = int | Mapping[str, int] | ShardCounts | None


def too_many_shards(
    asked: str, split: str, counts: Mapping[str, int], num_examples: Mapping[str, int]
) -> InputError:
    """Return the error about a split with more shards, ``asked`` as in ``shards=3``, than examples."""
    most = {name: min(count, max(1, num_examples[name])) for name, count in counts.items()}
    text = json.dumps(most if len(most) > 1 else most[split])
    return InputError(
        f"{asked} exceeds the {counted(num_examples[split], 'example')} of split {split!r}; use at most "
        f"shards={text}",
        code="shards-too-many",
    )


def _asked(split: str, count: object) -> str:
    return f'shards={{"{split}": {count!r}}}'
