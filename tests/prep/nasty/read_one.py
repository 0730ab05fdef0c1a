"""Read a dataset with the loader: ``read_one.py OUT CHANNELS``.

Writes ``OUT.keys`` (JSON), and in the same order ``OUT.encoded.npz`` and ``OUT.pixels.npz``.
"""

from __future__ import annotations

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from tfshards import loader
from tfshards.loader.examples.images import decode_image

if __name__ == "__main__":
    out = sys.argv[1]
    image = loader.Image(channels=int(sys.argv[2]))
    keys, encoded, pixels, failed = [], [], [], {}
    for key, data in loader.load(out, batch_size=1, select=("key", "image")).as_numpy_iterator():
        # images of different sizes cannot be batched, so they are decoded one by one
        try:
            decoded = decode_image(tf.constant(data[0]), image, tf.constant(0, tf.int64)).numpy()
        except tf.errors.OpError as error:
            failed[key[0].decode()] = str(error)
            continue
        keys.append(key[0].decode())
        encoded.append(data[0])
        pixels.append(decoded)
    assert not failed, failed
    with open(f"{out}.keys", "w") as file:
        json.dump(keys, file)
    np.savez(f"{out}.encoded", *(np.frombuffer(data, np.uint8) for data in encoded))
    np.savez(f"{out}.pixels", *pixels)
