"""The command ``tfshards``: the verbs of prep and of the loader, which they import when they run.

It belongs to neither room, since neither imports the other.
"""

from __future__ import annotations

import argparse
import os
from typing import NoReturn

from tfshards.prep.cli.main import entry
from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.prep.cli.verbs import VERBS as VERBS_OF_PREP
from tfshards.receipt_verbs import WHEN, WHICH
from tfshards.schemas import OptionsError, read_manifest


def _add_bench(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    add = parser.add_argument
    add("--split", metavar="NAME", help="name of the split (default: the only one)")
    add("--batch-size", type=int, default=32, metavar="N", help="examples per batch (default: 32)")
    add("--select", metavar="NAME,...", help="features to deliver (default: all)")
    add("--shuffle", type=int, metavar="SEED", help="read in a random order (default: the stored order)")
    add(
        "--size",
        metavar="HEIGHTxWIDTH",
        help="size of decoded images, or none to leave them encoded (default: 224x224, if there are images)",
    )
    add("--crop", choices=("center", "random", "shift"), help="crop images (default: resize the whole image)")
    add(
        "--flip",
        choices=("horizontal", "vertical", "horizontal_and_vertical"),
        help="flip half of the images",
    )
    add(
        "--dtype",
        choices=("uint8", "uint16", "int32", "int64", "float32", "float16", "bfloat16"),
        help="dtype of decoded images (default: the dtype of the feature)",
    )
    add("--channels", type=int, metavar="N", help="channels of decoded images: 1, 3 or 4")
    add("--method", choices=("bilinear", "nearest"), help="method of resizing")
    add("--normalize", choices=("unit", "symmetric", "imagenet"), help="scale values; needs --dtype float32")
    add(
        "--seconds",
        type=float,
        default=2.0,
        metavar="N",
        help="time to measure each of up to five stages (default: 2)",
    )


def _run_bench(args: argparse.Namespace) -> Result:
    manifest = read_manifest(args.dataset)
    has_images = any(feature.is_encoded for feature in manifest.schema.features)
    if not has_images and args.size not in (None, "none"):
        raise OptionsError("bench-size-no-images", size=args.size, dataset=args.dataset)
    size = _size(args.size, has_images=has_images)
    given = [name for name in _OF_IMAGES if getattr(args, name)]
    if size is None and given:
        raise OptionsError("bench-option-no-size", given=given[0], getattr=getattr(args, given[0]))
    _quiet_tensorflow()
    from tfshards import loader

    speeds = loader.bench(
        args.dataset,
        args.split,
        batch_size=args.batch_size,
        select=None if args.select is None else tuple(args.select.split(",")),
        shuffle=None if args.shuffle is None else loader.Shuffle(seed=args.shuffle),
        image=None
        if size is None
        else loader.Image(size=size, **{name: getattr(args, name) for name in _OF_IMAGES}),
        seconds=args.seconds,
    )
    return Result.of(speeds)


def _quiet_tensorflow() -> None:
    """Leave out what TensorFlow logs about processors and GPUs while it is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


_OF_IMAGES = ("crop", "flip", "dtype", "channels", "method", "normalize")


def _size(text: str | None, *, has_images: bool) -> tuple[int, int] | None:
    if text is None:
        return (224, 224) if has_images else None
    if text == "none":
        return None
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise OptionsError("bench-size-form", text=text)
    return int(height), int(width)


BENCH = Verb(
    "bench", "measure how fast this machine reads a dataset, and what limits it", _add_bench, _run_bench
)
VERBS = VERBS_OF_PREP | {verb.name: verb for verb in (BENCH, WHICH, WHEN)}


def run() -> NoReturn:
    """Run the command and end the process."""
    entry(VERBS)
