"""Decode with TensorFlow what stands in files: ``decode_all.py`` reads paths from stdin, one a line.

Each is an ``.npz`` of encoded bytes. For each stands ``PATH.pixels.npz`` beside it in the end, and the path
is printed; where TensorFlow refuses the bytes, the array is empty.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from tfshards import loader
from tfshards.loader.examples.images import decode_image


def decode(data: bytes) -> np.ndarray:
    pixels: np.ndarray = decode_image(
        tf.constant(data), loader.Image(channels=3), tf.constant(0, tf.int64)
    ).numpy()
    return pixels


if __name__ == "__main__":
    for line in sys.stdin:
        path = line.strip()
        pixels = []
        with np.load(path) as encoded:
            for name in encoded.files:
                try:
                    pixels.append(decode(encoded[name].tobytes()))
                except tf.errors.OpError:
                    pixels.append(np.zeros(0, np.uint8))
        np.savez(f"{path}.pixels.npz", *pixels)
        print(path, flush=True)
