"""What a build can be asked for beyond its source, number of shards and seed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, get_args

from tfshards.prep.splits import check_ratios, parse_ratios
from tfshards.schemas import OptionsError
from tfshards.schemas.manifest import Compression, name_fault
from tfshards.schemas.reading import Json

Balance = Literal["count", "bytes"]
Duplicates = Literal["keep", "drop", "fail"]

DEFAULT_SHARD_SIZE = 128 << 20


@dataclass(frozen=True)
class Options:
    """Options of a build; each default is what a user gets who says nothing.

    Attributes:
        splits: ratio of each split, in order, adding up to 1; empty for the source's own splits, or one
            split ``train``. Give a Fraction, or a string such as ``"1/3"`` or ``"90%"``, where a float is
            not exact.
        stratify: split each class by the ratios, rather than all examples together.
        group_by: examples of one group stay in one split; what it may be is the source's affair.
        shards_by_split: number of shards of single splits, where it is not that of all.
        shard_size: source bytes a shard, if the number of shards is not given; 128 MiB by default.
        balance: ``count``: shards differ by at most one example; ``bytes``: by as few source bytes as
            longest-first packing gives.
        name: of the dataset; by default the last part of the output's path.
        max_rejected: the build fails if more than this share of the inputs is rejected.
        duplicates: of inputs with the same content ``keep`` all, ``drop`` all but the one with the smallest
            key, or ``fail``.
        compression: of the shards: ``gzip`` makes them smaller where examples are not compressed already,
            and slower to read.

    Raises:
        OptionsError: an option is not allowed, or two exclude each other.
    """

    splits: Mapping[str, Fraction | float | str] = field(default_factory=dict)
    stratify: bool = False
    group_by: str | None = None
    shards_by_split: Mapping[str, int] = field(default_factory=dict)
    shard_size: int | None = None
    balance: Balance = "count"
    name: str | None = None
    max_rejected: Fraction | float | str = Fraction(1, 100)
    duplicates: Duplicates = "keep"
    compression: Compression = "none"

    def __post_init__(self) -> None:
        check_ratios(self.ratios)
        if self.stratify and self.group_by:
            raise OptionsError(
                "--stratify and --group-by cannot be combined: a group may hold several classes"
            )
        for option, value in (("--stratify", self.stratify), ("--group-by", self.group_by)):
            if value and not self.splits:
                raise OptionsError(f"{option} needs ratios: give --split train=0.9 --split val=0.1")
        if self.balance not in get_args(Balance):
            raise OptionsError(f"--balance {self.balance}: must be one of {', '.join(get_args(Balance))}")
        if self.duplicates not in get_args(Duplicates):
            allowed = ", ".join(get_args(Duplicates))
            raise OptionsError(f"--duplicates {self.duplicates}: must be one of {allowed}")
        if self.compression not in get_args(Compression):
            allowed = " or ".join(get_args(Compression))
            raise OptionsError(f"--compression {self.compression}: must be {allowed}")
        if self.shard_size is not None and self.shard_size < 1:
            raise OptionsError(f"--shard-size {self.shard_size}: must be at least one byte")
        for split, count in self.shards_by_split.items():
            if count < 1:
                raise OptionsError(f"--shards {split}={count}: must be at least 1")
        if self.name is not None and name_fault(self.name):
            raise OptionsError(f"--name {name_fault(self.name)}")
        if not 0 <= self.rejected_share <= 1:
            meant = f"; was {self.max_rejected}% meant?" if 2 <= self.rejected_share <= 100 else ""
            raise OptionsError(f"--max-rejected {self.max_rejected}: must lie between 0% and 100%{meant}")

    @property
    def ratios(self) -> dict[str, Fraction]:
        """The split ratios, exactly; a float counts as the decimal number that it prints as."""
        return parse_ratios([f"{name}={ratio}" for name, ratio in self.splits.items()])

    @property
    def rejected_share(self) -> Fraction:
        """``max_rejected``, exactly."""
        return parse_share(str(self.max_rejected))

    def to_json(self) -> dict[str, Json]:
        """Return the options that change which bytes are written, for the build id and the manifest."""
        return {
            "splits": {name: str(ratio) for name, ratio in self.ratios.items()},
            "stratify": self.stratify,
            "group_by": self.group_by,
            "balance": self.balance,
            # "fail" as well: the manifest then says that there are none
            **({} if self.duplicates == "keep" else {"duplicates": self.duplicates}),
            # another release of zlib may make other bytes
            **({} if self.compression == "none" else {"compression": {"gzip": zlib.ZLIB_RUNTIME_VERSION}}),
        }


def parse_share(text: str) -> Fraction:
    """Return the share in a text such as ``1%`` or ``0.01``.

    Raises:
        OptionsError: the text is not of that form.
    """
    try:
        return Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise OptionsError(f"--max-rejected {text}: must be a share such as 1% or 0.01") from None
