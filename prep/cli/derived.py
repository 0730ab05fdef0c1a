"""What the verbs ``reshard`` and ``merge`` share: their options, and how they run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

from tfshards.prep.cli.arguments import add_shards, shard_counts_of
from tfshards.prep.cli.options import add_options, values_of
from tfshards.prep.cli.verb import Result
from tfshards.schemas import Manifest


def add_derived_shards(parser: argparse.ArgumentParser) -> None:
    """Add the options of a dataset that is derived from others."""
    # imported late, because most commands do not need it
    from tfshards.prep.derivation.shard_options import ShardOptions

    add_shards(parser, "as many as before")
    add_options(parser, ShardOptions)
    parser.add_argument(
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

    made = derive(
        origins,
        args.dataset,
        shards=shard_counts_of(args.shards),
        overwrite=args.overwrite,
        options=ShardOptions(**values_of(args, ShardOptions)),
        log=args.log,
    )
    return Result.of_manifest(made)
