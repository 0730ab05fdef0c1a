"""Determine the number of shards of each split from the requested numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import TypeAlias

from tfshards.schemas import InputError, OptionsError

# More shards than these, most of which hold one example, are a mistake in the unit of their size.
_MANY_SHARDS = 100


@dataclass(frozen=True)
class ShardCounts:
    """Numbers of shards that a caller asks for.

    Attributes:
        default: number of shards of every split that is not in ``by_split``; None to derive it from the size
            of the shards.
        by_split: numbers of shards of single splits.

    Raises:
        OptionsError: a number is not an integer of at least 1.
    """

    default: int | None = None
    by_split: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.default is not None:
            _check(f"shards={self.default!r}", self.default)
        for split, count in self.by_split.items():
            _check(_asked(split, count), count)

    @classmethod
    def of(cls, shards: Shards) -> ShardCounts:
        """Return the numbers in an argument ``shards``: an int for all splits, or a dict by split.

        Raises:
            OptionsError: the argument is of another type, or a number is out of range.
        """
        if isinstance(shards, ShardCounts):
            return shards
        if isinstance(shards, Mapping):
            return cls(None, dict(shards))
        return cls(shards)

    def check_shard_size(self, shard_size: int | None) -> None:
        """Raise OptionsError if both a number for every split and a size are given."""
        if self.default is not None and shard_size is not None:
            raise OptionsError("shards-and-size")

    def of_splits(
        self, num_examples: Mapping[str, int], by_size: Mapping[str, int], shard_size: int | None
    ) -> dict[str, int]:
        """Return the number of shards of each split.

        Args:
            num_examples: examples of each split; a split without examples gets one shard.
            by_size: number of shards of each split for which none is requested; at most one per example.
            shard_size: requested source bytes per shard, if any.

        Raises:
            InputError: a split does not exist or has fewer examples than shards, or the size has no effect.
        """
        unknown = sorted(set(self.by_split) - set(num_examples))
        if unknown:
            asked = _asked(unknown[0], self.by_split[unknown[0]])
            are = "only split is" if len(num_examples) == 1 else "splits are"
            raise InputError("split-unknown", asked=asked, are=are, num_examples=num_examples)
        if shard_size is not None and set(self.by_split) == set(num_examples):
            raise InputError("shard-size-useless")
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
    """Return the error about a split with more shards than examples.

    Args:
        asked: the number as it was given, such as ``shards=3``.
        split: the split.
        counts: number of shards of every split.
        num_examples: examples of every split.
    """
    examples = num_examples[split]
    if len(counts) == 1:
        return InputError("shards-too-many", asked=asked, examples=examples, split=split)
    most = {name: min(count, max(1, num_examples[name])) for name, count in counts.items()}
    return InputError(
        "shards-too-many-of-splits", asked=asked, examples=examples, split=split, most=json.dumps(most)
    )


def size_warnings(
    asked: ShardCounts, counts: Mapping[str, int], num_examples: Mapping[str, int], shard_size: int | None
) -> Iterator[str]:
    """Yield a warning for each split that a requested size cuts into many shards of single examples.

    Args:
        asked: the requested numbers of shards.
        counts: number of shards of each split.
        num_examples: examples of each split.
        shard_size: requested bytes per shard, if any.
    """
    for split, count in counts.items():
        is_by_size = shard_size is not None and split not in asked.by_split
        if is_by_size and count > _MANY_SHARDS and 2 * count > num_examples[split]:
            yield (
                f"shard_size={shard_size} makes {count:,} shards of the {num_examples[split]:,} examples of "
                f"split {split!r}; a size is in bytes, or has a unit, such as 128MiB"
            )


def _asked(split: str, count: object) -> str:
    return f'shards={{"{split}": {count!r}}}'


def _check(asked: str, count: object) -> None:
    if not isinstance(count, Integral) or isinstance(count, bool):
        raise OptionsError("shards-type", asked=asked)
    if count < 1:
        raise OptionsError("shards-range", asked=asked)
