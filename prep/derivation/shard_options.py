"""Options of the shards that reshard and merge write."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import get_args

from tfshards.prep.planning.options import Balance, check_shard_size
from tfshards.prep.planning.shard_counts import ShardCounts
from tfshards.schemas import Split
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import Compression
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
        None, "compression of the new shards", choices=get_args(Compression), default_text="as before"
    )
    name: str | None = option(None, "name of the new dataset", default_text="the last part of DATASET")

    def __post_init__(self) -> None:
        check_shard_size(self.shard_size)
        check_choices(self)

    @property
    def keeps_shards(self) -> bool:
        """Whether any existing shards satisfy these options."""
        return self.shard_size is None and self.balance is None and self.compression is None

    def num_shards(self, splits: Mapping[str, Split], counts: ShardCounts) -> dict[str, int]:
        """Return the number of new shards of each split.

        Args:
            splits: splits by name, each with the shards of all origins.
            counts: the requested numbers of shards.

        Raises:
            InputError: a split does not exist, or has fewer examples than shards.
        """
        by_size = {
            name: math.ceil(split.record_bytes / self.shard_size) if self.shard_size else len(split.shards)
            for name, split in splits.items()
        }
        num_examples = {name: split.num_examples for name, split in splits.items()}
        return counts.of_splits(num_examples, by_size, self.shard_size)

    def to_json(self, num_shards: Mapping[str, int], compression: Compression) -> dict[str, Json]:
        """Return the options of new shards for the manifest, given their number in each split."""
        # another release of zlib may write different bytes
        zlib_release: dict[str, Json] = {"gzip": zlib.ZLIB_RUNTIME_VERSION}
        options: dict[str, Json] = {"shards": dict(num_shards), "balance": self.balance or "count"}
        return options if compression == "none" else {**options, "compression": zlib_release}
