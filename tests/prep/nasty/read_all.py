"""Read datasets with the loader: ``read_all.py OUT`` with the channels of each as JSON on stdin.

Beside each dataset are left ``NAME.keys`` (JSON), and in the same order ``NAME.encoded.npz`` and
``NAME.pixels.npz``.
"""

from __future__ import annotations

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from tfshards import loader
from tfshards.loader.images import decode_image

if __name__ == "__main__":
    out = sys.argv[1]
    for name, channels in json.load(sys.stdin).items():
        image = loader.Image(channels=channels)
        keys, encoded, pixels, failed = [], [], [], {}
        for key, data in loader.load(
            f"{out}/{name}", batch_size=1, select=("key", "image")
        ).as_numpy_iterator():
            # pictures of many sizes make no batch: the loader's own decoder takes them one by one
            try:
                decoded = decode_image(tf.constant(data[0]), image, tf.constant(0, tf.int64)).numpy()
            except tf.errors.OpError as error:
                failed[key[0].decode()] = str(error)
                continue
            keys.append(key[0].decode())
            encoded.append(data[0])
            pixels.append(decoded)
        assert not failed, f"{name}: {failed}"
        with open(f"{out}/{name}.keys", "w") as file:
            json.dump(keys, file)
        np.savez(f"{out}/{name}.encoded", *(np.frombuffer(data, np.uint8) for data in encoded))
        np.savez(f"{out}/{name}.pixels", *pixels)
