"""The verb ``merge``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.derived import add_derived_shards, run_derived
from tfshards.prep.cli.verb import Verb, add_dataset


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="folders of two or more datasets")
    add_dataset(parser, "folder of the new dataset; its last part is the default name")
    add_derived_shards(parser)
    parser.epilog = (
        "By default the shards of all datasets are linked or copied unchanged. With --shards, --shard-size, "
        "--balance or --compression the examples are mixed and written to new shards."
    )


def _run(args: argparse.Namespace) -> int:
    from tfshards.prep.derivation.merge import merge

    return run_derived(merge, args.sources, args)


MERGE = Verb(
    "merge", "combine several datasets into one, split by split", _add_arguments, _run, is_resumable=True
)
