"""The verb ``merge``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.shard_arguments import add_derived_shards, shard_counts_of, shard_options_of
from tfshards.prep.cli.verb import Verb, add_dataset, add_json, print_manifest


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="folders of two or more datasets")
    add_dataset(parser, "folder of the new dataset; its last part is the default name")
    add_derived_shards(parser)
    add_json(parser, "print the new manifest as JSON")
    parser.epilog = (
        "By default the shards of all datasets are linked or copied unchanged. With --shards, --shard-size, "
        "--balance or --compression the examples are mixed and written to new shards."
    )


def _run(args: argparse.Namespace) -> int:
    from tfshards.prep.derivation.merge import merge

    made = merge(
        args.sources,
        args.dataset,
        shards=shard_counts_of(args.shards),
        overwrite=args.overwrite,
        options=shard_options_of(args),
        log=args.log,
    )
    print_manifest(made, as_json=args.json)
    return 0


MERGE = Verb(
    "merge", "combine several datasets into one, split by split", _add_arguments, _run, is_resumable=True
)
