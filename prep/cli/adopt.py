"""The verb ``adopt``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.schemas import FormatError, OptionsError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser, "folder of TFRecord files, plain or compressed with gzip")
    add = parser.add_argument
    add("--name", help="name of the dataset (default: the name of the folder)")
    add(
        "--split",
        dest="splits",
        metavar="NAME=GLOB",
        action="append",
        help="files of a split, such as train='train-*'; other files are skipped; may be repeated (default: "
        "derived from the names of folders and files)",
    )
    add(
        "--label",
        metavar="FEATURE",
        help="feature whose integers are classes (default: label or class, if one of them exists)",
    )
    add("--class-names", metavar="FILE", help="file with the class names in label order, one per line")
    add("--overwrite", action="store_true", help="replace an existing manifest of other files or options")


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.adoption.adopt import adopt
    from tfshards.prep.sources.classes import read_class_names

    try:
        manifest = adopt(
            args.dataset,
            name=args.name,
            splits=_splits(args.splits or ()),
            label=args.label,
            class_names=None if args.class_names is None else read_class_names(args.class_names),
            overwrite=args.overwrite,
        )
    except FormatError as error:
        error.max_listed = len(error.problems)
        raise
    return Result.of_manifest(manifest)


def _splits(texts: Sequence[str]) -> dict[str, str]:
    """Return the patterns in texts such as ``train=part-0*``, by split."""
    splits: dict[str, str] = {}
    for text in texts:
        name, _, glob = text.partition("=")
        if not glob or name in splits:
            fault = "repeats a split" if glob else "must be NAME=GLOB, such as train='train-*'"
            raise OptionsError(f"splits={text!r} {fault}")
        splits[name] = glob
    return splits


ADOPT = Verb("adopt", "write a manifest for existing TFRecord files", _add_arguments, _run)
