"""Cross-validate: one model per device, trained on all but one part of the data and evaluated on that part.

Usage: python examples/separate_models.py DATASET   (with the split train; two CPU devices, in place of GPUs)
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import keras
import tensorflow as tf

from tfshards.loader import Image, Part, Shuffle, load
from tfshards.schemas import read_manifest

DEVICES = ("CPU:0", "CPU:1")
OPTIONS = {"batch_size": 32, "select": ("image", "label"), "image": Image(size=(32, 32), channels=1)}


def main(dataset: str) -> None:
    """Print the accuracy of each model on the examples that it was not trained on."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration() for _ in DEVICES])
    num_classes = len(read_manifest(dataset).schema.class_names)

    def accuracy_of(index: int) -> float:
        rest, part = Part(index, len(DEVICES), rest=True), Part(index, len(DEVICES))
        train = load(dataset, "train", take=rest, shuffle=Shuffle(seed=index), **OPTIONS)
        validation = load(dataset, "train", take=part, remainder="keep", **OPTIONS)
        with tf.device(DEVICES[index]):
            output = keras.layers.Dense(num_classes, "softmax")
            model = keras.Sequential([keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), output])
            model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
            model.fit(train, epochs=5, shuffle=False, verbose=0)
            return model.evaluate(validation, verbose=0, return_dict=True)["accuracy"]

    for device, accuracy in zip(DEVICES, ThreadPoolExecutor().map(accuracy_of, range(2)), strict=True):
        print(f"{device}: accuracy {accuracy:.4f}")


main(sys.argv[1])
