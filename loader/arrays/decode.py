"""Encoded images to pixels, in NumPy and Pillow, as loader/tensors/decode.py decodes them in the graph."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile

from tfshards.loader.examples.crops import GRAY_SHIFT, GRAY_WEIGHTS, box_of, flips_of
from tfshards.loader.examples.ops import NUMPY
from tfshards.loader.options.image import Image as ImageOptions
from tfshards.schemas import Feature, pixel_files
from tfshards.schemas.columns import dtype_named

Pixels = npt.NDArray[Any]

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def decode_image(
    encoded: bytes,
    image: ImageOptions,
    draws: Mapping[str, npt.NDArray[Any]],
    feature: Feature,
    *,
    with_region: bool,
) -> tuple[Pixels, npt.NDArray[np.int32]]:
    """Return the pixels of one image, ``(height, width, channels)``, and the region of it that they show.

    Args:
        encoded: a file that Pillow reads, or little-endian pixels, if they are in no file. Of a feature of
            uint16, values of 8 bits are multiplied by 257.
        image: the options of the image, which are complete.
        draws: random draws for the example.
        feature: the feature.
        with_region: whether the region is needed; it is ``[height, width, top, left, height, width]`` int32
            of the stored image and of its crop.

    Raises:
        ValueError: the image cannot be decoded.
    """
    del with_region  # it costs nothing here
    dtype, raw_shape = np.dtype(feature.dtype), feature.shape if feature.pixels else None
    if raw_shape is not None:
        pixels = np.frombuffer(encoded, dtype.newbyteorder("<")).reshape(
            [int(side or 0) for side in raw_shape]
        )
        if raw_shape[-1] != image.channels:
            # gray as color
            pixels = np.repeat(pixels, int(image.channels or 1), axis=2)
        sides = np.array(pixels.shape[:2], np.int32)
    else:
        pixels, sides = _opened(encoded, int(image.channels or 3), dtype)
    box = None
    if image.crop is not None:
        box = box_of(NUMPY, sides, image, draws)
        top, left, height, width = box.tolist()
        pixels = pixels[top : top + height, left : left + width]
    whole = np.concatenate([np.zeros(2, np.int32), sides])
    region = np.concatenate([sides, whole if box is None else box])
    if image.size is not None and pixels.shape[:2] != tuple(image.size):
        pixels = resized(pixels, image.size, image.method or "bilinear")
    white = int(np.iinfo(dtype).max)
    if image.normalize is not None:
        mean, std = (np.asarray(part, np.float64) for part in image.mean_and_std())
        pixels = pixels.astype(np.float32)
        if mean.any():
            pixels -= (white * mean).astype(np.float32)
        pixels *= (1 / (white * std)).astype(np.float32)
    wanted = dtype_named(image.dtype or feature.dtype, "image")
    if wanted.kind in "iu" and pixels.dtype.kind == "f":
        pixels = np.rint(pixels)
    pixels = pixels.astype(wanted, copy=False)
    if image.flip is not None:
        for axis, turn in enumerate(flips_of(image, draws)):
            pixels = np.flip(pixels, axis) if turn else pixels
    return pixels, region


def _opened(encoded: bytes, channels: int, dtype: np.dtype[Any]) -> tuple[Pixels, npt.NDArray[np.int32]]:
    """Return the pixels of a file, and its sides."""
    if (stored := pixel_files.sides_of(encoded)) is not None:
        pixels = _pixels_of(encoded, stored, channels)
        return _in_dtype(pixels, dtype), np.array(stored[:2], np.int32)
    try:
        with Image.open(io.BytesIO(encoded)) as file:
            sides = np.array(file.size[::-1], np.int32)
            if file.format == "JPEG":
                file.draft(_MODES[channels] if channels == 1 else "", file.size)
                pixels = _samples(file, channels)
            elif (layout := _layout(file)).startswith("I;16"):
                pixels = _deep_gray(file, channels)
                return pixels if dtype == np.uint16 else (pixels >> 8).astype(np.uint8), sides
            elif dtype == np.uint16 and ";16" in layout:
                raise ValueError("a PNG in color with 16 bits: only load decodes it, with TensorFlow")
            else:
                pixels = _samples(file, channels)
    except (OSError, SyntaxError) as error:
        raise ValueError(f"an image cannot be decoded: {error}") from None
    return _in_dtype(pixels, dtype), sides


def _in_dtype(pixels: Pixels, dtype: np.dtype[Any]) -> Pixels:
    """Return pixels of 8 bits in the dtype of the feature."""
    return pixels if dtype == np.uint8 else pixels.astype(np.uint16) * 257


def _pixels_of(encoded: bytes, stored: pixel_files.Sides, channels: int) -> Pixels:
    """Return the pixels of a file of pixels in these channels, a view where it has them."""
    flat = np.frombuffer(encoded, np.uint8, offset=pixel_files.HEADER_BYTES)
    try:
        pixels: Pixels = flat.reshape(stored)
    except ValueError:
        raise ValueError(f"an image cannot be decoded: {len(flat)} bytes of pixels for {stored}") from None
    if channels == 1:
        return pixels if stored.channels == 1 else _gray(pixels)
    color = np.broadcast_to(pixels, (*stored[:2], 3))
    if channels == 3:
        return color
    return np.concatenate([color, np.full((*stored[:2], 1), 0xFF, np.uint8)], axis=2)


def _samples(file: ImageFile.ImageFile, channels: int) -> Pixels:
    """Return the samples of an image of 8 bits, shape ``(height, width, channels)`` uint8."""
    mode = _MODES[channels]
    picture: Image.Image = file
    if mode == "L" and file.mode not in ("1", "L", "LA") and file.format != "JPEG":
        return _gray(np.asarray(file.convert("RGB")))
    if file.mode != mode:
        picture = file.convert(mode)
    pixels: Pixels = np.asarray(picture)
    return pixels if pixels.ndim == 3 else pixels[:, :, np.newaxis]


def _gray(pixels: Pixels) -> Pixels:
    # without rounding, as libpng
    weighted = pixels.astype(np.uint32) @ np.array(GRAY_WEIGHTS, np.uint32)
    return (weighted >> GRAY_SHIFT).astype(np.uint8)[:, :, np.newaxis]


def _layout(file: ImageFile.ImageFile) -> str:
    """Return the layout of the samples in a PNG, such as ``RGB;16B``."""
    args = file.tile[0][3] if file.tile and file.format == "PNG" else ""
    return str(args[0] if isinstance(args, tuple) else args)


def _deep_gray(file: ImageFile.ImageFile, channels: int) -> Pixels:
    """Return the samples of a gray PNG of 16 bits, shape ``(height, width, channels)`` uint16."""
    gray = np.asarray(file).astype(np.uint16)[:, :, np.newaxis]
    color = np.repeat(gray, min(channels, 3), axis=2)
    return color if channels < 4 else np.concatenate([color, np.full_like(gray, 0xFFFF)], axis=2)


# Resizing, as tf.image.resize computes it


def resized(pixels: Pixels, size: tuple[int, int], method: str) -> Pixels:
    """Return pixels of another size: float32, or of the same dtype with "nearest".

    The centers of pixels are at halves; without antialiasing, as in ``tf.image.resize``.
    """
    if method == "nearest":
        rows, columns = (_nearest(*sides) for sides in zip(pixels.shape, size, strict=False))
        chosen: Pixels = pixels[rows][:, columns]
        return chosen
    (low, high, part), (left, right, share) = (
        _between(*sides) for sides in zip(pixels.shape, size, strict=False)
    )
    used, place = np.unique(np.concatenate([low, high]), return_inverse=True)
    source, channels = pixels[used], pixels.shape[2]
    # whole rows, since NumPy is slow where the last axis is short
    begin, end = (
        source.take(columns, axis=1).reshape(len(used), -1).astype(np.float32) for columns in (left, right)
    )
    end -= begin
    end *= np.repeat(share, channels)
    begin += end
    above, below = begin.take(place[: size[0]], axis=0), begin.take(place[size[0] :], axis=0)
    below -= above
    below *= part[:, np.newaxis]
    above += below
    result: Pixels = above.reshape(*size, channels)
    return result


def _scale(side: int, wanted: int) -> np.float32:
    scale: np.float32 = np.float32(side) / np.float32(wanted)
    return scale


def _nearest(side: int, wanted: int) -> npt.NDArray[np.intp]:
    places = (np.arange(wanted, dtype=np.float32) + np.float32(0.5)) * _scale(side, wanted)
    return np.asarray(np.minimum(np.floor(places).astype(np.intp), side - 1))


def _between(
    side: int, wanted: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.float32]]:
    """Return the two pixels around each place, and its share of the way from one to the other."""
    half = np.float32(0.5)
    places = (np.arange(wanted, dtype=np.float32) + half) * _scale(side, wanted) - half
    below = np.floor(places)
    low = np.maximum(below.astype(np.intp), 0)
    high = np.minimum(np.ceil(places).astype(np.intp), side - 1)
    return low, np.maximum(high, 0), places - below
