"""The verb ``show``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tfshards.prep.cli.verb import Verb, add_dataset
from tfshards.schemas import InputError
from tfshards.schemas.files import local_path

if TYPE_CHECKING:
    from tfshards.prep.verification.show import Found


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument(
        "key", metavar="KEY", help="key of the example: path relative to the image folder, or row number"
    )
    parser.add_argument("--save", metavar="FILE", help="write the encoded image to this file as well")


def _run(args: argparse.Namespace) -> int:
    from tfshards.prep.verification.show import find

    found = find(args.dataset, args.key)
    print(example_text(found))
    if args.save:
        images = [feature.name for feature in found.schema.features if feature.is_encoded]
        if not images:
            raise InputError("save= writes an image, but the dataset has no images; leave it out")
        data = found.values[images[0]][0]
        assert isinstance(data, bytes)
        local_path(args.save).write_bytes(data)
    return 0


def example_text(found: Found) -> str:
    """Return the position of an example and the value of each feature as text."""
    from tfshards.prep.verification.show import description

    lines = [f"split {found.split}, record {found.record} of {found.shard}"]
    lines += [
        f"{feature.name}: {description(feature, found.schema, found.values[feature.name])}"
        for feature in found.schema.features
    ]
    return "\n".join(lines)


SHOW = Verb("show", "print the example with a given key", _add_arguments, _run)
