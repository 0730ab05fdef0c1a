"""Options of the new shards of a derived dataset, and what was asked for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tfshards.prep.deriving.layout import SplitLayout, new_layout
from tfshards.prep.deriving.stored import Origin
from tfshards.prep.planning.options import ShardCounts, check_shard_size
from tfshards.schemas import Split
from tfshards.schemas.compression import COMPRESSIONS, Compression, recorded_release
from tfshards.schemas.json_reader import Json
from tfshards.schemas.option import check_choices, option
from tfshards.schemas.sizes import parse_size


@dataclass(frozen=True)
class ShardOptions:
    """Options of new shards, except their number; None keeps those of the origins.

    Attributes:
        shard_size: bytes of records per shard, for splits whose number of shards is not given.
        compression: compression of the new shards.
        name: name of the new dataset; by default the last part of its path.

    Raises:
        OptionsError: an option is not allowed.
    """

    shard_size: int | None = option(
        None,
        "choose the number of shards by bytes per shard, such as 128MiB",
        metavar="SIZE",
        parse=partial(parse_size, name="shard_size"),
    )
    compression: Compression | None = option(
        None, "compression of the new shards", choices=COMPRESSIONS, default_text="as before"
    )
    name: str | None = option(None, "name of the new dataset", default_text="the last part of DATASET")

    def __post_init__(self) -> None:
        check_shard_size(self.shard_size)
        check_choices(self)

    @property
    def keeps_shards(self) -> bool:
        """Whether any existing shards satisfy these options."""
        return self.shard_size is None and self.compression is None


class NewShards(NamedTuple):
    """The new shards of some datasets: the layout of each split, and what manifests record of the shards."""

    layouts: Mapping[str, SplitLayout]
    compression: Compression
    options: Mapping[str, Json]


def new_shards(
    origins: Sequence[Origin], splits: Mapping[str, Split], asked: ShardCounts, options: ShardOptions
) -> NewShards:
    """Return the new shards of ``splits``, which hold the shards of all origins."""
    least, compression = options.shard_size, options.compression or origins[0].manifest.compression
    by_size = {
        name: math.ceil(split.record_bytes / least) if least else len(split.shards)
        for name, split in splits.items()
    }
    counts = asked.of_splits({name: split.num_examples for name, split in splits.items()}, by_size, least)
    layouts = {}
    for name, count in counts.items():
        held = [split for origin in origins if (split := origin.manifest.splits.get(name))]
        layouts[name] = new_layout([[shard.num_examples for shard in split.shards] for split in held], count)
    recorded: dict[str, Json] = {"shards": dict(counts)}
    if compression != "none":
        recorded["compression"] = {**recorded_release(compression)}
    return NewShards(layouts, compression, recorded)
