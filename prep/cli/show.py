"""The verbs ``info``, ``show``, ``report`` and ``diff``, which look at datasets."""

from __future__ import annotations

import argparse
from dataclasses import replace

from tfshards.prep.cli.arguments import add_options, values_of
from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.prep.views.tfds import INFO_NAME
from tfshards.schemas import OptionsError, read_manifest
from tfshards.schemas.manifest import manifest_text
from tfshards.schemas.storage import any_path
from tfshards.schemas.summary import escaped


def _add_info_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument(
        "--all",
        dest="all_classes",
        action="store_true",
        help="list every class with its full name, however many there are",
    )


def _run_info(args: argparse.Namespace) -> Result:
    if args.all_classes and args.json:
        raise OptionsError("all-with-json")
    manifest = read_manifest(args.dataset)

    def text() -> str:
        lines = [manifest_text(manifest, all_classes=args.all_classes)]
        if f"{manifest.folder}/{INFO_NAME}" in manifest.views:
            path = any_path(args.dataset) / manifest.folder
            lines.append(f'TensorFlow Datasets: tfds.builder_from_directory("{escaped(str(path))}")')
        return "\n".join(lines)

    return replace(Result.of_manifest(manifest), text=text)


INFO = Verb(
    "info",
    "print the splits, features, classes and totals of a dataset",
    _add_info_arguments,
    _run_info,
    takes_jobs=False,
)


def _add_show_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument(
        "key",
        metavar="KEY",
        nargs="?",
        help="key of the example (path relative to the image folder, or row number), or its position as "
        "SPLIT:NUMBER; where keys are not row numbers and there is one split, also as NUMBER; with "
        "--first a split (default: the first example)",
    )
    parser.add_argument("--first", type=int, metavar="N", help="print the first N examples of the split KEY")
    parser.add_argument("--save", metavar="FILE", help="write the encoded image to this file as well")


def _run_show(args: argparse.Namespace) -> Result:
    from tfshards.prep.verification.show import show

    found = show(args.dataset, args.key, first=args.first, save=args.save)
    # with an empty line between two examples
    texts = (f"\n{one!r}" if number else repr(one) for number, one in enumerate(found))
    return Result(lambda: texts, lambda: {"examples": [one.to_json() for one in found]})


SHOW = Verb("show", "print examples by key or by number", _add_show_arguments, _run_show, takes_jobs=False)


def _add_report_arguments(parser: argparse.ArgumentParser) -> None:
    from tfshards.prep.reporting.options import ReportOptions

    add_dataset(parser)
    add = parser.add_argument
    add("--output", metavar="FILE", help="file of the page (default: NAME-report.html)")
    add(
        "--audit",
        action=argparse.BooleanOptionalAction,
        help="read all records, to find leaks and duplicates (default: of at most 20,000 examples)",
    )
    add_options(parser, ReportOptions)


def _run_report(args: argparse.Namespace) -> Result:
    from tfshards.prep.reporting.options import ReportOptions
    from tfshards.prep.reporting.report import report

    options = ReportOptions(**values_of(args, ReportOptions), audit=args.audit)
    page = str(report(args.dataset, args.output, options=options))
    return Result(lambda: page, lambda: {"page": page})


REPORT = Verb("report", "write a page of HTML that shows a dataset", _add_report_arguments, _run_report)


def _add_diff_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="DATASET", help="folder of the first dataset")
    parser.add_argument("dataset", metavar="OTHER", help="folder of the second dataset")
    parser.epilog = "Exit status: 0 if nothing differs, 1 if something does."


def _run_diff(args: argparse.Namespace) -> Result:
    from tfshards.prep.deriving.diff import diff

    found = diff(args.source, args.dataset)
    return Result.of(found, 0 if found.is_same else 1)


DIFF = Verb(
    "diff",
    "print the examples and options in which two datasets differ",
    _add_diff_arguments,
    _run_diff,
    takes_jobs=False,
)
