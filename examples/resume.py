"""Train a Keras model so that it survives a crash: when run again, it resumes with the next batch.

Usage: python examples/resume.py DATASET CHECKPOINTS [--crash-at STEP]   (with the split train)
"""

import argparse
import os
import signal

import keras

from tfshards import loader
from tfshards.schemas import read_manifest

EPOCHS = 4


def main() -> None:
    """Train, or resume training, and print the number of steps and the norm of the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("checkpoints")
    parser.add_argument("--crash-at", type=int, help="step at which this process is killed")
    options = parser.parse_args()
    keras.utils.set_random_seed(0)
    model = make_model(len(read_manifest(options.dataset).schema.class_names))

    resume = loader.Resume(options.checkpoints, every=5)
    train = loader.load(
        options.dataset,
        "train",
        batch_size=32,
        select=("image", "label"),
        image=loader.Image(size=(8, 8), channels=1),
        shuffle=loader.Shuffle(seed=0),
        epochs=None,
        start=resume.progress,
    )
    print(f"begins at epoch {resume.progress.epoch}, step {resume.progress.step}", flush=True)
    model.fit(
        train,
        epochs=EPOCHS,
        initial_epoch=resume.progress.epoch,
        steps_per_epoch=resume.progress.steps_per_epoch,
        callbacks=[Crash(options.crash_at), resume],
        shuffle=False,
        verbose=0,
    )
    norm = float(sum(keras.ops.norm(weights) for weights in model.trainable_variables))
    print(f"trained for {int(model.optimizer.iterations)} steps, norm of the weights: {norm!r}")


def make_model(num_classes: int) -> keras.Model:
    """Return a small classifier; ``Input`` creates the weights before ``fit``, as ``Resume`` requires."""
    layers = [keras.Input((8, 8, 1)), keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dropout(0.2), keras.layers.Dense(num_classes)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class Crash(keras.callbacks.Callback):
    """Kill the process at a step, as a power failure would."""

    def __init__(self, step: int | None) -> None:
        super().__init__()
        self._left = step

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Kill the process if this was the step."""
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
