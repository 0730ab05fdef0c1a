"""Random crops and flips: the draws for a group of examples, and their application to an image.

All draws of a group are computed at once, which leaves little to compute for each image. They are hashes of
the seed, the epoch and the example (``order.random_bits``), so they do not depend on the reader.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import tensorflow as tf

from tfshards.loader.options.image import Image
from tfshards.loader.order.random_bits import CROP, FLIP, random_bits

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
            draws[_box_name(image)] = _boxes(image.seed, epoch, numbers)
        if image.flip:
            axes = tf.range(2, dtype=tf.int64)
            bits = random_bits(image.seed, FLIP, epoch, numbers[:, tf.newaxis], axes)
            draws[_flip_name(image)] = bits < 2**62
    return draws


def box_of(sides: tf.Tensor, image: Image, draws: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return ``[top, left, height, width]`` int32 of an image's crop.

    Args:
        sides: ``[height, width]`` int32 of the image.
        image: options with a crop, and therefore with a size.
        draws: draws for this example, from ``draws_of``.
    """
    assert image.size is not None  # Image refuses a crop without a size
    if image.crop == "random":
        return random_box(sides, image.size, draws[_box_name(image)])
    return center_box(sides, image.size)


def flipped(pixels: tf.Tensor, image: Image, draws: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return ``pixels``, ``(height, width, channels)``, flipped as drawn for the example."""
    for axis, word in enumerate(_AXES):
        if image.flip and word in image.flip:
            pixels = _reversed_if(draws[_flip_name(image)][axis], pixels, axis)
    return pixels


def flips_of(image: Image, draws: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
    """Return whether an image with a flip is flipped vertically, and horizontally, as drawn."""
    drawn = draws[_flip_name(image)]
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
        size: size of the result, ``(height, width)``.
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


def _reversed_if(turn: tf.Tensor, pixels: tf.Tensor, axis: int) -> tf.Tensor:
    # For tensors of rank 3, tf.reverse copies whole rows, in a tenth of the time of pixels[:, ::-1].
    return tf.cond(turn, lambda: tf.reverse(pixels, [axis]), lambda: pixels)


def _box_name(image: Image) -> str:
    return f"box {image.seed}"


def _flip_name(image: Image) -> str:
    return f"flip {image.seed}"
