"""The verb ``export``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.verb import Result, Verb, add_dataset


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    add = parser.add_argument
    add("directory", metavar="DIR", help="output folder: new, or of an unfinished export to resume")
    add(
        "--to",
        required=True,
        choices=("webdataset", "parquet"),
        help="format: webdataset (tar files) or parquet (for Hugging Face datasets)",
    )
    add("--select", metavar="NAMES", help="comma-separated names of the features to export (default: all)")
    add("--as-bytes", metavar="NAMES", default="", help="comma-separated names of features that are not text")


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.exporting.export import export

    select = None if args.select is None else args.select.split(",")
    made = export(
        args.dataset,
        args.directory,
        to=args.to,
        select=select,
        as_bytes=args.as_bytes.split(",") if args.as_bytes else (),
        engine=args.engine,
        beam_args=args.beam_args,
    )
    return Result.of(made)


EXPORT = Verb(
    "export",
    "write the examples of a dataset in the format of another tool",
    _add_arguments,
    _run,
    takes_beam_args=True,
    is_resumable=True,
)
