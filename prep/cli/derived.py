"""What the verbs ``reshard`` and ``merge`` share: their options, and how they run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from tfshards.prep.cli.shard_arguments import add_shards, shard_counts_of, shard_size_of
from tfshards.prep.cli.verb import Result
from tfshards.prep.planning.options import Balance
from tfshards.schemas import Manifest
from tfshards.schemas.manifest import Compression


def add_derived_shards(parser: argparse.ArgumentParser) -> None:
    """Add the options of a dataset that is derived from others."""
    add = parser.add_argument
    add_shards(parser, "as many as before")
    add("--shard-size", metavar="SIZE", help="choose the number of shards by bytes per shard, such as 128MiB")
    add(
        "--balance",
        choices=get_args(Balance),
        help="balance shards by number of examples (default) or by bytes",
    )
    add(
        "--compression",
        choices=get_args(Compression),
        help="compression of the new shards (default: as before)",
    )
    add("--name", help="name of the new dataset (default: the last part of DATASET)")
    add(
        "--overwrite",
        action="store_true",
        help="replace an existing derived dataset that differs or is damaged",
    )


def run_derived(
    derive: Callable[..., Manifest],
    origins: str | Sequence[str] | Mapping[str, str],
    args: argparse.Namespace,
) -> Result:
    """Derive a dataset from ``origins`` with ``reshard`` or ``merge``, and return its manifest."""
    # imported late, because it is not needed to print help
    from tfshards.prep.derivation.shard_options import ShardOptions

    options = ShardOptions(
        shard_size=shard_size_of(args.shard_size),
        balance=args.balance,
        compression=args.compression,
        name=args.name,
    )
    made = derive(
        origins,
        args.dataset,
        shards=shard_counts_of(args.shards),
        overwrite=args.overwrite,
        options=options,
        log=args.log,
    )
    return Result.of_manifest(made)
