"""What the verbs ``remove``, ``relabel`` and ``append`` share: their options, and how they run."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tfshards.prep.cli.flags import with_flags
from tfshards.prep.cli.verb import Result
from tfshards.prep.progress.lines import Log, WarningLine
from tfshards.schemas import Manifest
from tfshards.schemas.json_reader import Json


def add_edit_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of an edit."""
    parser.add_argument(
        "--skip-unknown", action="store_true", help="ignore keys in FILE that the dataset does not have"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print which shards would be written, and write nothing"
    )


def run_edit(args: argparse.Namespace, edit: Callable[[Log], Manifest]) -> Result:
    """Run an edit, to which its lines are passed, and return its new manifest, or the lines of a dry run."""
    lines: list[Json] = []

    def log(line: str) -> None:
        if args.dry_run and not isinstance(line, WarningLine):
            lines.append(with_flags(line, args.parser))
        else:
            args.log(line)

    made = edit(log)
    if args.dry_run:
        return Result(lambda: map(str, lines), lambda: {"dry_run": True, "lines": lines})
    return Result.of_manifest(made)
