"""What the verbs ``remove`` and ``relabel`` share: their options, and how they run."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tfshards.prep.cli.flags import with_flags
from tfshards.prep.cli.verb import add_json, print_manifest
from tfshards.prep.progress.lines import Log, WarningLine
from tfshards.schemas import Manifest, OptionsError


def add_edit_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of an edit."""
    parser.add_argument(
        "--skip-unknown", action="store_true", help="ignore keys in FILE that the dataset does not have"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print which shards would be written, and write nothing"
    )
    add_json(parser, "print the new manifest as JSON")


def run_edit(args: argparse.Namespace, edit: Callable[[Log], Manifest]) -> int:
    """Run an edit, which gets a function that prints its lines, and print the new manifest."""
    if args.dry_run and args.json:
        raise OptionsError("json=True has no effect with dry_run=True; leave it out")

    def log(line: str) -> None:
        # the result of a dry run is its lines
        if args.dry_run and not isinstance(line, WarningLine):
            print(with_flags(line, args.parser))
        else:
            args.log(line)

    made = edit(log)
    if not args.dry_run:
        print_manifest(made, as_json=args.json)
    return 0
