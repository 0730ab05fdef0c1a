"""What smaller images would bring: a sample is encoded again, and both are decoded from memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import tensorflow as tf

from tfshards.loader.examples.batches import DECODED_PER_CPU, num_cpus
from tfshards.loader.examples.images import decode_image
from tfshards.loader.graph.raw_ops import without_autograph
from tfshards.loader.options.image import Image
from tfshards.loader.speed.rate import rate_in_graph, rates_in_turns
from tfshards.loader.speed.speeds import Resized

_NUM_IMAGES = 128
# The usual margin for crops: 256 for 224.
_MARGIN, _MULTIPLE, _DEFAULT = 8 / 7, 32, 256
# Of images that are hardly larger, a smaller copy brings nothing.
_LARGER = 1.1
# As `tfshards build` stores a resized JPEG.
_QUALITY = 95


def speed_of_smaller(
    encoded: tf.data.Dataset, image: Image, batch_size: int, seconds: float
) -> Resized | None:
    """Return how fast images are decoded as they are stored, and stored smaller; None if they are small.

    Args:
        encoded: encoded images of a dataset, scalar strings.
        image: how they are decoded.
        batch_size: examples per batch.
        seconds: time to measure each of both.
    """
    # with the same work, but without random draws
    image = replace(image, crop="center" if image.crop else None, flip=None)
    sample = [each.numpy() for each in encoded.take(_NUM_IMAGES)]
    short = short_side(image)
    channels = image.channels

    def smaller(data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pixels = tf.io.decode_image(data, channels, expand_animations=False)
        sides = tf.cast(tf.shape(pixels)[:2], tf.float32)
        scale = tf.minimum(1.0, short / tf.reduce_min(sides))
        size = tf.cast(tf.maximum(1.0, tf.round(sides * scale)), tf.int32)
        resized = tf.image.resize(pixels, size, "lanczos3", antialias=True)
        resized = tf.saturate_cast(tf.round(resized), tf.uint8)
        stored = tf.cond(
            tf.io.is_jpeg(data),
            lambda: tf.io.encode_jpeg(resized, quality=_QUALITY),
            lambda: tf.io.encode_png(resized),
        )
        return stored, scale

    stored = tf.data.Dataset.from_tensor_slices(sample)
    made = [
        (each.numpy(), float(scale)) for each, scale in stored.map(without_autograph(smaller), num_cpus())
    ]
    if sum(scale for _, scale in made) / len(made) > 1 / _LARGER:
        return None
    resized = [data for data, _ in made]

    def rate(images: list[bytes], seconds: float) -> float:
        decoded = (
            tf.data.Dataset.from_tensor_slices(images)
            .repeat()
            .map(lambda data: decode_image(data, image, {}), DECODED_PER_CPU * num_cpus())
            .batch(batch_size)
            .prefetch(2)
        )
        return rate_in_graph(decoded, lambda batch: tf.shape(batch)[0], seconds)

    measures = {"stored": partial(rate, sample), "resized": partial(rate, resized)}
    rates = rates_in_turns(measures, seconds)
    return Resized(
        option=f"short={short}",
        num_images=len(sample),
        stored=rates["stored"],
        resized=rates["resized"],
        stored_bytes=sum(map(len, sample)) / len(sample),
        resized_bytes=sum(map(len, resized)) / len(resized),
    )


def short_side(image: Image) -> int:
    """Return the short side at which to store images that are decoded to a size, with a margin for crops."""
    if image.size is None:
        return _DEFAULT
    return _MULTIPLE * round(min(image.size) * _MARGIN / _MULTIPLE + 0.499)
