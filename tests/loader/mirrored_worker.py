"""A program: one worker of MultiWorkerMirroredStrategy; it prints what it saw as JSON.

Run by test_several_hosts.py, as each task of a cluster.
Usage: mirrored_worker.py CASES
"""

import json
import os
import sys
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import tensorflow as tf

from tfshards import loader


def loop(strategy, path, global_batch_size, options):
    """Return this worker's numbers and weights of each step, and the sums over all workers of both."""
    if options.pop("shuffled"):
        options["shuffle"] = loader.Shuffle(seed=2)
    data = loader.distribute(
        strategy, path, global_batch_size=global_batch_size, select=("number",), **options
    )

    @tf.function
    def step(batch):
        def sums(number, weight=None):
            weight = tf.ones_like(number) if weight is None else tf.cast(weight, tf.int64)
            return tf.distribute.get_replica_context().all_reduce(
                "SUM", [tf.reduce_sum(number * weight), tf.reduce_sum(weight)]
            )

        return strategy.run(sums, args=batch)

    def own(value):
        (part,) = strategy.experimental_local_results(value)
        return part.numpy().tolist()

    # no islice(): the test is that the dataset ends at the same step for all workers
    return [{"own": [own(v) for v in batch], "all": [own(total) for total in step(batch)]} for batch in data]


def main(cases):
    cases = json.loads(cases)
    path = cases[0][0]
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = loader.Worker.from_environment()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader.load(path, batch_size=4)
        with strategy.scope():
            loader.load(path, batch_size=4)
    found = {"worker": [worker.index, worker.count], "warned": [str(each.message) for each in caught]}
    warnings.simplefilter("error", UserWarning)
    found["cases"] = [loop(strategy, *case) for case in cases]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
