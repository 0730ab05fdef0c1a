"""What is done to one example before it goes into a batch: its images are decoded."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

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
            pixels = decode_image(decoded[feature.name], image, beside)
            if image.size is None:
                pixels = tf.ensure_shape(pixels, [*feature.shape[:2], image.channels])
            decoded[feature.name] = pixels
    return decoded, {name: value for name, value in beside.items() if name == "real"}
