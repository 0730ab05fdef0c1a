"""The verb ``audit``."""

from __future__ import annotations

import argparse
from typing import get_args

from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.schemas import OptionsError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    from tfshards.prep.auditing.findings import ExampleKind, Kind

    add_dataset(parser)
    parser.add_argument(
        "--distance",
        default="32",
        metavar="N",
        help="treat images as near duplicates if at most N of the 256 bits of their hashes differ; "
        "with none, find only identical bytes (default: 32)",
    )
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        choices=get_args(Kind),
        help="exit with status 1 if there is a finding of this kind; repeatable",
    )
    parser.add_argument(
        "--keys",
        metavar="FILE",
        help="write the keys of the examples that were found to this file, for tfshards remove; of equal "
        "or similar examples all but one, without those that have different labels",
    )
    parser.add_argument(
        "--keys-of",
        action="append",
        default=[],
        choices=get_args(ExampleKind),
        help="write the keys of findings of this kind; repeatable (default: leak and duplicate)",
    )


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.auditing.audit import audit

    found = audit(
        args.dataset,
        distance=_distance(args.distance),
        fail_on=args.fail_on,
        keys=args.keys,
        keys_of=args.keys_of,
    )
    return Result.of(found, 0 if found else 1)


def _distance(text: str) -> int | None:
    if text == "none":
        return None
    if not (text.isascii() and text.isdecimal()):
        raise OptionsError(f"distance={text!r} must be a number of bits, or none")
    return int(text)


AUDIT = Verb(
    "audit",
    "find examples in two splits, duplicates, rare classes and unusual image sizes",
    _add_arguments,
    _run,
)
