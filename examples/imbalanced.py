"""Train on uneven classes: unchanged, with class weights, with weights in the batches, and resampled.

Usage: python examples/imbalanced.py DATASET   (with the splits train and test)
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import read_manifest

OPTIONS = {"batch_size": 64, "select": ("image", "label"), "image": loader.Image(size=(32, 32), channels=1)}


def trained(dataset, class_weight=None, loss="sparse_categorical_crossentropy", **options):
    """Return a small model, trained for eight epochs."""
    keras.utils.set_random_seed(0)
    train = loader.load(dataset, "train", epochs=8, shuffle=loader.Shuffle(seed=0), **OPTIONS, **options)
    classes = read_manifest(dataset).schema.class_names
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(len(classes), activation="softmax")])
    model.compile("adam", loss)
    model.fit(train, class_weight=class_weight, shuffle=False, verbose=0)
    return model


def mean_recall(model, dataset):
    """Return the share of test examples that are recognized, averaged over the classes."""
    test = loader.load(dataset, "test", remainder="keep", **OPTIONS)
    labels = np.concatenate([labels for _, labels in test.as_numpy_iterator()])
    guesses = model.predict(test, verbose=0).argmax(axis=1)
    return np.mean([np.mean(guesses[labels == label] == label) for label in np.unique(labels)])


def main(dataset: str) -> None:
    """Print the mean recall with each way to handle the classes."""
    class_names = read_manifest(dataset).schema.class_names
    num_classes = len(class_names)
    ways = {
        "as they are": {},
        # each epoch holds every class equally often
        "resampled": {"classes": dict.fromkeys(class_names, 1)},
        # Keras weights the loss by class
        "class_weight": {"class_weight": loader.class_weights(dataset, "train")},
        # batches are (image, label, weight); also for one-hot labels and in custom training loops
        "sample_weights": {
            "sample_weights": "balanced",
            "map_fn": lambda example, _: (example["image"], tf.one_hot(example["label"], num_classes)),
            "loss": "categorical_crossentropy",
        },
    }
    for name, options in ways.items():
        print(f"{name}: mean recall {mean_recall(trained(dataset, **options), dataset):.4f}")


if __name__ == "__main__":
    main(sys.argv[1])
