"""Encoded images to pixels, in the graph: decode, crop, resize, normalize, flip, cast."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tfshards.loader.examples.augment import box_of, flipped
from tfshards.loader.options.image import Image

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
        image: the options, with channels set.
        draws: random draws for the example, from ``augment.draws_of``.
        stored: dtype of the feature: uint8, or uint16, for which values of 8 bits are multiplied by 257.
    """
    (pixels,) = _decoded_box(encoded, image, draws, tf.as_dtype(stored), with_region=False)
    return _finished(pixels, image, draws, tf.as_dtype(stored))


def decode_with_region(
    encoded: tf.Tensor, image: Image, draws: Mapping[str, tf.Tensor], stored: str = "uint8"
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the pixels of one image as ``decode_image`` does, and the region of the stored image they show.

    The region is ``[height, width, top, left, height, width]`` int32 of the stored image and of its crop.
    """
    pixels, region = _decoded_box(encoded, image, draws, tf.as_dtype(stored), with_region=True)
    return _finished(pixels, image, draws, tf.as_dtype(stored)), region


def _finished(pixels: tf.Tensor, image: Image, draws: Mapping[str, tf.Tensor], stored: tf.DType) -> tf.Tensor:
    pixels.set_shape([None, None, image.channels])
    if image.size is not None:
        pixels = tf.image.resize(pixels, image.size, image.method or "bilinear")
    if image.normalize is not None:
        pixels = _normalized(pixels, image, stored.max)
    dtype = tf.as_dtype(image.dtype or stored)
    if dtype.is_integer and pixels.dtype.is_floating:
        pixels = tf.round(pixels)
    # Flipped last, when the pixels use the fewest bytes.
    return flipped(tf.cast(pixels, dtype), image, draws)


def _decoded_box(
    encoded: tf.Tensor,
    image: Image,
    draws: Mapping[str, tf.Tensor],
    stored: tf.DType,
    *,
    with_region: bool,
) -> list[tf.Tensor]:
    """Return the decoded pixels of the crop, and its region only on demand: it costs 5 % of the decoding."""

    def jpeg() -> list[tf.Tensor]:
        # a JPEG file has 8 bits per sample
        pixels, *region = eight_bits()
        return [pixels if stored == tf.uint8 else tf.cast(pixels, stored) * (stored.max // 255), *region]

    def eight_bits() -> list[tf.Tensor]:
        if image.crop is None and not image.dct_scaling:
            pixels = tf.io.decode_jpeg(encoded, image.channels, dct_method=_DCT)
            return [pixels, _region(tf.shape(pixels)[:2], None)] if with_region else [pixels]
        sides = tf.io.extract_jpeg_shape(encoded)[:2]
        box = None if image.crop is None else box_of(sides, image, draws)
        if image.dct_scaling:
            pixels = _decode_scaled(encoded, image, sides, box)
        else:
            pixels = tf.io.decode_and_crop_jpeg(encoded, box, channels=image.channels, dct_method=_DCT)
        return [pixels, _region(sides, box)] if with_region else [pixels]

    def other() -> list[tf.Tensor]:
        pixels = tf.io.decode_image(encoded, image.channels, stored, expand_animations=False)
        sides, box = tf.shape(pixels)[:2], None
        if image.crop is not None:
            box = box_of(sides, image, draws)
            top, left, height, width = tf.unstack(box)
            pixels = pixels[top : top + height, left : left + width]
        return [pixels, _region(sides, box)] if with_region else [pixels]

    # A JPEG cannot have four channels; decode_image reports that.
    if image.channels == 4:
        return other()
    return list(tf.nest.flatten(tf.cond(tf.io.is_jpeg(encoded), jpeg, other)))


def _region(sides: tf.Tensor, box: tf.Tensor | None) -> tf.Tensor:
    return tf.concat([sides, tf.zeros([2], tf.int32), sides] if box is None else [sides, box], axis=0)


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
