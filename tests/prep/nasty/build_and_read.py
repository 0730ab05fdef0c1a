"""Build a folder, and read the dataset with the loader: ``build_and_read.py FOLDER OUT OPTIONS CHANNELS``.

The image options are JSON. Writes ``OUT.keys`` (JSON), and in the same order ``OUT.encoded.npz`` and
``OUT.pixels.npz``.
"""

import json
import sys

import numpy as np
import tensorflow as tf

from tfshards import loader
from tfshards.loader.tensors.decode import decode_image
from tfshards.prep import ImageFolder, ImageOptions, Options, build

if __name__ == "__main__":
    folder, out, options, channels = sys.argv[1:]
    source = ImageFolder(folder, images=ImageOptions(**json.loads(options)))
    build(source, out, shards=2, options=Options(max_rejected=1), engine="local", log=lambda _: None)
    image = loader.Image(channels=int(channels))
    keys, encoded, pixels = [], [], []
    for key, data in loader.load(out, batch_size=1, select=("key", "image")).as_numpy_iterator():
        keys.append(key[0].decode())
        encoded.append(np.frombuffer(data[0], np.uint8))
        # images of different sizes cannot be batched, so they are decoded one by one
        pixels.append(decode_image(tf.constant(data[0]), image, tf.constant(0, tf.int64)).numpy())
    with open(f"{out}.keys", "w") as file:
        json.dump(keys, file)
    np.savez(f"{out}.encoded", *encoded)
    np.savez(f"{out}.pixels", *pixels)
