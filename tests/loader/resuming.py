"""Program of test_resume.py: train in processes that are killed and resumed, and print the steps of each.

Each line of a log is one step: the optimizer's step number and a digest of the batch. TensorFlow is imported
once; the training processes are forked from this one before it runs any operation.
"""

import hashlib
import json
import os
import random
import signal
import sys
import threading
import traceback
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from tfshards import loader

assert keras.backend.backend() == os.environ["KERAS_BACKEND"]
EPOCHS, BATCH_SIZE, EVERY = 3, 4, 4


def options(progress, epochs):
    return {
        "batch_size": BATCH_SIZE,
        "shuffle": loader.Shuffle(seed=5, run=3),
        "select": ("image", "number"),
        "image": loader.Image(size=(6, 6), crop="random", flip="horizontal", dtype="float32"),
        "epochs": epochs,
        "start": progress,
    }


class Log:
    """Log each step, and kill this process ``delay`` seconds after the ``kill_at``-th one."""

    def __init__(self, path, kill_at, delay):
        self._path, self._left, self._delay = path, kill_at, delay

    def note(self, step, *batch):
        digest = hashlib.sha256(b"".join(np.asarray(values).tobytes() for values in batch)).hexdigest()[:16]
        with self._path.open("a") as file:
            file.write(f"{int(step)} {digest}\n")
        self._left -= 1
        if self._left == 0:
            threading.Timer(self._delay, os.kill, (os.getpid(), signal.SIGKILL)).start()


def noted_by(log):
    """Return the class of models on TensorFlow or PyTorch that log each step."""

    class Noted:
        def train_step(self, data):
            image, number = data
            if keras.backend.backend() == "torch":
                log.note(self.optimizer.iterations.value, number, image)
                return super().train_step(data)
            tf.numpy_function(log.note, [self.optimizer.iterations, number, image], [])
            return super().train_step(data)

    return Noted


def noted_in_jax_by(log):
    """Return the class of models on JAX that log each step."""
    import jax

    class Noted:
        def train_step(self, state, data):
            image, number = data
            # the first variable of an optimizer counts its steps
            jax.debug.callback(log.note, state[2][0], number, image, ordered=True)
            return super().train_step(state, data)

    return Noted


def with_keras(dataset, folder, log):
    backend = os.environ["KERAS_BACKEND"]

    class Noted((noted_in_jax_by if backend == "jax" else noted_by)(log), keras.Sequential):
        pass

    keras.utils.set_random_seed(3)
    layers = keras.layers
    model = Noted([keras.Input((6, 6, 1)), layers.Flatten(), layers.BatchNormalization(), layers.Dense(5)])
    model.add(layers.Dropout(0.5, seed=1))
    model.add(layers.Dropout(0.1))
    model.add(layers.Dense(1))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    resume = loader.Resume(folder, every=EVERY)
    is_tensorflow = backend == "tensorflow"
    read = loader.load if is_tensorflow else loader.batches
    train = read(dataset, "train", **options(resume.progress, None))
    train = train if is_tensorflow else iter(train)
    history = model.fit(
        train,
        epochs=EPOCHS,
        initial_epoch=resume.progress.epoch,
        steps_per_epoch=resume.progress.steps_per_epoch,
        validation_data=(np.zeros([2, 6, 6, 1]), np.zeros([2])),
        callbacks=[resume, keras.callbacks.EarlyStopping("val_loss", patience=EPOCHS)],
        shuffle=False,
        verbose=0,
    )
    assert not model.stop_training
    return [*model.variables, *model.optimizer.variables], history.epoch


def with_a_loop(dataset, folder, log):
    weights = tf.Variable(tf.zeros([36]))
    momentum = tf.Variable(tf.zeros([36]))
    steps = tf.Variable(0, dtype=tf.int64)
    progress = loader.Progress()
    checkpoint = tf.train.Checkpoint(weights=weights, momentum=momentum, steps=steps, progress=progress)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
    manager.restore_or_initialize()
    for image, number in loader.load(dataset, "train", **options(progress, EPOCHS)):
        log.note(steps.numpy(), number.numpy(), image.numpy())
        images = tf.reshape(image, [-1, 36]) / 255
        with tf.GradientTape() as tape:
            error = tf.linalg.matvec(images, weights) - tf.cast(number, tf.float32)
            loss = tf.reduce_mean(error**2)
        momentum.assign(0.9 * momentum + tape.gradient(loss, weights))
        weights.assign_sub(0.01 * momentum)
        steps.assign_add(1)
        progress.advance()
        if progress.step % EVERY == 0:
            manager.save()
    return [weights, momentum, steps], [progress.epoch, progress.step]


WAYS = {
    "keras": with_keras,
    "loop": with_a_loop,
}


def run(way, dataset, folder, kill_at=0, delay=0.0):
    """Train in a forked process; return its status and log, and its results if it was not killed."""
    log = folder.with_suffix(".log")
    log.write_text("")
    child = os.fork()
    if not child:
        status = 1
        try:
            tf.config.experimental.enable_op_determinism()
            tf.random.set_seed(3)
            variables, seen = WAYS[way](dataset, folder, Log(log, kill_at, delay))
            digest = hashlib.sha256(b"".join(each.numpy().tobytes() for each in variables)).hexdigest()
            folder.with_suffix(".json").write_text(json.dumps({"digest": digest, "seen": seen}))
            status = 0
        except BaseException:  # a forked process must not continue with the code of its parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    steps = [line.split() for line in log.read_text().splitlines()]
    found = {"status": status, "steps": [(int(step), digest) for step, digest in steps]}
    return found | (json.loads(folder.with_suffix(".json").read_text()) if status == 0 else {})


def main(dataset, scratch, seed, kills):
    """Train in the ways that ``kills`` maps to numbers of kills."""
    draw = random.Random(seed)
    found = {}
    for way, number in kills.items():
        found[way] = {"whole": run(way, dataset, scratch / f"{way}-whole"), "parts": []}
        for _ in range(number):
            # Each part advances by at least one checkpoint; some are killed while they write the next.
            kill_at, delay = draw.randint(EVERY + 1, 11), draw.choice([0, draw.uniform(0, 0.02)])
            found[way]["parts"].append(run(way, dataset, scratch / way, kill_at, delay))
        found[way]["parts"].append(run(way, dataset, scratch / way))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
