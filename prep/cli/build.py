"""The verb ``build``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.arguments import settings_of, source_of
from tfshards.prep.cli.verb import BEAM_EPILOG, Result, Verb


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace an existing dataset whose inputs or options differ, or whose files are damaged",
    )
    parser.add_argument(
        "--checksum",
        action="store_true",
        help="compare the contents of all inputs with what an earlier run wrote, not only of those whose "
        "modification time differs",
    )
    parser.epilog = BEAM_EPILOG


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.building.build import build

    source = source_of(args)
    shards, options = settings_of(args)
    manifest = build(
        source,
        args.dataset,
        shards=shards,
        seed=args.seed,
        overwrite=args.overwrite,
        options=options,
        checksum=args.checksum,
        beam_args=args.beam_args,
        log=args.log,
    )
    return Result.of_manifest(manifest)


BUILD = Verb(
    "build",
    "build a dataset, or resume an interrupted build",
    _add_arguments,
    _run,
    takes_beam_args=True,
    is_resumable=True,
    takes_jobs=True,
    has_kinds=True,
)
