"""A program: Keras and a loop of one's own on two logical CPU devices; what they saw goes to stdout as JSON.

Run by test_distribute.py: TensorFlow's devices are fixed for the life of a process.
"""

import itertools
import json
import os
import sys
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import keras
import tensorflow as tf

from tfshards import loader

SELECT = ("x", "label")


def make_model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, kernel_initializer="zeros")])
    model.compile(
        keras.optimizers.SGD(0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.MeanMetricWrapper(mean_label, "counts_padding")],
        weighted_metrics=[
            keras.metrics.MeanMetricWrapper(mean_label, "mean_label"),
            keras.metrics.SparseCategoricalCrossentropy("crossentropy", from_logits=True),
        ],
    )
    return model


def mean_label(labels, _):
    return tf.reshape(tf.cast(labels, tf.float32), [-1])


def fit(path, data, **options):
    """Return a model after three epochs."""
    model = make_model()
    # shuffle is what Keras does with arrays; for datasets it warns that it does not
    model.fit(data, epochs=3, class_weight=loader.class_weights(path), shuffle=False, verbose=0, **options)
    return model


def weights_of(model):
    return [weight.tolist() for weight in model.get_weights()]


def train(path):
    """Return the weights after some fits, and what ``evaluate`` and ``predict`` say then."""
    options = {"batch_size": 4, "select": SELECT, "shuffle": loader.Shuffle(seed=1)}
    steps = loader.steps_per_epoch(path, "train", 4)
    later = loader.load(path, **options, epochs=None, start=loader.Position(1))
    found = {"later": weights_of(fit(path, later, steps_per_epoch=steps))}
    found["plain"] = weights_of(fit(path, loader.load(path, **options)))
    model = fit(path, loader.load(path, **options, epochs=None), steps_per_epoch=steps)
    padded = loader.load(path, batch_size=4, select=SELECT, remainder="pad")
    return found | {
        "weights": weights_of(model),
        "steps": int(model.optimizer.iterations.numpy()),
        "evaluated": model.evaluate(padded, return_dict=True, verbose=0),
        "predicted": model.predict(padded, verbose=0).tolist(),
    }


def loop(strategy, path, **options):
    """Return, of each of two passes over one distributed dataset, the replicas' labels of each step."""
    steps = loader.steps_per_epoch(path, "train", 4, options.get("remainder", "drop"))
    data = loader.distribute(strategy, path, "train", global_batch_size=4, select=("number",), **options)

    @tf.function
    def numbers_of(batch):
        return strategy.run(lambda number, *weights: (number, *weights), args=batch)

    def local(value):
        return [part.numpy().tolist() for part in strategy.experimental_local_results(value)]

    return [
        [[local(value) for value in numbers_of(batch)] for batch in itertools.islice(data, steps)]
        for _ in range(2)
    ]


def main(path):
    warnings.simplefilter("error", UserWarning)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found = {"replicas": strategy.num_replicas_in_sync, "one": train(path)}
    with strategy.scope():
        found["two"] = train(path)
    found["padded"] = loop(strategy, path, remainder="pad")
    found["shuffled"] = loop(strategy, path, shuffle=loader.Shuffle(seed=2))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
