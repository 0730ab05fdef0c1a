"""Determine the number of shards of each split from the requested numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import TypeAlias

from tfshards.schemas import InputError, OptionsError


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
            raise OptionsError("shards= and shard_size= exclude each other: give one of them")

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
            raise InputError(f"{asked} names an unknown split; the splits are {', '.join(num_examples)}")
        if shard_size is not None and set(self.by_split) == set(num_examples):
            raise InputError(
                "shard_size= has no effect, since shards= names every split; leave out one of them"
            )
        counts = {}
        for split, examples in num_examples.items():
            by_default = self.default or max(1, min(by_size[split], examples))
            counts[split] = self.by_split.get(split, by_default)
            if counts[split] > max(1, examples):
                is_own = split in self.by_split
                asked = _asked(split, counts[split]) if is_own else f"shards={counts[split]}"
                raise InputError(too_many_shards(asked, split, examples))
        return counts


# What functions accept as their argument ``shards``.
Shards: TypeAlias = int | Mapping[str, int] | ShardCounts | None


def too_many_shards(asked: str, split: str, num_examples: int) -> str:
    """Return the message for a split with more shards than examples; ``asked`` is as in ``shards=3``."""
    examples = f"{num_examples} example{'s' if num_examples > 1 else ''}"
    return f"{asked} exceeds the {examples} of split {split!r}; use at most {num_examples}"


def _asked(split: str, count: object) -> str:
    return f'shards={{"{split}": {count!r}}}'


def _check(asked: str, count: object) -> None:
    if not isinstance(count, Integral) or isinstance(count, bool):
        raise OptionsError(f'{asked} must be an integer, or a dict such as {{"train": 64, "val": 8}}')
    if count < 1:
        raise OptionsError(f"{asked} must be at least 1")
