"""Image options of the sources that read image files: from the command line, and from a manifest."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields
from typing import cast, get_args

from tfshards.prep.imaging.options import (
    Alpha,
    Animation,
    Channels,
    Check,
    Depth,
    Format,
    ImageOptions,
    Orientation,
)
from tfshards.schemas import OptionsError
from tfshards.schemas.json_reader import Json
from tfshards.schemas.sizes import parse_size


def add_image_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the image options to the parser of a source kind."""
    defaults = ImageOptions()
    add = parser.add_argument_group("image options").add_argument
    add(
        "--check",
        default="decode",
        choices=get_args(Check),
        help="decode every image (default), check headers only, or store files unchecked",
    )
    add(
        "--orientation",
        default="apply",
        choices=get_args(Orientation),
        help="rotate images upright by their EXIF tag (default), or leave pixels and tag unchanged",
    )
    add(
        "--channels",
        default="3",
        choices=list(map(str, get_args(Channels))),
        help="store gray, RGB (default) or RGBA images, or keep the channels of each image",
    )
    add(
        "--depth",
        default="8",
        metavar="{8,16,keep}",
        help="reduce images to 8 bits per sample (default), store all with 16, or keep the depth of each; "
        "8-bit values are multiplied by 257 where images have 16 bits",
    )
    add(
        "--alpha",
        choices=get_args(Alpha),
        help="blend transparent images over white (default with 1 or 3 channels), drop the alpha channel, "
        "or store it (default with 4 or keep)",
    )
    add(
        "--animation",
        default="reject",
        choices=get_args(Animation),
        help="reject files with several frames (default), or store their first frame",
    )
    add(
        "--resize",
        metavar="SIZE",
        help="resize images: short=256 and long=1024 limit a side and never enlarge; HEIGHTxWIDTH is exact",
    )
    add(
        "--format",
        default="keep",
        choices=get_args(Format),
        help="format of stored images (default: the file's bytes if they can be kept, else PNG)",
    )
    add(
        "--jpeg-quality",
        type=int,
        metavar="1-100",
        help="write JPEG of this quality where PNG would be written (95 with --format jpeg)",
    )
    for name, text in (
        ("pixels", "images with more pixels"),
        ("frames", "files with more frames"),
        ("scans", "progressive JPEGs with more scans"),
    ):
        limit = getattr(defaults, f"max_{name}")
        add(
            f"--max-{name}",
            type=int,
            default=limit,
            metavar="N",
            help=f"reject {text} (default: {limit:,})",
        )
    add("--max-bytes", default="1GiB", metavar="SIZE", help="reject larger files (default: 1GiB)")
    add("--follow-links", action="store_true", help="follow links to folders and out of the input folder")


def image_options_from(options: argparse.Namespace) -> ImageOptions:
    """Return the image options in parsed arguments."""
    channels, depth = options.channels, options.depth
    if depth == "float32":
        raise OptionsError(
            "depth='float32' is for tensors, not for image files: stack the images in one array, save it as "
            ".npy and build that with 'tfshards build arrays'"
        )
    return ImageOptions(
        check=options.check,
        orientation=options.orientation,
        channels=cast("Channels", int(channels) if channels.isdecimal() else channels),
        depth=cast("Depth", int(depth) if depth.isdecimal() else depth),
        alpha=options.alpha,
        animation=options.animation,
        resize=options.resize,
        format=options.format,
        jpeg_quality=options.jpeg_quality,
        max_pixels=options.max_pixels,
        max_bytes=parse_size(options.max_bytes, "max_bytes"),
        max_frames=options.max_frames,
        max_scans=options.max_scans,
    )


def restored_images(recorded: Mapping[str, Json]) -> ImageOptions:
    """Return the image options among the options that a manifest records."""
    names = {field.name for field in fields(ImageOptions)}
    # an ImageOptions wrote these, and checks them again
    given = {name: value for name, value in recorded.items() if name in names}
    return ImageOptions(**given)  # type: ignore[arg-type]


def recorded_image_flags(recorded: Mapping[str, Json]) -> dict[str, Json]:
    """Return the image options among the options that a manifest records, by their flags without dashes."""
    names, defaults = {field.name for field in fields(ImageOptions)}, ImageOptions().to_json()
    return {
        name.replace("_", "-"): value
        for name, value in recorded.items()
        if name in names and value != defaults[name]
    }


def with_all_images(recorded: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the options that a manifest records with all image options.

    Releases that recorded no ``conversion`` left out those that had their defaults, which have not changed
    since then.
    """
    return {**restored_images(recorded).to_json(), **recorded} if "check" in recorded else recorded
