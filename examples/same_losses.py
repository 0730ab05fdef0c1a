"""Train the same model on the same batches with TensorFlow, JAX and PyTorch, and compare the losses.

Each framework trains a linear classifier by plain gradient descent, in its own code: TensorFlow on the
batches of ``loader.load``, JAX and PyTorch on the batches of ``loader.batches``. Order, crops and flips are a
function of the seed, so that the losses of every step agree up to the rounding of floats.

Usage: python examples/same_losses.py DATASET [--steps 50]
"""

import argparse
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
import torch

from tfshards import loader

RATE, SIZE, CLASSES = 0.01, 16, 10


def options() -> dict:
    """Return what all three read: shuffled, augmented, two epochs, the last batch of each left out."""
    image = loader.Image((SIZE, SIZE), crop="random", dtype="float32", normalize="symmetric", channels=1)
    return {
        "batch_size": 32,
        "shuffle": loader.Shuffle(seed=7),
        "epochs": None,
        "select": ("image", "label"),
        "image": image,
    }


def with_tensorflow(path: str, steps: int) -> list[float]:
    weights, losses = tf.Variable(tf.zeros([SIZE * SIZE, CLASSES])), []
    for images, labels in loader.load(path, "train", **options()).take(steps):
        with tf.GradientTape() as tape:
            logits = tf.reshape(images, [len(images), -1]) @ weights
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        weights.assign_sub(RATE * tape.gradient(loss, weights))
        losses.append(float(loss))
    return losses


def with_jax(path: str, steps: int) -> list[float]:
    def loss_of(weights, images, labels):
        logits = jax.nn.log_softmax(images.reshape(len(images), -1) @ weights)
        return -jnp.take_along_axis(logits, labels[:, None], axis=1).mean()

    weights, losses = jnp.zeros((SIZE * SIZE, CLASSES)), []
    step = jax.jit(jax.value_and_grad(loss_of))
    for images, labels in itertools.islice(loader.batches(path, "train", **options()), steps):
        loss, slope = step(weights, images, labels.astype(np.int32))
        weights = weights - RATE * slope
        losses.append(float(loss))
    return losses


def with_torch(path: str, steps: int) -> list[float]:
    weights, losses = torch.zeros(SIZE * SIZE, CLASSES, requires_grad=True), []
    for images, labels in itertools.islice(loader.batches(path, "train", **options()), steps):
        logits = torch.from_numpy(images).flatten(1) @ weights
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))
        (slope,) = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            weights -= RATE * slope
        losses.append(float(loss))
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--steps", type=int, default=50)
    given = parser.parse_args()
    found = {run.__name__: run(given.dataset, given.steps) for run in (with_tensorflow, with_jax, with_torch)}
    losses = np.array([*found.values()])
    apart = float((losses.max(axis=0) - losses.min(axis=0)).max())
    print(f"{given.steps} steps, loss from {losses[0, 0]:.4f} to {losses[0, -1]:.4f}")
    print(f"largest difference between the frameworks: {apart:.2g}")
    assert losses.shape == (3, given.steps)
    assert apart < 1e-4 * losses.max()


if __name__ == "__main__":
    main()
