"""A program: one task of a cluster with parameter servers; the coordinator prints its findings as JSON.

Run by test_parameter_servers.py. Usage: server_cluster.py NUMBERED
"""

import json
import os
import sys
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import tensorflow as tf

GLOBAL_BATCH_SIZE = 4


def passes(coordinator, data, num_workers):
    """Return the batches that each worker read in each of two passes, with their weights."""

    @tf.function
    def rest(iterator):
        """Return the worker that runs this, and ``(number, weight)`` of the rows of its part not read yet."""
        rows = tf.TensorArray(tf.int64, 0, dynamic_size=True, element_shape=[None, 2], infer_shape=False)
        batch = iterator.get_next_as_optional()
        while batch.has_value():
            number, weight = batch.get_value()
            rows = rows.write(rows.size(), tf.stack([number, tf.cast(weight, tf.int64)], axis=1))
            batch = iterator.get_next_as_optional()
        return tf.distribute.coordinator.experimental_get_current_worker_index(), rows.concat()

    per_worker = coordinator.create_per_worker_dataset(data)
    found = []
    for _ in range(2):
        iterator, read = iter(per_worker), {}
        while len(read) < num_workers:
            parts = [coordinator.schedule(rest, args=(iterator,)) for _ in range(num_workers)]
            for worker, rows in (part.fetch() for part in parts):
                # a fast worker may get a second closure, which finds no rows left
                assert str(worker) not in read or not len(rows)
                read.setdefault(str(worker), rows.tolist())
        found.append(read)
    return found


def refusals(strategy, path, loader):
    """Return the errors for options that parameter servers, or the dataset, do not support."""
    errors = {}
    for name, options in {
        "shuffle": {"global_batch_size": 4, "shuffle": loader.Shuffle(seed=1)},
        "crop": {"global_batch_size": 4, "image": loader.Image(size=(2, 2), crop="random")},
        "mix": {"global_batch_size": 4, "path": loader.Mix({path: 1})},
        "cache": {"global_batch_size": 4, "cache": "disk:near"},
        "progress": {"global_batch_size": 4, "start": loader.Progress()},
        "odd": {"global_batch_size": 5},
        "select": {"global_batch_size": 4, "select": ("nope",)},
    }.items():
        try:
            loader.distribute(strategy, **{"path": path, **options})
        except ValueError as error:
            errors[name] = str(error)
    with strategy.scope(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader.load(path, batch_size=4)
    return errors | {"load": str(caught[0].message)}


def main(numbered):
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
        )
        server.join()
    from tfshards import loader
    from tfshards.loader.graph import raw_ops

    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    num_workers = raw_ops.num_server_workers(strategy)
    assert num_workers == resolver.cluster_spec().num_tasks("worker")
    padded = loader.distribute(
        strategy, numbered, global_batch_size=GLOBAL_BATCH_SIZE, remainder="pad", select=("number",)
    )
    shuffled = loader.distribute(
        strategy,
        numbered,
        global_batch_size=GLOBAL_BATCH_SIZE,
        remainder="pad",
        select=("number",),
        shuffle=loader.Shuffle(seed=2),
        start=loader.Position(1),
        epochs=2,
    )
    found = {
        "padded": passes(coordinator, padded, num_workers),
        "shuffled": passes(coordinator, shuffled, num_workers),
        "refused": refusals(strategy, numbered, loader),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
