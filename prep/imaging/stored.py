"""Stored images: describe, verify and scale them down."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tfshards.prep.imaging.convert import picture_of
from tfshards.prep.imaging.pillow import Header, Image, Picture, header_of, opened
from tfshards.prep.imaging.reasons import ImageError
from tfshards.schemas import Feature


def describe(data: bytes) -> str:
    """Return the format, height x width and mode of an encoded image as text."""
    header = stored_header(data)
    if header is None:
        return "not a readable image"
    width, height = header.size
    return f"{header.format} {height} x {width} (height x width), mode {header.mode}"


def stored_header(data: bytes) -> Header | None:
    """Return what the header of an encoded image states, or None if it cannot be read."""
    try:
        # no pixel is decoded
        with opened(data, sys.maxsize) as image:
            return header_of(image, data)
    except ImageError:
        return None


# The number of decoded channels by mode; bilevel images decode to gray, palette images to RGB.
_CHANNELS = {"1": 1, "L": 1, "I;16": 1, "P": 3, "RGB": 3, "RGBA": 4, "LA": 4, "PA": 4}


def decoded_fault(data: bytes, feature: Feature, max_pixels: int) -> str | None:
    """Decode all pixels of a stored image, and return how it contradicts ``feature``, or None.

    An image may have fewer channels than the feature, since the loader converts it to that number.
    """
    height, width, channels = feature.shape[-3:]
    try:
        with opened(data, max_pixels) as image:
            is_deep = header_of(image, data).depth != "8"
            image.load()
            sides, mode = (image.height, image.width), image.mode
    except ImageError as error:
        return f"the image {feature.name!r} cannot be decoded: {error}"
    if any(side not in (None, own) for side, own in zip((height, width), sides, strict=True)):
        stated = " x ".join("?" if side is None else str(side) for side in (height, width))
        found = f"{sides[0]} x {sides[1]} pixels"
        return f"the image {feature.name!r} has {found}, but the schema requires {stated}"
    if channels is not None and _CHANNELS.get(mode, channels + 1) > channels:
        return f"the image {feature.name!r} has mode {mode}, but the schema allows {channels} channels"
    if feature.is_mask and is_deep != (feature.dtype == "uint16"):
        # images are scaled, the values of masks are numbers
        bits = 16 if is_deep else 8
        return f"the mask {feature.name!r} has {bits} bits per sample, but the schema has {feature.dtype}"
    return None


@contextmanager
def stored_image(data: bytes, feature: Feature) -> Iterator[Picture]:
    """Open the value of an image feature, encoded or as pixels.

    Raises:
        ValueError: it cannot be decoded; the message has no control characters.
    """
    if feature.is_encoded:
        with opened(data) as image:
            yield image
    else:
        shape = tuple(side or 0 for side in feature.shape)
        samples = np.frombuffer(data, np.dtype(feature.dtype).newbyteorder("<")).reshape(shape)
        yield picture_of(samples.astype(feature.dtype, copy=False))


def gray_copy(image: Picture, side: int) -> Picture:
    """Return a gray copy, ``side`` pixels wide and high; a JPEG is decoded at twice the side at least."""
    image.draft("L", (2 * side, 2 * side))
    gray = stretched(image) if image.mode.startswith("I") else image.convert("L")
    return gray.resize((side, side), Image.Resampling.LANCZOS)


def stretched(image: Picture) -> Picture:
    """Return a gray picture of more than 8 bits with 8, its range stretched to black and white."""
    values = np.asarray(image).astype(np.float64)
    low, high = float(values.min()), float(values.max())
    return Image.fromarray(np.rint((values - low) * (255 / max(high - low, 1))).astype(np.uint8))
