"""The verbs ``generations`` and ``restore``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.schemas.generations import Generation, generations
from tfshards.schemas.summary import table

_HEAD = ("build", "committed (UTC)", "examples", "made by", "")


def _add_generations(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)


def _run_generations(args: argparse.Namespace) -> Result:
    found = generations(args.dataset)
    return Result(
        lambda: "\n".join(table([_HEAD, *map(_row, found)])),
        lambda: {"generations": [generation.to_json() for generation in found]},
    )


def _row(generation: Generation) -> tuple[str, ...]:
    state = "current" if generation.is_current else ""
    if generation.num_damaged:
        state = f"{generation.num_damaged:,} damaged"
    return (
        generation.build_id,
        f"{generation.committed_at:%Y-%m-%d %H:%M:%S}",
        f"{generation.num_examples:,}",
        generation.made_by,
        state,
    )


def _add_restore(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument("build_id", metavar="BUILDID", help="build id of the generation, as in 'generations'")


def _run_restore(args: argparse.Namespace) -> Result:
    from tfshards.prep.building.generation import restore

    return Result.of_manifest(restore(args.dataset, args.build_id, log=args.log))


GENERATIONS = Verb(
    "generations",
    "list the dataset and the generations that it has replaced, until prune removes them",
    _add_generations,
    _run_generations,
)
RESTORE = Verb(
    "restore", "make an earlier generation of a dataset the dataset again", _add_restore, _run_restore
)
