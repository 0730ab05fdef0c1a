"""Warnings about conversions of images that lose what the files hold, with the option that keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tfshards.prep.writing.area import FinishedShard


class _Loss(NamedTuple):
    """Conversions that lose something.

    Attributes:
        conversions: names of the conversions, as manifests count them.
        done: what was done to the images.
        remedy: how to keep what was lost.
    """

    conversions: tuple[str, ...]
    done: str
    remedy: str


_LOSSES = (
    _Loss(
        ("16 bits to 8", "32 bits to 8"),
        "with more than 8 bits per sample: reduced to 8",
        "depth=16 keeps their values",
    ),
    _Loss(
        ("alpha over white",),
        "with transparency: drawn over white",
        "alpha='keep' and channels=4 store it, alpha='drop' leaves the colors as they are",
    ),
    _Loss(
        ("float to 8 bits",),
        "of floating point numbers: reduced to 8 bits",
        "'tfshards build arrays' stores arrays of them as they are",
    ),
)


def loss_warnings(shards: Iterable[FinishedShard]) -> Iterator[str]:
    """Yield a warning for each kind of loss in these shards: a count, an example, and the remedy."""
    shards = list(shards)
    for loss in _LOSSES:
        count = sum(shard.conversions.get(name, 0) for shard in shards for name in loss.conversions)
        if count:
            keys = [shard.converted_keys.get(name, "") for shard in shards for name in loss.conversions]
            example = min(filter(None, keys), default="")
            such = f", such as {example!r}" if example else ""
            images = "1 image" if count == 1 else f"{count:,} images"
            yield f"{images} {loss.done}{such}; {loss.remedy}"
