"""Options of a build other than its source and seed, with the numbers of its shards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Integral
from typing import ClassVar, Literal, TypeAlias

from tfshards.prep.option import changed_options, check_choices
from tfshards.prep.planning.splits import exact_ratios, share_of
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.compression import Compression, recorded_release
from tfshards.schemas.errors import counted, parse_size
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import name_fault

Duplicates = Literal["keep", "drop", "fail"]

DEFAULT_SHARD_SIZE = 128 << 20
DEFAULT_MAX_REJECTED = "1%"


@dataclass(frozen=True)
class Options:
    """Options of a build.

    Attributes:
        splits: ratio of each split, in order, such as train=0.9 and val=0.1; they add up to 1. By default the
            splits are those of the source, or a single split "train". A text such as "1/3" or "90%", or a
            Fraction, is exact where a float is not.
        stratify: apply the ratios to each class separately; with groups, as nearly as whole groups allow.
        group_by: keep the examples of a group in one split. Images are grouped by "folder", or by the one
            (group) of a regular expression that is searched for in the key; rows by the values of a column or
            an array.
        shard_size: source bytes per shard, such as "256MiB", if the number of shards is not given; by default
            128 MiB.
        name: name of the dataset; by default the last part of its path.
        max_rejected: largest share of the inputs that may be rejected; with more the build fails.
        duplicates: keep all inputs with the same content, drop all but the one with the smallest key, or
            fail. The content is the images, or the values of examples without images.
        compression: compression of the shards; "gzip" makes shards of uncompressed examples smaller, and
            slower to read.

    Raises:
        OptionsError: an option is not allowed.
    """

    splits: Mapping[str, str | float | Fraction] = field(default_factory=dict)
    stratify: bool = False
    group_by: str | None = None
    shard_size: str | int | None = None
    name: str | None = None
    max_rejected: str | float | Fraction = DEFAULT_MAX_REJECTED
    duplicates: Duplicates = "keep"
    compression: Compression = "none"

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
        parse_shard_size(self.shard_size)
        if self.name is not None and name_fault(self.name):
            raise OptionsError(f"name={name_fault(self.name)}")
        share_of("max_rejected", self.max_rejected)

    @property
    def ratios(self) -> dict[str, Fraction]:
        """Exact split ratios."""
        return exact_ratios(self.splits)

    @property
    def shard_bytes(self) -> int:
        """Source bytes per shard."""
        return parse_shard_size(self.shard_size) or DEFAULT_SHARD_SIZE

    @property
    def rejected_share(self) -> Fraction:
        """Exact value of ``max_rejected``."""
        return share_of("max_rejected", self.max_rejected)

    def to_json(self) -> dict[str, Json]:
        """Return the options that change which bytes are written, for the build id and the manifest."""
        found: dict[str, Json] = {
            "splits": {name: str(ratio) for name, ratio in self.ratios.items()},
            "stratify": self.stratify,
            "group_by": self.group_by,
            # "fail" is recorded as well: it shows that the dataset has no duplicates
            **changed_options(self, ["duplicates"]),
        }
        if self.compression != "none":
            found["compression"] = {**recorded_release(self.compression)}
        # shards differ by at most one example
        return {**found, "balance": "count"}


def parse_shard_size(shard_size: str | int | None) -> int | None:
    """Return the bytes in ``shard_size``, which may be a text such as ``128MiB``.

    Raises:
        OptionsError: it is not a size, or is less than one byte.
    """
    if shard_size is None:
        return None
    num_bytes = parse_size(shard_size, "shard_size") if isinstance(shard_size, str) else shard_size
    if num_bytes < 1:
        raise OptionsError(f"shard_size={shard_size!r} must be at least 1 byte")
    return num_bytes


@dataclass(frozen=True)
class ShardCounts:
    """Numbers of shards that a caller asks for, of single splits and of all others.

    Without ``default`` the number follows from the size of the shards.
    """

    default: int | None = None
    by_split: Mapping[str, int] = field(default_factory=dict)

    # How a command line gives them, see ``parse``.
    METAVAR: ClassVar[str] = "[SPLIT=]N"

    def __post_init__(self) -> None:
        counts = [*self.by_split.values(), *([] if self.default is None else [self.default])]
        for count in counts:
            if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
                allowed = 'an integer of at least 1, or a dict such as {"train": 64, "val": 8}'
                raise OptionsError(f"shards={count!r} must be {allowed}")

    @classmethod
    def parse(cls, texts: Sequence[str]) -> ShardCounts:
        """Return the numbers in texts such as ``64``, for every split, and ``val=8``, for one.

        Raises:
            OptionsError: a text is of another form, or two are about the same splits.
        """
        found: dict[str, int] = {}
        for text in texts:
            split, equals, number = text.rpartition("=")
            if not number.isdecimal() or (equals and not split):
                raise OptionsError(
                    f"shards={text!r} must be N or SPLIT=N with a whole number, such as 64 or val=8"
                )
            if split in found:
                raise OptionsError(f"shards={text!r}: this number is given twice; leave out one of them")
            found[split] = int(number)
        return cls(found.pop("", None), found)

    @classmethod
    def of(cls, shards: Shards, shard_size: str | int | None = None) -> ShardCounts:
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
        self, num_examples: Mapping[str, int], by_size: Mapping[str, int], shard_size: str | int | None
    ) -> dict[str, int]:
        """Return the number of shards of each split, or raise InputError if what was asked for does not fit.

        Splits for which none is requested get ``by_size``, at most one per example; a split without examples
        gets one.
        """
        if unknown := sorted(set(self.by_split) - set(num_examples)):
            known = ", ".join(num_examples)
            raise InputError(f"shards= names {unknown[0]!r}; name some of {known}", code="split-unknown")
        if shard_size is not None and set(self.by_split) == set(num_examples):
            raise InputError("shard_size= has no effect: shards= names every split; leave out one of them")
        counts = {
            split: self.by_split.get(split, self.default or max(1, min(by_size[split], examples)))
            for split, examples in num_examples.items()
        }
        for split, count in counts.items():
            if count > max(1, num_examples[split]):
                raise too_many_shards(split, counts, num_examples)
        return counts


# What functions accept as their argument ``shards``.
Shards: TypeAlias = ShardCounts | int | Mapping[str, int] | None


def too_many_shards(split: str, counts: Mapping[str, int], num_examples: Mapping[str, int]) -> InputError:
    """Return the error about a split with more shards than examples."""
    most = {name: min(count, max(1, num_examples[name])) for name, count in counts.items()}
    text = json.dumps(most if len(most) > 1 else most[split])
    return InputError(
        f"shards={counts[split]} exceeds the {counted(num_examples[split], 'example')} of split {split!r}; "
        f"use at most shards={text}",
        code="shards-too-many",
    )
