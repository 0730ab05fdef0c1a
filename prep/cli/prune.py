"""The verb ``prune``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.verb import Verb, add_dataset
from tfshards.schemas.errors import one_line
from tfshards.schemas.sizes import size


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument("--dry-run", action="store_true", help="only print what would be removed")


def _run(args: argparse.Namespace) -> int:
    from tfshards.prep.building.prune import prune

    found = prune(args.dataset, dry_run=args.dry_run)
    done = "would remove" if args.dry_run else "removed"
    for item in found:
        print(one_line(f"{done} {item.path} ({size(item.num_bytes)})"))
    total = size(sum(item.num_bytes for item in found))
    print(one_line(f"{args.dataset}: {done} {total}" if found else f"{args.dataset}: nothing to remove"))
    return 0


PRUNE = Verb("prune", "remove files of earlier and unfinished builds", _add_arguments, _run)
