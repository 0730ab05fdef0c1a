"""A program: Keras and a custom training loop on two logical CPU devices; it prints what they saw as JSON.

Run by test_distribute.py: TensorFlow's devices are fixed for the life of a process.

Usage: two_replicas.py DATASET CASES
"""

import itertools
import json
import os
import sys
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import keras
import numpy as np
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


def reset(model):
    """Make the model what it was before training, but keep the graphs of its steps."""
    model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    model.optimizer.iterations.assign(0)


def fit(model, path, data, **options):
    """Train the model from its start for two epochs, and return its weights."""
    reset(model)
    # Keras shuffles arrays; for datasets it warns that it ignores shuffle=
    model.fit(data, epochs=2, class_weight=loader.class_weights(path), shuffle=False, verbose=0, **options)
    return weights_of(model)


def weights_of(model):
    return [weight.tolist() for weight in model.get_weights()]


def train(model, path):
    """Return the weights after some fits, and the results of ``evaluate`` and ``predict``."""
    options = {"batch_size": 4, "select": SELECT, "shuffle": loader.Shuffle(seed=1)}
    steps = len(loader.batches(path, batch_size=4))
    later = loader.load(path, **options, epochs=None, start=loader.Position(1))
    found = {"later": fit(model, path, later, steps_per_epoch=steps)}
    found["plain"] = fit(model, path, loader.load(path, **options))
    found["weights"] = fit(model, path, loader.load(path, **options, epochs=None), steps_per_epoch=steps)
    padded = loader.load(path, batch_size=4, select=SELECT, remainder="pad")
    kept = loader.load(path, batch_size=4, select=SELECT, remainder="keep", take=21)
    return found | {
        "steps": int(model.optimizer.iterations.numpy()),
        "evaluated": model.evaluate(padded, return_dict=True, verbose=0),
        "predicted": model.predict(padded, verbose=0).tolist(),
        "kept": model.evaluate(kept, return_dict=True, verbose=0),
        "kept rows": model.predict(kept, verbose=0).tolist(),
    }


def fit_distributed(model, strategy, path):
    """Return the steps of fits on finite distributed datasets, and the evaluation of one."""
    reset(model)
    steps = []
    data = loader.distribute(
        strategy, path, global_batch_size=4, select=SELECT, shuffle=loader.Shuffle(seed=1)
    )
    for options in ({}, {"steps_per_epoch": 5}):
        model.fit(data, epochs=2, shuffle=False, verbose=0, **options)
        steps.append(int(model.optimizer.iterations.numpy()))
    padded = loader.load(path, batch_size=4, select=SELECT, remainder="pad")
    distributed = loader.distribute(strategy, path, global_batch_size=4, select=SELECT, remainder="pad")
    both = [model.evaluate(each, return_dict=True, verbose=0) for each in (padded, distributed)]
    return {"steps": steps, "evaluated": both}


def uneven(model, path, cases):
    """Return the warnings of ``load`` for batches that two replicas cannot share, and rows of ``predict``.

    Neither ``fit`` nor ``evaluate`` is tried: after their error TensorFlow may crash at any later time.
    """
    found = []
    for options in cases:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            data = loader.load(path, **options, select=SELECT)
            loader.load(path, **options, select=SELECT, worker=loader.Worker())
        texts = [str(warning.message) for warning in caught]
        rows = len(model.predict(data, verbose=0))
        found.append({"warnings": texts, "predicted": rows})
    return found


def loop(strategy, path, select=("number",), passes=2, **options):
    """Return the labels of each replica and step, in each of some passes over one distributed dataset."""
    steps = len(loader.batches(path, batch_size=4, remainder=options.get("remainder", "drop")))
    data = loader.distribute(strategy, path, "train", global_batch_size=4, select=select, **options)

    @tf.function
    def numbers_of(batch):
        return strategy.run(lambda number, *weights: (number, *weights), args=batch)

    def local(value):
        parts = strategy.experimental_local_results(value)
        return [part.to_list() if hasattr(part, "to_list") else part.numpy().tolist() for part in parts]

    return [
        [[local(value) for value in numbers_of(batch)] for batch in itertools.islice(data, steps)]
        for _ in range(passes)
    ]


def main(path, cases):
    warnings.simplefilter("error", UserWarning)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found = {"replicas": strategy.num_replicas_in_sync, "one": train(make_model(), path)}
    with strategy.scope():
        model = make_model()
        found["two"] = train(model, path)
        found["uneven"] = uneven(model, path, json.loads(cases))
        found["distributed"] = fit_distributed(model, strategy, path)
    found["padded"] = loop(strategy, path, remainder="pad")
    found["shuffled"] = loop(strategy, path, shuffle=loader.Shuffle(seed=2))
    found["lists"] = {
        remainder: loop(strategy, path, ("number", "list"), passes=1, remainder=remainder, shuffle=shuffle)
        for remainder, shuffle in (("drop", loader.Shuffle(seed=2)), ("pad", None))
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
