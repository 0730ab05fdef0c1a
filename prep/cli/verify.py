"""The verb ``verify``, with the option ``--repair``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.schemas import FormatError, OptionsError, Problem
from tfshards.schemas.names import MANIFEST_NAME


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
    from tfshards.prep.verification.report import VerificationReport
    from tfshards.prep.verification.verify import verify

    if args.repair:
        return _repair(args)
    try:
        report = verify(args.dataset, deep=args.deep, decode=args.decode)
    except FormatError as error:
        problems = (Problem(f"{MANIFEST_NAME}: {found.place}", found.message) for found in error.problems)
        report = VerificationReport(args.dataset, tuple(problems))
    return Result.of(report, 0 if report else 1)


def _repair(args: argparse.Namespace) -> Result:
    from tfshards.prep.verification.repair import repair

    for option in ("deep", "decode"):
        if getattr(args, option):
            raise OptionsError("repair-with-check", option=option)
    # the report lists the rebuilt files after the problems
    report = repair(args.dataset)
    return Result.of(report, 0 if report else 1)


VERIFY = Verb(
    "verify",
    "compare sizes, digests, indexes, labels and keys of a dataset with its manifest",
    _add_arguments,
    _run,
)
