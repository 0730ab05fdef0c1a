"""The verbs ``build`` and ``plan``, which take the same arguments of a source."""

from __future__ import annotations

import argparse
from dataclasses import replace

from tfshards.prep.cli.arguments import settings_of, source_of
from tfshards.prep.cli.flags import with_flags
from tfshards.prep.cli.verb import Result, Verb
from tfshards.prep.progress.lines import report_line, report_warning
from tfshards.schemas.storage import any_path


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace an existing dataset whose inputs or options differ, or whose files are damaged",
    )
    parser.add_argument(
        "--checksum",
        action="store_true",
        help="do not trust modification times: write all shards again, and compare them with the dataset",
    )


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
        engine=args.engine,
        beam_args=args.beam_args,
    )
    return Result.of_manifest(manifest)


BUILD = Verb(
    "build",
    "build a dataset, or resume an interrupted build",
    _add_arguments,
    _run,
    takes_beam_args=True,
    is_resumable=True,
    has_kinds=True,
)


def _run_plan(args: argparse.Namespace) -> Result:
    from tfshards.prep.building.build import plan, wanted_of
    from tfshards.prep.building.state import inspect_output, outlook

    source = source_of(args)
    shards, options = settings_of(args)
    found = plan(source, args.dataset, shards=shards, seed=args.seed, options=options)
    report_warning(*found.warnings)
    report_line(*outlook(inspect_output(any_path(args.dataset)), wanted_of(found)))
    return Result.of(replace(found, warnings=tuple(with_flags(line, args.parser) for line in found.warnings)))


PLAN = Verb(
    "plan",
    "show what build would produce, without decoding images",
    lambda _: None,
    _run_plan,
    has_kinds=True,
)
