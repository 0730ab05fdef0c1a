"""The verb ``adopt``: its arguments, and what it runs."""

from __future__ import annotations

import argparse
import sys
from typing import TypeVar

from tfshards.prep.adoption.roles import Roles, parse_raw
from tfshards.prep.adoption.split_names import parse_globs
from tfshards.prep.classes import read_labels
from tfshards.prep.print import info_text
from tfshards.schemas import FormatError, one_line

Parser = TypeVar("Parser", bound=argparse.ArgumentParser)


def add_adopt_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add ``adopt`` to the verbs."""
    text = "make TFRecord files that were made elsewhere a dataset, without touching them"
    parser = verbs.add_parser("adopt", help=text, description=text)
    add = parser.add_argument
    add("out", metavar="DIR", help="folder of TFRecord files, plain or gzip")
    add("--name", help="of the dataset (TFDS's, or the folder's)")
    split = "files of a split, such as train='train-*' (told by folders and names); others are left out"
    add("--split", action="append", default=[], metavar="NAME=GLOB", help=split)
    add("--labels", metavar="FILE", help="class names in label order, one a line (TFDS's, or none)")
    add("--label", metavar="FEATURE", help="integers that are classes (label or class, if there is one)")
    images = "byte strings of which each must be an image; others are told by their values"
    add("--image", action="append", default=[], metavar="FEATURE", help=images)
    raw = "tensors stored as little-endian bytes, such as image_raw=uint8[28,28,1]"
    add("--raw", action="append", default=[], metavar="NAME=DTYPE[SHAPE]", help=raw)
    add("--drop", action="append", default=[], metavar="FEATURE", help="left out of the schema")
    missing = "go without files that are missing by the numbers in the names of the others"
    add("--allow-missing", action="store_true", help=missing)
    add("--overwrite", action="store_true", help="replace the manifest that is there")
    add("--json", action="store_true", help="print the manifest")
    parser.set_defaults(run=_adopt, parser=parser)


def _adopt(options: argparse.Namespace) -> int:
    from tfshards.prep.adoption.adopt import adopt
    from tfshards.prep.adoption.manifest import AdoptOptions

    settings = AdoptOptions(
        name=options.name,
        splits=parse_globs(options.split),
        roles=Roles(options.label, tuple(options.image), parse_raw(options.raw), tuple(options.drop)),
        class_names=read_labels(options.labels) if options.labels is not None else None,
        allow_missing=options.allow_missing,
    )
    try:
        manifest = adopt(options.out, settings, overwrite=options.overwrite)
    except FormatError as error:
        # all of them: the message of an error is cut short
        print(one_line(f"tfshards: {error.subject}:"), file=sys.stderr)
        for problem in error.problems:
            print(f"  {problem}", file=sys.stderr)
        return 1
    print(manifest.to_text().strip() if options.json else info_text(manifest))
    return 0
