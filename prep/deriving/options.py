"""Options of the new shards of a derived dataset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tfshards.prep.option import check_choices, option
from tfshards.prep.planning.options import check_shard_size
from tfshards.schemas.compression import COMPRESSIONS, Compression
from tfshards.schemas.errors import parse_size


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
