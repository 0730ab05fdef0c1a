"""The verb ``relabel``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.edited import add_edit_options, run_edit
from tfshards.prep.cli.verb import Result, Verb, add_dataset


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument(
        "--labels",
        required=True,
        metavar="FILE",
        help="CSV, TSV, JSON Lines or Parquet file with the columns key and label, which is the name of a "
        "class, or its number if the classes have no names",
    )
    parser.add_argument(
        "--new-classes",
        action="store_true",
        help="add classes that the dataset does not have to the end of its class names",
    )
    add_edit_options(parser)


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.derivation.relabel import relabel

    return run_edit(
        args,
        lambda log: relabel(
            args.dataset,
            args.labels,
            new_classes=args.new_classes,
            skip_unknown=args.skip_unknown,
            dry_run=args.dry_run,
            log=log,
        ),
    )


RELABEL = Verb(
    "relabel",
    "give examples of a dataset other classes",
    _add_arguments,
    _run,
    is_resumable=True,
    takes_jobs=True,
)
