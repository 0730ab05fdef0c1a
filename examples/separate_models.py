"""Cross-validate: one model per device, trained on all but one part of the data and evaluated on that part.

Two logical CPU devices take the place of GPUs.

Usage: python examples/separate_models.py DATASET   (with the split train)
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import keras
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import read_manifest

OPTIONS = {"select": ("image", "label"), "image": loader.Image(size=(32, 32), channels=1)}


def accuracy_of(data: loader.DeviceData, num_classes: int) -> float:
    """Return the accuracy of one model on the examples that it was not trained on."""
    with tf.device(data.device):
        layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(num_classes)]
        model = keras.Sequential(layers)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
        model.fit(data.train, epochs=5, shuffle=False, verbose=0)
        return model.evaluate(data.validation, verbose=0, return_dict=True)["accuracy"]


def main(dataset: str) -> None:
    """Print the accuracy of each model and the mean."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    num_classes = len(read_manifest(dataset).schema.class_names)
    # how="all" gives each device the whole split in a different order, how="parts" an equal part of it
    folds = loader.per_device(["CPU:0", "CPU:1"], dataset, "train", batch_size=32, how="folds", **OPTIONS)
    with ThreadPoolExecutor(len(folds)) as threads:
        accuracies = list(threads.map(lambda data: accuracy_of(data, num_classes), folds))
    for data, accuracy in zip(folds, accuracies, strict=True):
        print(f"{data.device}: accuracy {accuracy:.4f}")
    print(f"mean: {sum(accuracies) / len(accuracies):.4f}")


if __name__ == "__main__":
    main(sys.argv[1])
