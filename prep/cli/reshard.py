"""The verb ``reshard``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.derived import add_derived_shards, run_derived
from tfshards.prep.cli.verb import Result, Verb, add_dataset


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="folder of the dataset whose records are copied")
    add_dataset(
        parser, "folder of the new dataset, whose last part is the default name; or SOURCE, with --overwrite"
    )
    add_derived_shards(parser)


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.derivation.reshard import reshard

    return run_derived(reshard, args.source, args)


RESHARD = Verb(
    "reshard",
    "write the examples of a dataset to other shards, in a new folder or in place",
    _add_arguments,
    _run,
    is_resumable=True,
    takes_jobs=True,
)
