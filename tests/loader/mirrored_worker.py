"""A program: one worker of MultiWorkerMirroredStrategy; it prints what it saw as JSON.

Run by test_several_hosts.py, as each task of a cluster.
Usage: mirrored_worker.py LABELED CASES
"""

import json
import os
import sys
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import tensorflow as tf

from tfshards import loader

SELECT = ("x", "label")


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


def fit(strategy, path):
    """Return what tf_keras learns in two epochs, and its evaluation of the padded split."""
    import tf_keras

    with strategy.scope():
        layers = [tf_keras.layers.InputLayer((2,)), tf_keras.layers.Dense(3, kernel_initializer="zeros")]
        model = tf_keras.Sequential(layers)
        model.compile(
            tf_keras.optimizers.SGD(0.1),
            tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=[
                tf_keras.metrics.SparseCategoricalCrossentropy(name="crossentropy", from_logits=True),
                tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            ],
        )
    options = {"global_batch_size": 4, "select": SELECT}
    endless = loader.distribute(strategy, path, shuffle=loader.Shuffle(seed=1), epochs=None, **options)
    steps = loader.steps_per_epoch(path, None, 4)
    model.fit(endless, epochs=2, steps_per_epoch=steps, verbose=0)
    padded = loader.distribute(strategy, path, remainder="pad", **options)
    steps = loader.steps_per_epoch(path, None, 4, "pad")
    return {
        "weights": [weight.tolist() for weight in model.get_weights()],
        "evaluated": model.evaluate(padded, steps=steps, return_dict=True, verbose=0),
        "predicted": model.predict(padded, steps=steps, verbose=0).tolist(),
    }


def main(labeled, cases):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = loader.Worker.from_environment()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader.load(labeled, batch_size=4)
        with strategy.scope():
            loader.load(labeled, batch_size=4)
    found = {"worker": [worker.index, worker.count], "warned": [str(each.message) for each in caught]}
    warnings.simplefilter("error", UserWarning)
    found["cases"] = [loop(strategy, *case) for case in json.loads(cases)]
    found["tf_keras"] = fit(strategy, labeled)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
