"""Train a Keras model under MirroredStrategy; two logical CPU devices take the place of GPUs.

Usage: python examples/mirrored_fit.py DATASET   (with the splits train and test)
"""

import sys

import keras
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import read_manifest


def main(dataset: str) -> None:
    """Train for a few epochs and print the accuracy on the split ``test``."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    options = {"select": ("image", "label"), "image": loader.Image(size=(32, 32), channels=1)}
    train = loader.load(dataset, "train", batch_size=64, epochs=12, shuffle=loader.Shuffle(seed=0), **options)
    # The last batch is smaller, so that every test example counts exactly once.
    test = loader.load(dataset, "test", batch_size=64, remainder="keep", **options)

    classes = read_manifest(dataset).schema.class_names
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Rescaling(1 / 255),
                keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
                keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(len(classes)),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
    model.fit(train, shuffle=False, verbose=2)
    _, accuracy = model.evaluate(test, verbose=0)
    held_out = read_manifest(dataset).splits["test"].num_examples
    print(f"accuracy: {accuracy:.4f} on {held_out} held-out examples")


if __name__ == "__main__":
    main(sys.argv[1])
