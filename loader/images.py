"""Encoded images to pixels, in the graph: decode, crop, resize."""

from __future__ import annotations

import math

import tensorflow as tf

from tfshards.loader.image_options import Image
from tfshards.loader.order import CROP, random_bits

MIN_AREA, MAX_AREA = 0.08, 1.0
MIN_ASPECT, MAX_ASPECT = 3 / 4, 4 / 3
ATTEMPTS = 10
# The transform that Pillow, and most others, decode JPEG by; TensorFlow's default is a faster one of less
# precision, which saves some four per cent of the time that decoding takes.
_DCT = "INTEGER_ACCURATE"


def decode_image(encoded: tf.Tensor, image: Image, bits: tf.Tensor) -> tf.Tensor:
    """Return the pixels of one image, shape ``(height, width, channels)``, as ``image`` says.

    Args:
        encoded: scalar string: JPEG, PNG, GIF (its first frame), BMP, or WebP of as many channels.
        image: how to decode; its channels are given.
        bits: scalar int64, the random bits of a random crop.
    """
    if image.crop is None:
        pixels = _decode(encoded, image)
    else:
        pixels = tf.cond(
            tf.io.is_jpeg(encoded) & (image.channels != 4),
            lambda: _decode_jpeg_box(encoded, image, bits),
            lambda: _decode_box(encoded, image, bits),
        )
    pixels.set_shape([None, None, image.channels])
    if image.size is not None:
        pixels = tf.image.resize(pixels, image.size, image.method)
        if image.dtype == "uint8":
            pixels = tf.round(pixels)
    return tf.cast(pixels, image.dtype)


def crop_bits(image: Image, epoch: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Return the random bits (int64) for the crops of the examples ``numbers`` in an epoch."""
    return random_bits(image.seed, CROP, epoch, numbers)


def center_box(height: tf.Tensor, width: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Return ``[top, left, height, width]`` int32 of the largest centred box, shaped as ``size``."""
    box_height = tf.minimum(height, tf.maximum(1, width * size[0] // size[1]))
    box_width = tf.minimum(width, tf.maximum(1, height * size[1] // size[0]))
    return tf.stack([(height - box_height) // 2, (width - box_width) // 2, box_height, box_width])


def random_box(height: tf.Tensor, width: tf.Tensor, size: tuple[int, int], bits: tf.Tensor) -> tf.Tensor:
    """Return ``[top, left, height, width]`` int32 of a random box, the same for the same ``bits``.

    Of ``ATTEMPTS`` boxes, with area uniform and aspect ratio log-uniform in their limits, the first that
    fits; the centred box where none does.
    """
    draws = tf.random.stateless_uniform([4, ATTEMPTS], seed=tf.stack([bits, CROP]), alg="philox")
    area = tf.cast(height, tf.float32) * tf.cast(width, tf.float32)
    box_area = area * (MIN_AREA + draws[0] * (MAX_AREA - MIN_AREA))
    low, high = math.log(MIN_ASPECT), math.log(MAX_ASPECT)
    aspect = tf.exp(low + draws[1] * (high - low))
    box_width = tf.cast(tf.round(tf.sqrt(box_area * aspect)), tf.int32)
    box_height = tf.cast(tf.round(tf.sqrt(box_area / aspect)), tf.int32)
    fits = (box_width >= 1) & (box_width <= width) & (box_height >= 1) & (box_height <= height)
    top = _random_below(draws[2], height - box_height + 1)
    left = _random_below(draws[3], width - box_width + 1)
    boxes = tf.stack([top, left, box_height, box_width], axis=1)
    return tf.cond(
        tf.reduce_any(fits),
        lambda: boxes[tf.argmax(tf.cast(fits, tf.int32))],
        lambda: center_box(height, width, size),
    )


def _decode(encoded: tf.Tensor, image: Image) -> tf.Tensor:
    if image.channels == 4:
        # no JPEG has them; of one the error says so
        return tf.io.decode_image(encoded, 4, expand_animations=False)
    return tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: tf.io.decode_jpeg(encoded, image.channels, dct_method=_DCT),
        lambda: tf.io.decode_image(encoded, image.channels, expand_animations=False),
    )


def _random_below(draw: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
    return tf.minimum(tf.cast(draw * tf.cast(limit, tf.float32), tf.int32), limit - 1)


def _box(height: tf.Tensor, width: tf.Tensor, image: Image, bits: tf.Tensor) -> tf.Tensor:
    assert image.size is not None  # Image refuses a crop without a size
    if image.crop == "random":
        return random_box(height, width, image.size, bits)
    return center_box(height, width, image.size)


def _decode_jpeg_box(encoded: tf.Tensor, image: Image, bits: tf.Tensor) -> tf.Tensor:
    shape = tf.io.extract_jpeg_shape(encoded)
    box = _box(shape[0], shape[1], image, bits)
    return tf.io.decode_and_crop_jpeg(encoded, box, channels=image.channels, dct_method=_DCT)


def _decode_box(encoded: tf.Tensor, image: Image, bits: tf.Tensor) -> tf.Tensor:
    pixels = _decode(encoded, image)
    shape = tf.shape(pixels)
    top, left, height, width = tf.unstack(_box(shape[0], shape[1], image, bits))
    return pixels[top : top + height, left : left + width]
