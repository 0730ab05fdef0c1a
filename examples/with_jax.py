"""Train with JAX, each batch sharded over devices; four CPU devices take the place of GPUs.

Usage: python examples/with_jax.py DATASET   (with the splits train and test)
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tfshards import loader

jax.config.update("jax_num_cpu_devices", 4)
# JAX cuts int64 and float64 to 32 bits without a word: jax.config.update("jax_enable_x64", True) keeps them.
SMALL = {np.dtype(np.int64): np.int32, np.dtype(np.float64): np.float32}
IMAGE = loader.Image(size=(32, 32), channels=1, dtype="float32")


def main(path: str) -> None:
    """Train for a few epochs and print the accuracy on the split ``test``."""
    sharding = NamedSharding(Mesh(jax.devices(), ("batch",)), PartitionSpec("batch"))
    # with jax.distributed, each process reads and gives its part of the global batch
    worker = loader.Worker(jax.process_index(), jax.process_count())
    options = {
        "batch_size": 64 // worker.count,
        "worker": worker,
        "select": ("image", "label"),
        "image": IMAGE,
    }
    place = lambda array: jax.make_array_from_process_local_data(  # noqa: E731
        sharding, array.astype(SMALL.get(array.dtype, array.dtype), casting="same_kind")
    )
    logits = lambda weights, images: images.reshape(len(images), -1) / 255 @ weights  # noqa: E731

    def loss(weights: jax.Array, images: jax.Array, labels: jax.Array) -> jax.Array:
        logs = jax.nn.log_softmax(logits(weights, images))
        return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()

    step = jax.jit(lambda weights, *batch: weights - 0.03 * jax.grad(loss)(weights, *batch))
    weights = jnp.zeros((32 * 32, 10))
    train = loader.batches(path, "train", shuffle=loader.Shuffle(seed=0), **options)
    for _ in range(10):
        for batch in train:
            weights = step(weights, *map(place, batch))
    print(f"images on {len(place(batch[0]).sharding.device_set)} devices")
    test = loader.batches(
        path, "test", batch_size=64, remainder="keep", select=("image", "label"), image=IMAGE
    )
    right = np.concatenate([logits(weights, images).argmax(1) == labels for images, labels in test])
    print(f"accuracy: {right.mean():.4f} on {len(right)} held-out examples")


main(sys.argv[1])
