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
from tfshards.loader.images import decode_image

if __name__ == "__main__":
    image = loader.Image(channels=3)
    for line in sys.stdin:
        path = line.strip()
        pixels = []
        with np.load(path) as encoded:
            for name in encoded.files:
                try:
                    data = tf.constant(encoded[name].tobytes())
                    pixels.append(decode_image(data, image, tf.constant(0, tf.int64)).numpy())
                except tf.errors.OpError:
                    pixels.append(np.zeros(0, np.uint8))
        np.savez(f"{path}.pixels.npz", *pixels)
        print(path, flush=True)
