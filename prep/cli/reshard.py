"""The verb ``reshard``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.shard_arguments import add_derived_shards, shard_counts_of, shard_options_of
from tfshards.prep.cli.verb import Verb, add_dataset, add_json, print_manifest


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="folder of the dataset whose records are copied")
    add_dataset(parser, "folder of the new dataset; its last part is the default name")
    add_derived_shards(parser)
    add_json(parser, "print the new manifest as JSON")


def _run(args: argparse.Namespace) -> int:
    from tfshards.prep.derivation.reshard import reshard

    made = reshard(
        args.source,
        args.dataset,
        shards=shard_counts_of(args.shards),
        overwrite=args.overwrite,
        options=shard_options_of(args),
        log=args.log,
    )
    print_manifest(made, as_json=args.json)
    return 0


RESHARD = Verb(
    "reshard",
    "write the examples of a dataset to other shards, in a new folder",
    _add_arguments,
    _run,
    is_resumable=True,
)
