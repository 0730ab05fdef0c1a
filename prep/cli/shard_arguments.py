"""The arguments about shards of every verb that writes shards."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tfshards.prep.planning.shard_counts import ShardCounts
from tfshards.schemas import OptionsError
from tfshards.schemas.sizes import parse_size


def add_shards(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the option ``--shards``."""
    parser.add_argument(
        "--shards",
        action="append",
        default=[],
        metavar="[SPLIT=]N",
        help=f"number of shards of every split, or of one split; repeatable (default: {default})",
    )


def shard_counts_of(texts: Sequence[str]) -> ShardCounts:
    """Return the numbers of shards in texts such as ``64``, for every split, and ``val=8``, for one.

    Raises:
        OptionsError: a text is not of that form, or gives a number twice.
    """
    default: list[int] = []
    by_split: dict[str, int] = {}
    for text in texts:
        split, equals, number = text.rpartition("=")
        is_repeated = split in by_split if equals else bool(default)
        if not number.isdecimal() or (equals and not split):
            raise OptionsError(f"shards={text!r} must be a number, or SPLIT=NUMBER")
        if is_repeated:
            of = f"of split {split!r}" if equals else "of every split"
            raise OptionsError(f"shards={text!r} gives the number {of} a second time; give it once")
        if equals:
            by_split[split] = int(number)
        else:
            default.append(int(number))
    return ShardCounts(default[0] if default else None, by_split)


def shard_size_of(text: str | None) -> int | None:
    """Return the number of bytes that ``--shard-size`` gives, if it is given."""
    return None if text is None else parse_size(text, "shard_size")
