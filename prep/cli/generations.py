"""The verbs ``generations``, ``restore`` and ``prune``."""

from __future__ import annotations

import argparse

from tfshards.prep.building.generations import Generation, generations
from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.schemas.errors import one_line, size
from tfshards.schemas.json_reader import Json
from tfshards.schemas.summary import table

_HEAD = ("folder", "build", "committed (UTC)", "examples", "made by", "")


def _run_generations(args: argparse.Namespace) -> Result:
    found = generations(args.dataset)
    return Result(
        lambda: "\n".join(table([_HEAD, *map(_row, found)])),
        lambda: {"generations": [generation.to_json() for generation in found]},
    )


def _row(generation: Generation) -> tuple[str, ...]:
    state = f"{generation.num_damaged:,} damaged" if generation.num_damaged else ""
    return (
        generation.folder,
        generation.build_id or "",
        f"{generation.committed_at:%Y-%m-%d %H:%M:%S}",
        f"{generation.num_examples:,}",
        generation.made_by,
        state or ("current" if generation.is_current else ""),
    )


def _add_restore(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument("folder", metavar="FOLDER", help="folder of the generation, as in 'generations'")


def _run_restore(args: argparse.Namespace) -> Result:
    from tfshards.prep.building.generations import restore

    return Result.of_manifest(restore(args.dataset, args.folder))


GENERATIONS = Verb(
    "generations",
    "list the dataset and the generations that it has replaced, until prune removes them",
    add_dataset,
    _run_generations,
    takes_jobs=False,
)
RESTORE = Verb(
    "restore",
    "make an earlier generation of a dataset the dataset again",
    _add_restore,
    _run_restore,
    takes_jobs=False,
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument("--dry-run", action="store_true", help="only print what would be removed")


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.building.generations import prune

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


PRUNE = Verb("prune", "remove files of earlier and unfinished builds", _add_arguments, _run, takes_jobs=False)
