"""A program: evaluates one model in every recommended way on some replicas, and prints the results as JSON.

Run by test_evaluation.py: a process can have only one ``MirroredStrategy`` of a device.
"""

import itertools
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import keras
import tensorflow as tf

from tfshards import loader

SELECT = ("x", "label")
BATCH_SIZE = 64


def make_model(kernel):
    model = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(3, kernel_initializer=keras.initializers.Constant(kernel), use_bias=False),
        ]
    )
    model.compile(
        keras.optimizers.SGD(0.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def with_keras(path, kernel):
    """Return the results of ``evaluate``, ``validation_data`` and ``predict``."""
    data = loader.load(path, batch_size=BATCH_SIZE, select=SELECT, remainder="keep")
    model = make_model(kernel)
    evaluated = model.evaluate(data, return_dict=True, verbose=0)
    predicted = model.predict(data, verbose=0)
    history = model.fit(data.take(1), validation_data=data, shuffle=False, verbose=0).history
    return {
        "evaluated": evaluated,
        "validated": {name: history[f"val_{name}"][0] for name in ("loss", "accuracy")},
        "predicted": predicted.tolist(),
    }


def with_a_loop(strategy, path, kernel):
    """Return the loss and the accuracy that a custom loop computes from padded batches and their weights."""
    steps = loader.steps_per_epoch(path, "test", BATCH_SIZE, "pad")
    data = loader.distribute(strategy, path, global_batch_size=BATCH_SIZE, select=SELECT, remainder="pad")
    with strategy.scope():
        model = make_model(kernel)
        loss = keras.metrics.SparseCategoricalCrossentropy(from_logits=True)
        accuracy = keras.metrics.SparseCategoricalAccuracy()

    @tf.function
    def step(x, label, weight):
        logits = model(x, training=False)
        loss.update_state(label, logits, weight)
        accuracy.update_state(label, logits, weight)

    for batch in itertools.islice(data, steps):
        strategy.run(step, args=batch)
    return {"loss": float(loss.result()), "accuracy": float(accuracy.result())}


def main(path, kernel, num_replicas):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * num_replicas)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(num_replicas)])
    with strategy.scope():
        found = with_keras(path, kernel)
    json.dump(found | {"custom loop": with_a_loop(strategy, path, kernel)}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
