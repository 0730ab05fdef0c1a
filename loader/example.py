"""What is done to one example before it goes into a batch: its images are decoded."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from tfshards.loader.image_options import Image
from tfshards.loader.images import decode_image
from tfshards.loader.reading import Reading, Values


def decode_images(
    reading: Reading, values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]
) -> Values:
    """Return the values of one example with its images decoded."""
    decoded = dict(values)
    for feature in reading.features:
        image = reading.images.get(feature.name)
        if image is not None:
            bits = beside.get(bits_name(image), tf.constant(0, tf.int64))
            pixels = decode_image(decoded[feature.name], image, bits)
            if image.size is None:
                pixels = tf.ensure_shape(pixels, [*feature.shape[:2], image.channels])
            decoded[feature.name] = pixels
    return decoded, {name: value for name, value in beside.items() if name == "real"}


def bits_name(image: Image) -> str:
    """Return the name by which the bits of an image's random crops travel."""
    # images of equal seeds share their bits, and so their boxes
    return f"bits {image.seed}"
