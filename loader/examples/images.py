"""Encoded images to pixels, in the graph: decode, crop, resize, normalize, flip, cast."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from tfshards.loader.options.image import Image
from tfshards.loader.order.epoch import CROP, FLIP, random_bits

MIN_AREA, MAX_AREA = 0.08, 1.0
MIN_ASPECT, MAX_ASPECT = 3 / 4, 4 / 3
ATTEMPTS = 10
_BITS = 24
_AXES = ("vertical", "horizontal")


def draws_of(images: Iterable[Image], epoch: tf.Tensor, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the random draws for the examples ``numbers`` (int64) in an epoch, by name.

    ``box SEED`` has shape ``(numbers, ATTEMPTS, 4)`` float32, as in ``random_box``; ``flip SEED`` has
    shape ``(numbers, 2)`` bool: vertical and horizontal. Images of equal seeds share their draws.
    """
    draws = {}
    for image in images:
        if image.crop == "random":
            draws[f"box {image.seed}"] = _boxes(image.seed, epoch, numbers)
        if image.flip:
            axes = tf.range(2, dtype=tf.int64)
            bits = random_bits(image.seed, FLIP, epoch, numbers[:, tf.newaxis], axes)
            draws[f"flip {image.seed}"] = bits < 2**62
    return draws


def box_of(sides: tf.Tensor, image: Image, draws: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return ``[top, left, height, width]`` int32 of an image's crop.

    Args:
        sides: ``[height, width]`` int32 of the image.
    """
    assert image.size is not None  # Image refuses a crop without a size
    if image.crop == "random":
        return random_box(sides, image.size, draws[f"box {image.seed}"])
    return center_box(sides, image.size)


def flipped(pixels: tf.Tensor, image: Image, draws: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return ``pixels``, ``(height, width, channels)``, flipped as drawn for the example."""
    for axis, word in enumerate(_AXES):
        if image.flip and word in image.flip:
            turn = draws[f"flip {image.seed}"][axis]
            # For tensors of rank 3, tf.reverse copies whole rows, in a tenth of the time of pixels[:, ::-1].
            pixels = tf.cond(turn, lambda p=pixels, a=axis: tf.reverse(p, [a]), lambda p=pixels: p)
    return pixels


def flips_of(image: Image, draws: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
    """Return whether an image with a flip is flipped vertically, and horizontally, as drawn."""
    drawn = draws[f"flip {image.seed}"]
    return [
        drawn[axis] if word in (image.flip or "") else tf.constant(False) for axis, word in enumerate(_AXES)
    ]


def center_box(sides: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Return ``[top, left, height, width]`` int32 of the largest centered box with the ratio of ``size``."""
    across = sides[::-1] * tf.constant(size, tf.int32) // tf.constant(size[::-1], tf.int32)
    box = tf.minimum(sides, tf.maximum(1, across))
    return tf.concat([(sides - box) // 2, box], axis=0)


def random_box(sides: tf.Tensor, size: tuple[int, int], draws: tf.Tensor) -> tf.Tensor:
    """Return ``[top, left, height, width]`` int32 of the first drawn box that fits, or the centered one.

    Args:
        sides: ``[height, width]`` int32 of the image.
        draws: shape ``(ATTEMPTS, 4)`` float32: height and width relative to the square root of the image's
            area; top and left from 0 to 1, where 1 is the last possible position.
    """
    floats = tf.cast(sides, tf.float32)
    boxes = tf.cast(tf.round(draws[:, :2] * tf.sqrt(floats[0] * floats[1])), tf.int32)
    fits = tf.reduce_all((boxes >= 1) & (boxes <= sides), axis=1)
    first = tf.argmax(tf.cast(fits, tf.int32))
    box = boxes[first]
    last = sides - box
    corner = tf.cast(draws[first, 2:] * tf.cast(last + 1, tf.float32), tf.int32)
    return tf.cond(
        fits[first],
        lambda: tf.concat([tf.minimum(corner, last), box], axis=0),
        lambda: center_box(sides, size),
    )


def _boxes(seed: int, epoch: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Return boxes for ``random_box``: area uniform and aspect ratio log-uniform within their limits."""
    words = tf.reshape(tf.range(4 * ATTEMPTS, dtype=tf.int64), [ATTEMPTS, 4])
    bits = random_bits(seed, CROP, epoch, numbers[:, tf.newaxis, tf.newaxis], words)
    # In float64, because the last bit of exp() may depend on the index of a value in the tensor; rounding to
    # whole pixels removes that bit.
    uniform = tf.cast(tf.bitwise.right_shift(bits, tf.constant(63 - _BITS, tf.int64)), tf.float64) / 2**_BITS
    area, aspect, top, left = tf.unstack(uniform, axis=-1)
    area = MIN_AREA + area * (MAX_AREA - MIN_AREA)
    low, high = math.log(MIN_ASPECT), math.log(MAX_ASPECT)
    aspect = tf.exp(low + aspect * (high - low))
    boxes = tf.stack([tf.sqrt(area / aspect), tf.sqrt(area * aspect), top, left], axis=-1)
    return tf.cast(boxes, tf.float32)


# The transform that Pillow and most other decoders of JPEG use; TensorFlow's default is faster and less
# precise, and saves about 4 % of the decoding time.
_DCT = "INTEGER_ACCURATE"
# Ratios by which the decoder can shrink a JPEG file in its transform.
_RATIOS = (1, 2, 4, 8)


def decode_image(
    encoded: tf.Tensor, image: Image, draws: Mapping[str, tf.Tensor], stored: str = "uint8"
) -> tf.Tensor:
    """Return the pixels of one image, shape ``(height, width, channels)``, as specified by ``image``.

    Args:
        encoded: scalar string: JPEG, PNG, GIF (its first frame), BMP, or WebP with the same channels.
        stored: dtype of the feature: uint8, or uint16, for which values of 8 bits are multiplied by 257.
    """
    return _decoded(encoded, image, draws, tf.as_dtype(stored), with_region=False)[0]


def decode_with_region(
    encoded: tf.Tensor, image: Image, draws: Mapping[str, tf.Tensor], stored: str = "uint8"
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the pixels of one image as ``decode_image`` does, and the region of the stored image they show.

    The region is ``[height, width, top, left, height, width]`` int32 of the stored image and of its crop.
    """
    pixels, region = _decoded(encoded, image, draws, tf.as_dtype(stored), with_region=True)
    return pixels, region


def _decoded(
    encoded: tf.Tensor,
    image: Image,
    draws: Mapping[str, tf.Tensor],
    stored: tf.DType,
    *,
    with_region: bool,
) -> list[tf.Tensor]:
    """Return the pixels, and the region that they show only on demand: it costs 5 % of the decoding."""

    def shown(pixels: tf.Tensor, sides: tf.Tensor | None, box: tf.Tensor | None) -> list[tf.Tensor]:
        if not with_region:
            return [pixels]
        cut = [tf.zeros([2], tf.int32), sides] if box is None else [box]
        return [pixels, tf.concat([sides, *cut], axis=0)]

    def jpeg() -> list[tf.Tensor]:
        box = None
        if image.crop is None and not image.dct_scaling:
            pixels = tf.io.decode_jpeg(encoded, image.channels, dct_method=_DCT)
            sides = tf.shape(pixels)[:2] if with_region else None
        else:
            sides = tf.io.extract_jpeg_shape(encoded)[:2]
            box = None if image.crop is None else box_of(sides, image, draws)
            if image.dct_scaling:
                pixels = _decode_scaled(encoded, image, sides, box)
            else:
                pixels = tf.io.decode_and_crop_jpeg(encoded, box, channels=image.channels, dct_method=_DCT)
        # a JPEG file has 8 bits per sample
        pixels = pixels if stored == tf.uint8 else tf.cast(pixels, stored) * (stored.max // 255)
        return shown(pixels, sides, box)

    def other() -> list[tf.Tensor]:
        pixels = tf.io.decode_image(encoded, image.channels, stored, expand_animations=False)
        sides, box = tf.shape(pixels)[:2], None
        if image.crop is not None:
            box = box_of(sides, image, draws)
            top, left, height, width = tf.unstack(box)
            pixels = pixels[top : top + height, left : left + width]
        return shown(pixels, sides, box)

    # A JPEG cannot have four channels; decode_image reports that.
    is_other = image.channels == 4
    found = other() if is_other else list(tf.nest.flatten(tf.cond(tf.io.is_jpeg(encoded), jpeg, other)))
    pixels = found[0]
    pixels.set_shape([None, None, image.channels])
    if image.size is not None:
        pixels = tf.image.resize(pixels, image.size, image.method or "bilinear")
    if image.normalize is not None:
        pixels = _normalized(pixels, image, stored.max)
    dtype = tf.as_dtype(image.dtype or stored)
    if dtype.is_integer and pixels.dtype.is_floating:
        pixels = tf.round(pixels)
    # Flipped last, when the pixels use the fewest bytes.
    return [flipped(tf.cast(pixels, dtype), image, draws), *found[1:]]


def _decode_scaled(encoded: tf.Tensor, image: Image, sides: tf.Tensor, box: tf.Tensor | None) -> tf.Tensor:
    """Return a box of a JPEG image, or all of it, shrunk as far as it stays no smaller than the result."""
    reduction = tf.reduce_min((sides if box is None else box[2:]) // tf.constant(image.size, tf.int32))

    def decode(ratio: int) -> tf.Tensor:
        if box is None:
            return tf.io.decode_jpeg(encoded, image.channels, ratio, dct_method=_DCT)
        # the box of the shrunk image; rounded down, it ends inside
        return tf.io.decode_and_crop_jpeg(encoded, box // ratio, image.channels, ratio, dct_method=_DCT)

    branch = tf.reduce_sum(tf.cast(reduction >= tf.constant(_RATIOS[1:]), tf.int32))
    return tf.switch_case(branch, [lambda ratio=ratio: decode(ratio) for ratio in _RATIOS])


def _normalized(pixels: tf.Tensor, image: Image, white: int) -> tf.Tensor:
    """Return ``(pixels / white - mean) / std``, float32."""
    mean, std = (np.asarray(part, np.float64) for part in image.mean_and_std())
    # On rows of all channels, because TensorFlow takes four times as long to broadcast over three channels.
    shape = tf.shape(pixels)
    rows = tf.reshape(tf.cast(pixels, tf.float32), [shape[0], -1])
    if mean.any():
        rows -= _row(white * mean, shape)
    rows *= _row(1 / (white * std), shape)
    return tf.reshape(rows, shape)


def _row(values: np.ndarray, shape: tf.Tensor) -> tf.Tensor:
    values = values.astype(np.float32)
    if values.ndim == 0:
        return tf.constant(values)
    return tf.tile(tf.constant(values), [shape[1]])
