"""The verb ``info``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.verb import Verb, add_dataset, add_json, print_manifest
from tfshards.schemas import OptionsError, read_manifest
from tfshards.schemas.summary import manifest_text


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument(
        "--all",
        dest="all_classes",
        action="store_true",
        help="list every class with its full name, however many there are",
    )
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    if args.all_classes and args.json:
        raise OptionsError(
            "all_classes=True has no effect with --json, which lists every class; leave it out"
        )
    manifest = read_manifest(args.dataset)
    if args.all_classes:
        print(manifest_text(manifest, all_classes=True))
    else:
        print_manifest(manifest, as_json=args.json)
    return 0


INFO = Verb("info", "print the splits, features, classes and totals of a dataset", _add_arguments, _run)
