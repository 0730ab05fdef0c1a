"""Encoded images to pixels, in the graph: decode, crop, resize, normalize, flip, cast."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tfshards.loader.examples.content import pixels_shape
from tfshards.loader.examples.crops import AXES, GRAY_SHIFT, GRAY_WEIGHTS, box_of
from tfshards.loader.examples.ops import Ops
from tfshards.loader.options.image import Image
from tfshards.schemas import Feature, pixel_files


def _checked(values: tf.Tensor, condition: tf.Tensor, message: str) -> tf.Tensor:
    with tf.control_dependencies([tf.debugging.assert_equal(condition, True, message)]):
        return tf.identity(values)


GRAPH = Ops(
    arange=lambda stop: tf.range(stop, dtype=tf.int64),
    minimum=tf.minimum,
    maximum=tf.maximum,
    where=tf.where,
    concat=lambda arrays: tf.concat(arrays, axis=0),
    unstack=tf.unstack,
    stack=lambda arrays, axis: tf.stack(arrays, axis),
    reshape=tf.reshape,
    cast=lambda values, dtype: tf.cast(values, dtype),
    sqrt=tf.sqrt,
    rint=tf.round,
    all_of=lambda rows: tf.reduce_all(rows, axis=-1),
    argmax=lambda values: tf.argmax(tf.cast(values, tf.int32)),
    kept=tf.boolean_mask,
    exchanged=lambda values, indices: tf.gather(values, indices, axis=1),
    checked=_checked,
    length=lambda rows: tf.shape(rows, tf.int64)[0],
)


def flipped(pixels: tf.Tensor, image: Image, draws: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return ``pixels``, ``(height, width, channels)``, flipped as drawn for the example."""
    for axis, word in enumerate(AXES):
        if image.flip and word in image.flip:
            turn = draws[f"flip {image.seed}"][axis]
            # For tensors of rank 3, tf.reverse copies whole rows, in a tenth of the time of pixels[:, ::-1].
            pixels = tf.cond(turn, lambda p=pixels, a=axis: tf.reverse(p, [a]), lambda p=pixels: p)
    return pixels


# The transform that Pillow and most other decoders of JPEG use; TensorFlow's default is faster and less
# precise, and saves about 4 % of the decoding time.
_DCT = "INTEGER_ACCURATE"
# Pixels are converted before they are resized if there are at most this many times the pixels of the result.
_FEW = 2


def decode_image(
    encoded: tf.Tensor,
    image: Image,
    draws: Mapping[str, tf.Tensor],
    feature: Feature,
    *,
    with_region: bool,
) -> list[tf.Tensor]:
    """Return the pixels of one image, shape ``(height, width, channels)``, as specified by ``image``.

    Args:
        encoded: scalar string: JPEG, PNG, GIF (its first frame), BMP, or WebP with the same channels; or
            little-endian pixels, if they are in no file. Of a feature of uint16, values of 8 bits are
            multiplied by 257.
        image: the options of the image, which are complete.
        draws: the random values of its example.
        feature: the feature.
        with_region: whether the region of the stored image that the pixels show is returned, too:
            ``[height, width, top, left, height, width]`` int32 of the stored image and of its crop. It costs
            5 % of the decoding.
    """
    stored, raw_shape = tf.as_dtype(feature.dtype), feature.shape if feature.pixels else None

    def shown(pixels: tf.Tensor, sides: tf.Tensor | None, box: tf.Tensor | None) -> list[tf.Tensor]:
        if not with_region:
            return [pixels]
        cut = [tf.zeros([2], tf.int32), sides] if box is None else [box]
        return [pixels, tf.concat([sides, *cut], axis=0)]

    def jpeg() -> list[tf.Tensor]:
        box = None
        if image.crop is None:
            pixels = tf.io.decode_jpeg(encoded, image.channels, dct_method=_DCT)
            sides = tf.shape(pixels)[:2] if with_region else None
        else:
            sides = tf.io.extract_jpeg_shape(encoded)[:2]
            box = box_of(GRAPH, sides, image, draws)
            pixels = tf.io.decode_and_crop_jpeg(encoded, box, image.channels, dct_method=_DCT)
        return shown(_deepened(pixels, stored), sides, box)

    def other() -> list[tf.Tensor]:
        if raw_shape is None:
            start = tf.strings.substr(encoded, 0, pixel_files.HEADER_BYTES)
            is_pixels = tf.strings.regex_full_match(start, pixel_files.PATTERN)
            return list(tf.nest.flatten(tf.cond(is_pixels, stored_pixels, compressed)))
        pixels = tf.reshape(tf.io.decode_raw(encoded, stored), raw_shape)
        if raw_shape[-1] != image.channels:
            # gray as color; tf.repeat has no uint16
            pixels = tf.concat([pixels] * (image.channels or 1), axis=2)
        return cropped(pixels)

    def compressed() -> list[tf.Tensor]:
        return cropped(_decoded_samples(encoded, image.channels, stored))

    def stored_pixels() -> list[tf.Tensor]:
        sides = _sides_of(encoded)
        box = None if image.crop is None else box_of(GRAPH, sides, image, draws)
        return shown(_deepened(_rows_of(encoded, sides, box, image.channels or 3), stored), sides, box)

    def cropped(pixels: tf.Tensor) -> list[tf.Tensor]:
        sides, box = tf.shape(pixels)[:2], None
        if image.crop is not None:
            box = box_of(GRAPH, sides, image, draws)
            top, left, height, width = tf.unstack(box)
            pixels = pixels[top : top + height, left : left + width]
        return shown(pixels, sides, box)

    # A JPEG cannot have four channels; decode_image reports that.
    is_other = image.channels == 4 or raw_shape is not None
    found = other() if is_other else list(tf.nest.flatten(tf.cond(tf.io.is_jpeg(encoded), jpeg, other)))
    pixels = found[0]
    pixels.set_shape([None, None, image.channels])

    size = image.size

    def resized() -> tf.Tensor:
        assert size is not None
        return _cast(_resized(pixels, size, image.method), image, stored)

    if size is None:
        pixels = _cast(pixels, image, stored)
    elif image.crop == "shift":
        fits = tf.reduce_all(tf.shape(pixels)[:2] == size)
        pixels = tf.cond(fits, lambda: _cast(pixels, image, stored), resized)
        pixels.set_shape([*size, image.channels])
    else:
        pixels = resized()
    # Flipped last, when the pixels use the fewest bytes.
    pixels = flipped(pixels, image, draws)
    pixels = tf.ensure_shape(pixels, pixels_shape(feature, image)) if size is None else pixels
    return [pixels, *found[1:]]


def _resized(pixels: tf.Tensor, size: tuple[int, int], method: str | None) -> tf.Tensor:
    """Return pixels in the size of the result, float32, or with "nearest" of their dtype."""
    if method == "nearest":
        return tf.image.resize(pixels, size, method)
    # The kernel converts each integer four times for each pixel of the result, so few are converted before:
    # this takes a third less time for 150 by 180 pixels to 224 by 224, and gives the same values.
    few = tf.reduce_prod(tf.shape(pixels)[:2]) <= _FEW * math.prod(size)
    return tf.cond(
        few,
        lambda: tf.image.resize(tf.cast(pixels, tf.float32), size),
        lambda: tf.image.resize(pixels, size),
    )


def _cast(pixels: tf.Tensor, image: Image, stored: tf.DType) -> tf.Tensor:
    """Return pixels as they are delivered, normalized or rounded."""
    if image.normalize is not None:
        pixels = _normalized(pixels, image, stored.max)
    dtype = tf.as_dtype(image.dtype or stored)
    if dtype.is_integer and pixels.dtype.is_floating:
        pixels = tf.round(pixels)
    return tf.cast(pixels, dtype)


def _deepened(pixels: tf.Tensor, stored: tf.DType) -> tf.Tensor:
    """Return pixels of 8 bits per sample in the dtype of the feature, white as its white."""
    return pixels if stored == tf.uint8 else tf.cast(pixels, stored) * (stored.max // 255)


def _sides_of(encoded: tf.Tensor) -> tf.Tensor:
    """Return ``[height, width]`` int32 of a file of pixels, see schemas/pixel_files.py."""
    starts, digits = [pixel_files.HEIGHT_AT, pixel_files.WIDTH_AT], [pixel_files.DIGITS] * 2
    return tf.strings.to_number(tf.strings.substr(encoded, starts, digits), tf.int32)


def _rows_of(encoded: tf.Tensor, sides: tf.Tensor, box: tf.Tensor | None, channels: int) -> tf.Tensor:
    """Return the pixels of a file of pixels, or of a box of it, of which only the rows are read."""
    stored = tf.where(tf.strings.substr(encoded, 1, 1) == b"6", 3, 1)
    top, left, height, width = (0, 0, sides[0], sides[1]) if box is None else tf.unstack(box)
    row = sides[1] * stored
    rows = tf.strings.substr(encoded, pixel_files.HEADER_BYTES + top * row, height * row)
    pixels = tf.reshape(tf.io.decode_raw(rows, tf.uint8), [height, sides[1], stored])
    pixels = pixels[:, left : left + width]
    if channels == 1:
        # the weights and the rounding of the decoder of PNG
        weights = tf.constant(GRAY_WEIGHTS, tf.int32)
        mixed = tf.reduce_sum(tf.cast(pixels, tf.int32) * weights, axis=2, keepdims=True)
        return tf.where(stored == 1, pixels[:, :, :1], tf.cast(mixed // 2**GRAY_SHIFT, tf.uint8))
    color = tf.broadcast_to(pixels, [height, width, 3])
    return color if channels == 3 else tf.concat([color, tf.fill([height, width, 1], np.uint8(255))], 2)


def _decoded_samples(encoded: tf.Tensor, channels: int | None, stored: tf.DType) -> tf.Tensor:
    """Return the pixels of a file that is not a JPEG; TensorFlow scales 8 bits by 256 except in PNG."""

    def decoded(dtype: tf.DType) -> tf.Tensor:
        return tf.io.decode_image(encoded, channels, dtype, expand_animations=False)

    if stored == tf.uint8:
        return decoded(stored)
    return tf.cond(
        tf.strings.substr(encoded, 0, 4) == b"\x89PNG",
        lambda: decoded(stored),
        lambda: _deepened(decoded(tf.uint8), stored),
    )


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
