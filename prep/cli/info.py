"""The verb ``info``."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

from tfshards.prep.cli.verb import Result, Verb, add_dataset
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


def _run(args: argparse.Namespace) -> Result:
    if args.all_classes and args.json:
        raise OptionsError("all-with-json")
    manifest = read_manifest(args.dataset)
    found = Result.of_manifest(manifest)
    if args.all_classes:
        return replace(found, text=partial(manifest_text, manifest, all_classes=True))
    return found


INFO = Verb("info", "print the splits, features, classes and totals of a dataset", _add_arguments, _run)
