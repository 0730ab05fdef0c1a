"""The verb ``verify``, with the option ``--repair``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.verb import Result, Verb, add_dataset


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    add = parser.add_argument
    add("--deep", action="store_true", help="read and check every record as well")
    add("--decode", action="store_true", help="decode every image as well; implies --deep")
    add(
        "--repair",
        action="store_true",
        help="rebuild damaged indexes, labels, keys and views, which follow from the shards and the "
        "manifest, and print the command that writes damaged shards again",
    )


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.verification.verify import verify

    report = verify(args.dataset, deep=args.deep, decode=args.decode, repair=args.repair)
    return Result.of(report, 0 if report else 1)


VERIFY = Verb(
    "verify",
    "compare sizes, digests, indexes, labels and keys of a dataset with its manifest",
    _add_arguments,
    _run,
)
