"""``Shuffle``: the order of each epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfshards.loader.options.validation import check_least, check_seed
from tfshards.schemas import OptionsError


@dataclass(frozen=True)
class Shuffle:
    """A different order in each epoch: a pure function of dataset, seed, epoch and global batch size.

    Attributes:
        seed: any integer of 64 bits.
        how: "runs" keeps short runs of neighbors together, so that files are read in long intervals, and
            draws each batch from ``lanes`` parts of the split; "full" permutes single records, each of
            which is then looked up on its own: for local disks and small records.
        run: the number of neighbors that stay together, at least 2; None for about 1 MiB of records, and
            fewer in small splits or where the records were not permuted before they were stored.
        lanes: the number of parts of the split from which a global batch is drawn; it divides the global
            batch size and is a multiple of the number of workers. None for the largest such number up to 256
            (64 for compressed shards).
    """

    seed: int = 0
    how: Literal["runs", "full"] = "runs"
    run: int | None = None
    lanes: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.seed, str) and self.seed in ("runs", "full"):
            raise OptionsError("shuffle-seed", seed=self.seed)
        check_seed("Shuffle.seed", self.seed)
        if self.how not in ("runs", "full"):
            raise OptionsError("shuffle-how", how=self.how)
        if self.how == "full" and (self.run is not None or self.lanes is not None):
            raise OptionsError("shuffle-full")
        if self.run is not None:
            check_least("Shuffle.run", self.run, 2)
        if self.lanes is not None:
            check_least("Shuffle.lanes", self.lanes, 1)
