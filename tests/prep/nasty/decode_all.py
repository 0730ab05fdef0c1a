"""Decode the images in a file with TensorFlow: ``decode_all.py PATH``.

The path is an ``.npz`` of encoded bytes. The pixels are written to ``PATH.pixels.npz``; if TensorFlow refuses
the bytes, the array is empty.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from tfshards import loader
from tfshards.loader.tensors.decode import decode_image


def decode(data: bytes) -> np.ndarray:
    pixels: np.ndarray = decode_image(
        tf.constant(data), loader.Image(channels=3), tf.constant(0, tf.int64)
    ).numpy()
    return pixels


if __name__ == "__main__":
    path = sys.argv[1]
    pixels = []
    with np.load(path) as encoded:
        for name in encoded.files:
            try:
                pixels.append(decode(encoded[name].tobytes()))
            except tf.errors.OpError:
                pixels.append(np.zeros(0, np.uint8))
    np.savez(f"{path}.pixels.npz", *pixels)
