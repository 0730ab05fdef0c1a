"""The images of one example: read, check and convert them, and place its boxes and keypoints in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np

from tfshards.prep.imaging.coordinates import Frame, Outside, Reference, check_numbers, placed
from tfshards.prep.imaging.depth import file_depth
from tfshards.prep.imaging.formats import SUFFIXES, format_named
from tfshards.prep.imaging.masks import Geometry
from tfshards.prep.imaging.normalize import Normalized, normalize
from tfshards.prep.imaging.options import CONVERSION, ImageOptions
from tfshards.prep.imaging.pillow import decoder_versions
from tfshards.prep.imaging.whitelist import ImageError
from tfshards.prep.records.example import Values
from tfshards.prep.sources.base import Rejected
from tfshards.prep.sources.fetching import FetchedContent
from tfshards.prep.sources.remote_tree import Tree
from tfshards.schemas import Feature, OptionsError
from tfshards.schemas.coordinates import Coordinates
from tfshards.schemas.json_reader import Json
from tfshards.schemas.reasons import Reason


class EncodedImage(NamedTuple):
    """An image of an example before it is converted.

    Attributes:
        name: name of its feature.
        content: what was read of it; None if it is missing.
        path: its path, whose suffix may identify the format; may be empty.
        missing: why there is no content.
    """

    name: str
    content: FetchedContent | None
    path: bytes = b""
    missing: str = ""


@dataclass(frozen=True)
class ImageRules:
    """How the images of the examples of a source are stored.

    Attributes:
        options: image options.
        masks: features that are masks, whose values are kept.
        coordinates: features that hold boxes or keypoints.
        placed_in: feature of the image to which the coordinates refer; None in a source without images.
        outside: what to do about coordinates outside of the image.
        boxes_in: whether coordinates refer to the pixels in the file or to the upright image, if declared.
    """

    options: ImageOptions
    masks: frozenset[str] = frozenset()
    coordinates: Mapping[str, Coordinates] = field(default_factory=dict)
    placed_in: str | None = None
    outside: Outside = "reject"
    boxes_in: Reference | None = None


def convert_images(
    rules: ImageRules,
    images: Sequence[EncodedImage],
    values: dict[str, Values],
    stated: tuple[int, int] | None = None,
) -> tuple[str, ...] | Rejected:
    """Add the converted images of an example to its values, and place its boxes and keypoints in them.

    Args:
        rules: how images are stored.
        images: the images and masks of the example.
        values: values by feature; those of coordinates are replaced by the ones that fit the stored image.
        stated: width and height of the image as the source states them, if it does.

    Returns:
        The names of all conversions, or why the example is rejected.
    """
    conversions: list[str] = []
    views: list[Geometry] = []
    try:
        # a mask must fit its image
        for image in sorted(images, key=lambda image: image.name in rules.masks):
            is_mask = image.name in rules.masks
            found = normalized_image(image, mask_options(rules.options) if is_mask else rules.options, views)
            if isinstance(found, Rejected):
                return found if len(images) == 1 else found._replace(detail=f"{image.name}: {found.detail}")
            values[image.name] = found.data
            conversions += found.conversions
            if rules.masks and not is_mask and found.view is not None:
                views.append(found.view)
            if image.name == rules.placed_in and found.turned is not None:
                conversions += _place(rules, values, found.turned, stated)
        if rules.placed_in is None:
            for name, coordinates in rules.coordinates.items():
                check_numbers(name, cast("list[float]", values[name]), coordinates)
    except ImageError as fault:
        return Rejected(fault.reason, fault.detail)
    return tuple(conversions)


def normalized_image(
    image: EncodedImage, options: ImageOptions, views: Sequence[Geometry]
) -> Normalized | Rejected:
    """Return the normalized image, or why it is rejected; a mask may belong to the images in ``views``."""
    if image.content is None:
        return Rejected(Reason.MISSING, image.missing)
    size, _, data = image.content
    if data is None:
        return Rejected(Reason.TOO_LARGE, f"{size} bytes; at most {options.max_bytes}")
    try:
        return normalize(data, options, _suffix(image.path), views if options.mask else ())
    except ImageError as fault:
        return Rejected(fault.reason, fault.detail)


def _place(
    rules: ImageRules, values: dict[str, Values], file: Geometry, stated: tuple[int, int] | None
) -> list[str]:
    """Replace the coordinates in ``values`` by those in the stored image, and return what was done.

    Raises:
        ImageError: a number is wrong, or it is not known where it is in the stored image.
    """
    given = {name: cast("list[float]", values[name]) for name in rules.coordinates}
    if not given:
        return []
    in_file = rules.boxes_in == "file"
    if rules.boxes_in is None and stated not in (None, file.raw, file.upright):
        raise ImageError(Reason.BOXES, f"the source states {stated} pixels, the image has {file.raw}")
    if rules.boxes_in is None and file.orientation != 1 and any(given.values()):
        if stated is None or file.raw == file.upright:
            raise ImageError(
                Reason.BOXES,
                f"EXIF orientation {file.orientation} turns the image; --boxes-in must state whether boxes "
                "and keypoints refer to the pixels in the file or to the upright image",
            )
        in_file = stated == file.raw
    size = rules.options.size
    frame = Frame(file, in_file, size.size(*file.upright) if size else file.upright)
    notes: list[str] = []
    for name, numbers in given.items():
        values[name], done = placed(name, numbers, rules.coordinates[name], frame, rules.outside)
        notes += done
    return list(dict.fromkeys(notes))


def image_feature(name: str, options: ImageOptions) -> Feature:
    """Return the feature of images that are stored with these options."""
    return Feature(name, "image", options.dtype, options.shape)


def mask_feature(name: str, options: ImageOptions) -> Feature:
    """Return the feature of masks that are stored with these options of images."""
    options = mask_options(options)
    return Feature(name, "mask", options.dtype, options.shape)


@lru_cache(maxsize=8)
def mask_options(images: ImageOptions) -> ImageOptions:
    """Return the options of masks next to images with these options: pixel values are kept."""
    depth = images.depth if images.mask_depth is None else images.mask_depth
    kept = replace(
        images, format="keep", jpeg_quality=None, check="decode", channels=1, alpha=None, mask=True
    )
    return replace(kept, depth=depth, mask_depth=None)


def check_mask_depth(options: ImageOptions, *, has_masks: bool) -> None:
    """Raise OptionsError if a depth of masks is given where there are none."""
    if options.mask_depth is not None and not has_masks:
        raise OptionsError("mask-depth-useless", mask_depth=options.mask_depth)


def decoders_of(options: ImageOptions, *, has_masks: bool = False) -> dict[str, Json]:
    """Return the versions of the code on which images that are stored with ``options`` depend."""
    if options.check == "none" and not has_masks:
        return {}
    return {"conversion": CONVERSION, **decoder_versions()}


_MAX_LOOKED = 300
_LOST = {
    "gray": ("have more than 8 bits per sample", "of 16 bits, 4095 becomes 15; depth=16 keeps their values"),
    "color": (
        "have more than 8 bits per sample in color",
        "'tfshards build arrays' stores arrays of them as they are",
    ),
    "float": ("hold floating point numbers", "'tfshards build arrays' stores arrays of them as they are"),
}


def depth_warnings(tree: Tree, paths: Sequence[bytes], options: ImageOptions) -> Iterator[str]:
    """Yield warnings if a build with these options reduces images to 8 bits per sample.

    Only a few hundred of the images in ``tree`` are looked at, evenly spread.
    """
    if options.depth != 8 or options.check == "none" or not paths:
        return
    numbers = np.unique(np.linspace(0, len(paths) - 1, _MAX_LOOKED).astype(np.int64))
    looked = [paths[number] for number in numbers.tolist()]
    opened = [path for path in looked if format_named(SUFFIXES.get(_suffix(path))).may_be_deep]

    def depth_of(path: bytes) -> str:
        try:
            with tree.opened(path) as file:
                return file_depth(file)
        except (OSError, ValueError):
            # the build reports what is wrong with the file
            return "8"

    depths = tree.map(depth_of, opened)
    for depth, (what, remedy) in _LOST.items():
        deep = [path for path, found in zip(opened, depths, strict=True) if found == depth]
        if deep:
            yield (
                f"{len(deep)} of {len(looked)} images looked at {what}, such as {os.fsdecode(deep[0])!r}, "
                f"and are reduced to 8 bits; {remedy}"
            )


def _suffix(path: bytes) -> bytes:
    return os.path.splitext(path)[1].lower()
