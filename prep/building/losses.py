"""Warnings about conversions of images that lose what the files hold, with the option that keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfshards.prep.writing.area import FinishedShard
from tfshards.schemas.errors import counted
from tfshards.schemas.summary import LOSSES


def loss_warnings(shards: Iterable[FinishedShard]) -> Iterator[str]:
    """Yield a warning for each kind of loss in these shards: a count, an example, and the remedy."""
    shards = list(shards)
    for loss in LOSSES:
        count = sum(shard.conversions.get(loss.conversion, 0) for shard in shards)
        if count and loss.done:
            keys = [shard.converted_keys.get(loss.conversion, "") for shard in shards]
            example = min(filter(None, keys), default="")
            such = f", such as {example!r}" if example else ""
            yield f"{counted(count, 'image')} {loss.done}{such}; {loss.remedy}"
