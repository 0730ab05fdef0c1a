"""Train on data larger than memory: records are read as they are needed.

Usage: python examples/larger_than_memory.py DATASET FAST_FOLDER   (with the split train)
"""

import sys

import keras

from tfshards import loader
from tfshards.schemas import read_manifest


def main(dataset: str, fast_folder: str) -> None:
    """Train for ten epochs, and print the accuracy."""
    classes = read_manifest(dataset).schema.class_names
    train = loader.load(
        dataset,
        "train",
        batch_size=64,
        select=("image", "label"),
        image=loader.Image(size=(32, 32), channels=1),
        shuffle=loader.Shuffle(seed=0),
        # The first run copies the shards from slow storage; later runs reuse the copies.
        cache=f"disk:{fast_folder}",
    )
    model = keras.Sequential(
        [
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(len(classes)),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    history = model.fit(train, epochs=10, shuffle=False, verbose=2).history
    print(f"accuracy: {history['accuracy'][-1]:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
