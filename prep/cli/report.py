"""The verb ``report``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.arguments import add_options, values_of
from tfshards.prep.cli.verb import Result, Verb, add_dataset


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    from tfshards.prep.reporting.options import ReportOptions

    add_dataset(parser)
    add = parser.add_argument
    add("--output", metavar="FILE", help="file of the page (default: NAME-report.html)")
    add("--png", metavar="FILE", help="write the contact sheet as a picture as well")
    add(
        "--audit",
        action=argparse.BooleanOptionalAction,
        help="read all records, to find leaks and duplicates (default: of at most 20,000 examples)",
    )
    add_options(parser, ReportOptions)


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.reporting.options import ReportOptions
    from tfshards.prep.reporting.report import report

    options = ReportOptions(**values_of(args, ReportOptions), audit=args.audit)
    page = str(report(args.dataset, args.output, png=args.png, options=options, log=args.log))
    paths = [page, args.png] if args.png else [page]
    return Result(lambda: iter(paths), lambda: {"page": page, "png": args.png})


REPORT = Verb(
    "report",
    "write a page of HTML that shows a dataset",
    _add_arguments,
    _run,
    takes_jobs=True,
)
