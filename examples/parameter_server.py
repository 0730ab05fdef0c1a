"""Train with ParameterServerStrategy: a coordinator, two workers and a parameter server in processes.

Usage: python examples/parameter_server.py DATASET   (with the splits train and test)

With TF_CONFIG set, this is one of the tasks, as on a cluster; otherwise it starts all of them on this host.
"""

import json
import os
import socket
import subprocess
import sys

import tensorflow as tf

TASKS = {"worker": 2, "ps": 1, "chief": 1}
# The examples of both workers together: a step of one of them processes half of it.
GLOBAL_BATCH_SIZE = 64


def start(dataset: str) -> None:
    """Run this file once for each task, wait for the coordinator, and stop the others."""
    tasks = [(kind, index) for kind, count in TASKS.items() for index in range(count)]
    sockets = {task: socket.create_server(("127.0.0.1", 0)) for task in tasks}
    cluster = {
        kind: [f"127.0.0.1:{sockets[kind, index].getsockname()[1]}" for index in range(count)]
        for kind, count in TASKS.items()
    }
    for each in sockets.values():
        each.close()
    processes = []
    for kind, index in tasks:
        config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
        environment = os.environ | {"TF_CONFIG": config}
        processes.append(subprocess.Popen([sys.executable, __file__, dataset], env=environment))
    *servers, coordinator = processes
    status = coordinator.wait()
    for server in servers:
        server.kill()
        server.wait()
    sys.exit(status)


def main(dataset: str) -> None:
    """Serve; or, as the coordinator, train and print the accuracy on the split ``test``."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        cluster = resolver.cluster_spec()
        tf.distribute.Server(cluster, job_name=resolver.task_type, task_index=resolver.task_id).join()
    coordinate(tf.distribute.ParameterServerStrategy(resolver), dataset, TASKS["worker"])


def coordinate(strategy: tf.distribute.Strategy, dataset: str, num_workers: int) -> None:
    """Train and evaluate by functions that run on any free worker, with the data of that worker."""
    import keras

    from tfshards import loader
    from tfshards.schemas import read_manifest

    image = loader.Image(size=(32, 32), channels=1, dtype="float32")
    options = {"global_batch_size": GLOBAL_BATCH_SIZE, "select": ("image", "label"), "image": image}
    # No end: a fast worker processes more steps than a slow one.
    shuffle = loader.Shuffle(seed=0)
    train = loader.distribute(strategy, dataset, "train", shuffle=shuffle, epochs=None, **options)
    test = loader.distribute(strategy, dataset, "test", remainder="pad", **options)
    manifest = read_manifest(dataset)
    with strategy.scope():
        layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
        logits = keras.layers.Dense(len(manifest.schema.class_names))
        model = keras.Sequential([keras.Input((32, 32, 1)), *layers, logits])
        optimizer = keras.optimizers.Adam(0.005)
        optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(iterator: tf.distribute.DistributedIterator) -> None:
        def replica(image: tf.Tensor, label: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(label, model(image, training=True))
                loss = tf.reduce_mean(losses)
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

        strategy.run(replica, args=next(iterator))

    @tf.function
    def num_right(iterator: tf.distribute.DistributedIterator) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the index of this worker, and how many of its remaining examples are right."""

        def replica(image: tf.Tensor, label: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
            # Padding has weight 0.
            return tf.reduce_sum(weight * tf.cast(tf.argmax(model(image), axis=1) == label, tf.float32))

        right, batch = 0.0, iterator.get_next_as_optional()
        while batch.has_value():
            right += strategy.reduce("SUM", strategy.run(replica, args=batch.get_value()), axis=None)
            batch = iterator.get_next_as_optional()
        return tf.distribute.coordinator.experimental_get_current_worker_index(), right

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    steps = num_workers * loader.steps_per_epoch(dataset, "train", GLOBAL_BATCH_SIZE)
    iterator = iter(coordinator.create_per_worker_dataset(train))
    for _ in range(10 * steps):
        coordinator.schedule(train_step, args=(iterator,))
    coordinator.join()

    iterator, ended, right = iter(coordinator.create_per_worker_dataset(test)), set(), 0.0
    # Repeat until every worker had a turn; a worker that has a second turn has no examples left.
    while len(ended) < num_workers:
        for part in [coordinator.schedule(num_right, args=(iterator,)) for _ in range(num_workers)]:
            worker, found = part.fetch()
            ended.add(int(worker))
            right += float(found)
    held_out = manifest.splits["test"].num_examples
    print(f"accuracy: {right / held_out:.4f} on {held_out} held-out examples")


if __name__ == "__main__":
    (main if "TF_CONFIG" in os.environ else start)(sys.argv[1])
