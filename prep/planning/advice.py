"""Advice on a plan: the size and number of its shards, and classes with few examples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tfshards.prep.planning.options import DEFAULT_SHARD_SIZE
from tfshards.prep.planning.plan import Plan
from tfshards.schemas.errors import listed
from tfshards.schemas.sizes import size

# The tail of a build, in which workers have no shard left, is then about a fifth of its time at most.
_SHARDS_PER_WORKER = 4
# Bytes of a source for whose build the number of workers matters.
_LARGE_BUILD = 1 << 30
# A few small shards do no harm.
_MANY_SHARDS, _SMALL_SHARD = 16, 10 << 20
# Larger shards are repaired, resumed and copied in large pieces.
_LARGE_SHARD = 1 << 30
# Fewer examples of a class say little about it.
_FEW_EXAMPLES = 10
_SHOWN = 3


def shard_advice(plan: Plan) -> Iterator[str]:
    """Yield how many workers the shards of a large build keep busy, and whether shards are small or large."""
    num_shards = sum(map(len, plan.layouts.values()))
    num_bytes = int(plan.listing.sizes.sum())
    if num_bytes >= _LARGE_BUILD:
        workers = max(1, num_shards // _SHARDS_PER_WORKER)
        yield (
            f"{num_shards:,} shards keep {workers:,} worker{'s' if workers > 1 else ''} busy until the build "
            f"ends, with {_SHARDS_PER_WORKER} for each; more workers need more shards"
        )
    if num_shards > _MANY_SHARDS and num_bytes < num_shards * _SMALL_SHARD:
        yield (
            f"{num_shards:,} shards hold only {size(num_bytes // num_shards)} each; fewer are faster to "
            f"read: the default size is {size(DEFAULT_SHARD_SIZE)}, and {size(_SMALL_SHARD)} is enough"
        )
    for split, layout in plan.layouts.items():
        largest = max(int(plan.listing.sizes[shard].sum()) for shard in layout)
        num_examples = sum(map(len, layout))
        if largest > _LARGE_SHARD and num_examples > len(layout):
            enough = min(num_examples, math.ceil(largest * len(layout) / _LARGE_SHARD))
            yield (
                f"the shards of {split!r} hold up to {size(largest)}; with {enough:,} or more, at most "
                f"{size(_LARGE_SHARD)} has to be written again after a crash or a repair: see shards="
            )


def class_advice(counts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield a line for each split in which classes have few examples.

    Args:
        counts: number of examples of each class, by split. A warning names classes without examples.
    """
    for split, of_class in counts.items():
        few = sorted((count, name) for name, count in of_class.items() if 0 < count < _FEW_EXAMPLES)
        if few:
            are = "1 class has" if len(few) == 1 else f"{len(few):,} classes have"
            some = listed([f"{name!r} ({count:,})" for count, name in few], _SHOWN)
            yield f"{are} fewer than {_FEW_EXAMPLES} examples in {split!r}: {some}"
