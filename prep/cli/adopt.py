"""The verb ``adopt``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.schemas import FormatError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser, "folder of TFRecord files, plain or compressed with gzip")
    add = parser.add_argument
    add("--name", help="name of the dataset (default: that of TFDS, or of the folder)")
    add(
        "--split",
        dest="splits",
        action="append",
        default=[],
        metavar="NAME=GLOB",
        help="files of a split, such as train='train-*'; other files are skipped (default: derived from the "
        "names of folders and files); repeatable",
    )
    add(
        "--class-names",
        metavar="FILE",
        help="file with the class names in label order, one per line (default: those of TFDS, if any)",
    )
    add(
        "--label",
        metavar="FEATURE",
        help="feature whose integers are classes (default: label or class, if one of them exists)",
    )
    add(
        "--image",
        dest="images",
        action="append",
        default=[],
        metavar="FEATURE",
        help="feature whose byte strings must all be images (default: recognized by value); repeatable",
    )
    add(
        "--raw",
        action="append",
        default=[],
        metavar="NAME=DTYPE[SHAPE]",
        help="feature that stores tensors as little-endian bytes, such as image_raw=uint8[28,28,1]; "
        "repeatable",
    )
    add(
        "--drop",
        action="append",
        default=[],
        metavar="FEATURE",
        help="feature that is left out of the schema; repeatable",
    )
    add(
        "--allow-missing",
        action="store_true",
        help="accept that files of a numbered series are missing",
    )
    add("--overwrite", action="store_true", help="replace an existing manifest of other files or options")


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.adoption.adopt import adopt
    from tfshards.prep.adoption.manifest import AdoptOptions
    from tfshards.prep.adoption.roles import FeatureRoles, parse_raw
    from tfshards.prep.adoption.split_names import parse_globs
    from tfshards.prep.sources.classes import read_class_names

    options = AdoptOptions(
        name=args.name,
        splits=parse_globs(args.splits),
        roles=FeatureRoles(args.label, tuple(args.images), parse_raw(args.raw), tuple(args.drop)),
        class_names=None if args.class_names is None else read_class_names(args.class_names),
        allow_missing=args.allow_missing,
    )
    try:
        manifest = adopt(args.dataset, options, overwrite=args.overwrite, log=args.log)
    except FormatError as error:
        error.max_listed = len(error.problems)
        raise
    return Result.of_manifest(manifest)


ADOPT = Verb(
    "adopt",
    "write a manifest for existing TFRecord files",
    _add_arguments,
    _run,
    takes_jobs=True,
)
