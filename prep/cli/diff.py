"""The verb ``diff``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.verb import Result, Verb


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="DATASET", help="folder of the first dataset")
    parser.add_argument("dataset", metavar="OTHER", help="folder of the second dataset")
    parser.epilog = "Exit status: 0 if nothing differs, 1 if something does."


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.comparison.diff import diff

    found = diff(args.source, args.dataset)
    return Result.of(found, 0 if found.is_same else 1)


DIFF = Verb(
    "diff",
    "print the examples and options in which two datasets differ",
    _add_arguments,
    _run,
)
