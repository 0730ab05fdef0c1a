"""Train on several hosts with MultiWorkerMirroredStrategy; two processes take the place of hosts.

Usage: python examples/multiworker.py DATASET   (with the splits train and test)

With TF_CONFIG set, this is one of the workers, as on a cluster; otherwise it starts all of them on this host.
"""

import json
import os
import socket
import subprocess
import sys

import keras
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import read_manifest

NUM_WORKERS = 2
GLOBAL_BATCH_SIZE = 64


def start(dataset: str) -> None:
    """Run this file once for each worker, and wait for all of them."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(NUM_WORKERS)]
    cluster = {"worker": [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]}
    for each in sockets:
        each.close()
    workers = []
    for index in range(NUM_WORKERS):
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        environment = os.environ | {"TF_CONFIG": config}
        workers.append(subprocess.Popen([sys.executable, __file__, dataset], env=environment))
    sys.exit(max(abs(worker.wait()) for worker in workers))


def main(dataset: str) -> None:
    """Train for a few epochs and print the accuracy on the split ``test``."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    image = loader.Image(size=(32, 32), channels=1, dtype="float32")
    options = {"global_batch_size": GLOBAL_BATCH_SIZE, "select": ("image", "label"), "image": image}
    train = loader.distribute(strategy, dataset, "train", shuffle=loader.Shuffle(seed=0), **options)
    test = loader.distribute(strategy, dataset, "test", remainder="pad", **options)
    manifest = read_manifest(dataset)
    with strategy.scope():
        layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
        logits = keras.layers.Dense(len(manifest.schema.class_names))
        model = keras.Sequential([keras.Input((32, 32, 1)), *layers, logits])
        optimizer = keras.optimizers.Adam(0.005)
        optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(batch: tuple) -> None:
        def replica(image: tf.Tensor, label: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(label, model(image, training=True))
                # The optimizer of Keras adds the gradients of all replicas on all hosts.
                loss = tf.reduce_sum(losses) / GLOBAL_BATCH_SIZE
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

        strategy.run(replica, args=batch)

    @tf.function
    def num_right(batch: tuple) -> tf.Tensor:
        def replica(image: tf.Tensor, label: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
            # Padding has weight 0.
            return tf.reduce_sum(weight * tf.cast(tf.argmax(model(image), axis=1) == label, tf.float32))

        return strategy.reduce("SUM", strategy.run(replica, args=batch), axis=None)

    # Every worker has the same number of steps, so that none waits for another that has ended.
    for _ in range(10):
        for batch in train:
            train_step(batch)
    right = sum(float(num_right(batch)) for batch in test)
    held_out, worker = manifest.splits["test"].num_examples, loader.Worker.from_environment()
    print(f"worker {worker.index} of {worker.count}: accuracy: {right / held_out:.4f} on {held_out} examples")


if __name__ == "__main__":
    (main if "TF_CONFIG" in os.environ else start)(sys.argv[1])
