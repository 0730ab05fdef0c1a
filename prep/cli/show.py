"""The verbs ``info``, ``show``, ``report`` and ``diff``, which look at datasets."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.prep.progress.lines import report_line
from tfshards.prep.records.dataset_files import check_new_file
from tfshards.prep.views.tfds import INFO_NAME
from tfshards.schemas import OptionsError, read_manifest
from tfshards.schemas.manifest import manifest_text
from tfshards.schemas.storage import any_path
from tfshards.schemas.storage.any_path import local_path
from tfshards.schemas.storage.verbs import put
from tfshards.schemas.summary import escaped

if TYPE_CHECKING:
    from tfshards.prep.verification.show import Found


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
    from tfshards.prep.verification.show import examples, find

    count = 1 if args.first is None else args.first
    if count < 1:
        raise OptionsError("first-range", count=count)
    if args.save and count > 1:
        raise OptionsError("save-with-first", count=count)
    if args.first is None and args.key is not None:
        found = iter([find(args.dataset, args.key)])
    else:
        found = examples(args.dataset, args.key, count)
    if args.save:
        ones = list(found)
        for one in ones:
            _save(one, args)
        found = iter(ones)
    # with an empty line between two examples
    texts = (f"\n{example_text(one)}" if number else example_text(one) for number, one in enumerate(found))
    return Result(lambda: texts, lambda: {"examples": [one.to_json() for one in found]})


def _save(found: Found, args: argparse.Namespace) -> None:
    images = [feature.name for feature in found.schema.features if feature.is_encoded]
    data = next(iter(found.values[images[0]]), None) if images else None
    if not isinstance(data, bytes):
        raise OptionsError("save-without-images")
    path = local_path(args.save)
    check_new_file(path, "the image", lambda file: file.read(len(data) + 1) == data)
    put(path, data)
    report_line(f"wrote the image to {args.save}")


def example_text(found: Found) -> str:
    """Return the position of an example and the value of each feature as text."""
    from tfshards.prep.verification.show import description

    lines = [f"split {found.split}, example {found.number}, record {found.record} of {found.shard}"]
    lines += [
        f"{feature.name}: {description(feature, found.schema, found.values[feature.name])}"
        for feature in found.schema.features
    ]
    return "\n".join(lines)


SHOW = Verb("show", "print examples by key or by number", _add_show_arguments, _run_show, takes_jobs=False)


def _add_report_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    add = parser.add_argument
    add("--output", metavar="FILE", help="file of the page (default: NAME-report.html)")
    add("--seed", type=int, default=0, help="random seed for the examples that are shown (default: 0)")
    add("--source", metavar="FOLDER", help="folder of the inputs, for thumbnails of rejected ones")
    add(
        "--audit",
        action=argparse.BooleanOptionalAction,
        help="read all records, to find leaks and duplicates (default: of at most 20,000 examples)",
    )


def _run_report(args: argparse.Namespace) -> Result:
    from tfshards.prep.reporting.report import report

    options = {name: getattr(args, name) for name in ("seed", "source", "audit")}
    return Result.of(report(args.dataset, args.output, **options))


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
