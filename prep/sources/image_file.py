"""Read one image file, check that it is unchanged since it was listed, and normalize the image."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tfshards.prep.imaging.depth import file_depth
from tfshards.prep.imaging.formats import SUFFIXES, format_named
from tfshards.prep.imaging.masks import Geometry
from tfshards.prep.imaging.normalize import Normalized, normalize
from tfshards.prep.imaging.options import CONVERSION, MAX_BYTES, ImageOptions
from tfshards.prep.imaging.pillow import decoder_versions
from tfshards.prep.imaging.whitelist import ImageError
from tfshards.prep.records.example import Values
from tfshards.prep.sources.base import Accepted, Outcome, Rejected, Row
from tfshards.prep.sources.fetching import FetchedContent
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.sources.remote_tree import Tree
from tfshards.schemas import Feature, OptionsError
from tfshards.schemas.json_reader import Json
from tfshards.schemas.reasons import Reason

_MAX_LOOKED = 300


def depth_warning(tree: Tree, paths: Sequence[bytes], options: ImageOptions) -> Iterator[str]:
    """Yield warnings if a build with these options reduces images to 8 bits per sample.

    Only a few hundred of the images in ``tree`` are looked at, evenly spread.
    """
    if options.depth != 8 or not paths:
        return
    numbers = np.unique(np.linspace(0, len(paths) - 1, _MAX_LOOKED).astype(np.int64))
    some = [paths[number] for number in numbers.tolist()]
    opened = [path for path in some if format_named(SUFFIXES.get(_suffix(path))).may_be_deep]
    found = tree.map(lambda path: _depth(tree, path), opened)
    for depth, (what, remedy) in _DEPTHS.items():
        deep = [path for path, each in zip(opened, found, strict=True) if each == depth]
        if deep:
            yield (
                f"{len(deep)} of {len(some)} images looked at {what}, such as {os.fsdecode(deep[0])!r}, "
                f"and are reduced to 8 bits; {remedy}"
            )


_DEPTHS = {
    "gray": ("have more than 8 bits per sample", "of 16 bits, 4095 becomes 15; depth=16 keeps their values"),
    "color": (
        "have more than 8 bits per sample in color",
        "'tfshards build arrays' stores arrays of them as they are",
    ),
    "float": ("hold floating point numbers", "'tfshards build arrays' stores arrays of them as they are"),
}


def _depth(tree: Tree, path: bytes) -> str:
    try:
        with tree.opened(path) as file:
            return file_depth(file)
    except (OSError, ValueError):
        # the build reports what is wrong with the file
        return "8"


def _suffix(path: bytes) -> bytes:
    return os.path.splitext(path)[1].lower()


def image_feature(name: str, options: ImageOptions) -> Feature:
    """Return the feature of images that are stored with these options."""
    return Feature(name, "image", options.dtype, options.shape)


def mask_feature(name: str, options: ImageOptions) -> Feature:
    """Return the feature of masks that are stored with these options of images."""
    options = mask_options(options)
    return Feature(name, "mask", options.dtype, options.shape)


def mask_options(images: ImageOptions) -> ImageOptions:
    """Return the image options for masks: the given ones, except that pixel values are kept."""
    depth = images.depth if images.mask_depth is None else images.mask_depth
    kept = replace(
        images,
        format="keep",
        jpeg_quality=None,
        channels=1,
        alpha=None,
        mask=True,
    )
    return replace(kept, depth=depth, mask_depth=None)


def check_mask_depth(options: ImageOptions, *, has_masks: bool) -> None:
    """Raise OptionsError if a depth of masks is given where there are none."""
    if options.mask_depth is not None and not has_masks:
        raise OptionsError("mask-depth-useless", mask_depth=options.mask_depth)


def decoders_of() -> dict[str, Json]:
    """Return the versions of the code on which stored images depend."""
    return {"conversion": CONVERSION, **decoder_versions()}


def checked_image(
    data: bytes, path: bytes, options: ImageOptions, images: Sequence[Geometry] = ()
) -> Normalized | Rejected:
    """Return the normalized image in bytes, or why it is rejected; see ``checked_content``."""
    return checked_content(path, FetchedContent(len(data), 0, data), options, images)


def checked_content(
    path: bytes, content: FetchedContent, options: ImageOptions, images: Sequence[Geometry] = ()
) -> Normalized | Rejected:
    """Return the normalized image in what was read, or why it is rejected.

    The suffix of ``path``, which may be empty, may identify the format; a mask may belong to ``images``.
    """
    if content.data is None:
        return Rejected(Reason.TOO_LARGE, f"{content.size} bytes; at most {MAX_BYTES}")
    try:
        return normalize(content.data, options, _suffix(path), images)
    except ImageError as fault:
        return Rejected(fault.reason, fault.detail)


def outcome_of(
    row: Row,
    files: Sequence[tuple[bytes, FetchedContent]],
    options: Sequence[ImageOptions],
    *,
    has_label: bool,
) -> Outcome:
    """Return the values of a row, or why it is rejected; ``files`` are its image, and its mask."""
    if len(files) < len(options):
        return Rejected(Reason.MISSING, "there is no mask of the same name")
    values: list[Values] = []
    conversions: list[str] = []
    views: list[Geometry] = []
    for each, file in zip(options, files, strict=True):
        image = checked_content(*file, each, views)
        if isinstance(image, Rejected):
            return Rejected(image.reason, f"mask: {image.detail}") if each.mask else image
        if len(options) > 1:
            views.append(image.view)
        values.append(image.data)
        conversions += image.conversions
    key = to_bytes(row.key)
    return Accepted((*values, row.label, key) if has_label else (*values, key), tuple(conversions))
