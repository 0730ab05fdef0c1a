"""Options of the new shards of a derived dataset."""

from __future__ import annotations

from dataclasses import dataclass

from tfshards.prep.option import check_choices
from tfshards.prep.planning.options import parse_shard_size
from tfshards.schemas.compression import Compression


@dataclass(frozen=True)
class ShardOptions:
    """Options of new shards, except their number.

    Attributes:
        shard_size: bytes of records per shard, such as "256MiB", for splits whose number of shards is not
            given.
        compression: compression of the new shards; by default as before.
        name: name of the new dataset; by default the last part of its path.

    Raises:
        OptionsError: an option is not allowed.
    """

    shard_size: str | int | None = None
    compression: Compression | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        parse_shard_size(self.shard_size)
        check_choices(self)

    @property
    def shard_bytes(self) -> int | None:
        """Bytes of records per shard; None if their number stays as it is."""
        return parse_shard_size(self.shard_size)

    @property
    def keeps_shards(self) -> bool:
        """Whether any existing shards satisfy these options."""
        return self.shard_size is None and self.compression is None
