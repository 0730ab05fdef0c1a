"""The verb ``append``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.arguments import add_shards, shard_counts_of
from tfshards.prep.cli.edited import run_edit
from tfshards.prep.cli.verb import BEAM_EPILOG, Result, Verb, add_dataset, add_max_rejected


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "source",
        nargs="+",
        metavar="SOURCE",
        help="inputs of the dataset with additions, or only new inputs: a folder of images, array arguments, "
        "or a table and, if its images are in another folder, that folder",
    )
    add_dataset(parser)
    add_shards(parser, "one per 128 MiB of new inputs")
    add_max_rejected(parser, "new inputs")
    add("--follow-links", action="store_true", help="follow links out of the folder of images")
    add(
        "--new-classes",
        action="store_true",
        help="add classes that the dataset does not have to the end of its class names",
    )
    add(
        "--checksum",
        action="store_true",
        help="compare the contents of all known inputs with their records, not only of those whose size or "
        "modification time has changed",
    )
    add("--dry-run", action="store_true", help="print what would be appended, and write nothing")
    parser.epilog = BEAM_EPILOG


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.derivation.append import append

    return run_edit(
        args,
        lambda log: append(
            args.source,
            args.dataset,
            shards=shard_counts_of(args.shards),
            max_rejected=args.max_rejected,
            follow_links=args.follow_links,
            new_classes=args.new_classes,
            checksum=args.checksum,
            dry_run=args.dry_run,
            beam_args=args.beam_args,
            log=log,
        ),
    )


APPEND = Verb(
    "append",
    "add new examples to a dataset in new shards, with the options of its build",
    _add_arguments,
    _run,
    takes_beam_args=True,
    is_resumable=True,
    takes_jobs=True,
)
