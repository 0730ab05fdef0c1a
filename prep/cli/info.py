"""The verb ``info``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.verb import Verb, add_dataset, add_json, print_manifest
from tfshards.schemas import read_manifest


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    print_manifest(read_manifest(args.dataset), as_json=args.json)
    return 0


INFO = Verb("info", "print the splits, features, classes and totals of a dataset", _add_arguments, _run)
