"""The verb ``prune``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.schemas.errors import one_line
from tfshards.schemas.json_reader import Json
from tfshards.schemas.sizes import size


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument("--dry-run", action="store_true", help="only print what would be removed")


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.building.prune import prune

    found = prune(args.dataset, dry_run=args.dry_run)
    done = "would remove" if args.dry_run else "removed"
    total = sum(item.num_bytes for item in found)
    last = f"{args.dataset}: {done} {size(total)}" if found else f"{args.dataset}: nothing to remove"
    lines = [*(f"{done} {item.path} ({size(item.num_bytes)})" for item in found), last]
    files: list[Json] = [{"path": str(item.path), "num_bytes": item.num_bytes} for item in found]
    return Result(
        lambda: map(one_line, lines),
        lambda: {"dry_run": args.dry_run, "removed": files, "num_bytes": total},
    )


PRUNE = Verb("prune", "remove files of earlier and unfinished builds", _add_arguments, _run)
