"""Train with Keras on any backend: KERAS_BACKEND=jax python examples/with_keras.py DATASET CHECKPOINTS.

DATASET has the splits train and test. Run again, it resumes, here with one more epoch.
"""

import sys

import keras

from tfshards import loader

OPTIONS = {"batch_size": 64, "select": ("image", "label"), "image": loader.Image(size=(32, 32), channels=1)}


def main(path: str, checkpoints: str) -> None:
    """Train and print the accuracy on the split ``test``."""
    layers = [keras.Input((32, 32, 1)), keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dropout(0.1, seed=0), keras.layers.Dense(10, "softmax")])
    model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"])

    # TensorFlow is not needed: Keras takes the generator that iter() returns on every backend
    resume = loader.Resume(checkpoints)
    shuffle = loader.Shuffle(seed=0)
    train = loader.batches(path, "train", shuffle=shuffle, epochs=None, start=resume.progress, **OPTIONS)
    model.fit(
        iter(train),
        epochs=resume.progress.epoch + 1 if resume.progress.epoch else 10,
        initial_epoch=resume.progress.epoch,
        steps_per_epoch=train.steps_per_epoch,
        callbacks=[resume],
        verbose=0,
    )
    test = loader.batches(path, "test", remainder="keep", **OPTIONS)
    accuracy = model.evaluate(iter(test), steps=len(test), verbose=0, return_dict=True)["accuracy"]
    print(f"{keras.backend.backend()}: {resume.progress.epoch} epochs, accuracy: {accuracy:.4f}")


main(*sys.argv[1:])
