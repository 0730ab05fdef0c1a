"""Lay out: what was asked for new shards, and the rewrite that writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, get_args

from tfshards.prep.planning.options import Balance, ShardCounts, check_shard_size
from tfshards.prep.rewriting.layout import Rewrite, new_layout
from tfshards.prep.rewriting.origin import Origin
from tfshards.prep.writing.area import BuildArea
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
        balance: ``count`` (the default of new shards) for shards that differ by at most one example,
            ``bytes`` for shards of similar bytes of records, packed longest first.
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
    balance: Balance | None = option(
        None,
        "balance shards by number of examples (default) or by bytes",
        choices=get_args(Balance),
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
        return self.shard_size is None and self.balance is None and self.compression is None


class NewShards(NamedTuple):
    """What was asked for new shards of some datasets.

    Attributes:
        origins: the datasets.
        counts: number of shards of each split.
        balance: whether shards are balanced by number of examples or by bytes.
        compression: compression of the new shards.
    """

    origins: Sequence[Origin]
    counts: Mapping[str, int]
    balance: Balance
    compression: Compression

    @classmethod
    def of(
        cls,
        origins: Sequence[Origin],
        splits: Mapping[str, Split],
        asked: ShardCounts,
        options: ShardOptions,
    ) -> NewShards:
        """Return the new shards of ``splits``, which hold the shards of all origins.

        Raises:
            InputError: a split does not exist, or has fewer examples than shards.
        """
        least = options.shard_size
        by_size = {
            name: math.ceil(split.record_bytes / least) if least else len(split.shards)
            for name, split in splits.items()
        }
        num_examples = {name: split.num_examples for name, split in splits.items()}
        counts = asked.of_splits(num_examples, by_size, least)
        compression = options.compression or origins[0].manifest.compression
        return cls(origins, counts, options.balance or "count", compression)

    def to_json(self) -> dict[str, Json]:
        """Return the options for the manifest."""
        options: dict[str, Json] = {"shards": dict(self.counts), "balance": self.balance}
        if self.compression == "none":
            return options
        return {**options, "compression": {**recorded_release(self.compression)}}

    def rewrite(self, area: BuildArea, name: str) -> Rewrite:
        """Return the rewrite of all records into the new shards.

        Raises:
            InputError: an index or a file of labels of an origin is damaged.
        """
        splits = {
            split: new_layout(area, self.origins, split, count, self.balance)
            for split, count in self.counts.items()
        }
        return Rewrite(
            verb="reshard" if len(self.origins) == 1 else "merge",
            area=area,
            name=name,
            origins=self.origins,
            splits=splits,
            in_order=self.balance == "count",
            compression=self.compression,
        )
