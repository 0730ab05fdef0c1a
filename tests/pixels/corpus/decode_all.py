"""Decode images with TensorFlow alone: ``decode_all.py PATH CHANNELS``.

The path is an ``.npz`` of encoded bytes, ``CHANNELS`` 1, 3 or 4. The pixels, uint8 of shape (height, width,
channels), are written to ``PATH.pixels.npz``; where TensorFlow refuses the bytes, the array is empty.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf


def decode(data: bytes, channels: int) -> np.ndarray:
    if data.startswith(b"\xff\xd8"):
        # the transform of Pillow; a JPEG has no alpha
        image = tf.io.decode_jpeg(data, channels=min(channels, 3), dct_method="INTEGER_ACCURATE")
    else:
        image = tf.io.decode_image(data, channels=channels, expand_animations=False)
    return np.asarray(image)


if __name__ == "__main__":
    path, channels = sys.argv[1], int(sys.argv[2])
    pixels = []
    with np.load(path) as encoded:
        for name in encoded.files:
            try:
                pixels.append(decode(encoded[name].tobytes(), channels))
            except tf.errors.OpError:
                pixels.append(np.zeros(0, np.uint8))
    np.savez(f"{path}.pixels.npz", *pixels)
