"""Program of test_wait.py, run in a separate process because it configures devices before TensorFlow starts.

Measures ``InputWait`` with inputs and steps of given durations, and prints the shares as JSON.

Usage: waiting.py [CASE...], the cases to leave out
"""

import contextlib
import json
import sys
import time

import keras
import tensorflow as tf
import tf_keras

from tfshards import loader
from tfshards.schemas import OptionsError

STEPS = 8
SLOW, FAST = 36, 18


def slowly(milliseconds):
    batch = {"x": tf.zeros([8, 4]), "tags": tf.ragged.constant([[1, 2], []] * 4, dtype=tf.int64)}
    batches = tf.data.Dataset.from_tensors((batch, tf.zeros([8, 1]))).repeat(STEPS)
    spec = batches.element_spec
    flat = tf.nest.flatten(spec, expand_composites=True)
    variant = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(batches),
        sleep_microseconds=tf.constant(milliseconds * 1000, tf.int64),
        output_types=[each.dtype for each in flat],
        output_shapes=[each.shape for each in flat],
    )
    slow = tf.data.experimental.from_variant(variant, spec)
    return slow.apply(tf.data.experimental.assert_cardinality(STEPS)).prefetch(2)


def dense(milliseconds):
    return slowly(milliseconds).map(lambda batch, y: (batch["x"], y)).prefetch(2)


def fit(keras, input_ms, step_ms, scope=None, steps_per_execution=1, **options):
    class Works(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(step_ms * steps_per_execution / 1000)

    with scope or contextlib.nullcontext():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    wait = loader.InputWait()
    given = dense(input_ms)
    watched = wait.watch(given)
    assert (watched.element_spec, len(watched)) == (given.element_spec, STEPS)
    # InputWait is last in the list, so that the other callback's work is included in the measurement.
    history = model.fit(watched, callbacks=[Works(), wait], epochs=2, verbose=0, **options)
    return found_by(wait) | {"epochs": history.history["input_wait"]}


def found_by(wait):
    return {"share": wait.share, "batches": wait.num_batches, "text": str(wait)}


def loop(data, step_ms, element=lambda batch: None):
    wait = loader.InputWait()
    for _ in range(2):
        for batch in wait.batches(data):
            element(batch)
            time.sleep(step_ms / 1000)
    return found_by(wait)


def refused():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    errors = []
    for attempt in (
        lambda: model.fit(dense(0), callbacks=[loader.InputWait()], verbose=0),
        lambda: loader.InputWait().watch([1, 2]),
    ):
        try:
            attempt()
        except OptionsError as error:
            errors.append(str(error))
    return errors


if __name__ == "__main__":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    mirrored = strategy.scope
    cases = {
        "fit, starved": lambda: fit(keras, SLOW, 0),
        "fit, half": lambda: fit(keras, SLOW, FAST),
        "fit, fed": lambda: fit(keras, 0, SLOW),
        "fit, half, two steps at once": lambda: fit(keras, SLOW, FAST, steps_per_execution=2),
        "fit, half, an iterator over epochs": lambda: fit(keras, SLOW, FAST, steps_per_epoch=STEPS // 2),
        "mirrored fit, half": lambda: fit(keras, SLOW, FAST, mirrored()),
        "mirrored fit, fed": lambda: fit(keras, 0, SLOW, mirrored()),
        "tf_keras fit, half": lambda: fit(tf_keras, SLOW, FAST),
        "loop, half": lambda: loop(slowly(SLOW), FAST, lambda batch: batch[0]["tags"].to_list()),
        "mirrored loop, half": lambda: loop(strategy.experimental_distribute_dataset(dense(SLOW)), FAST),
        "refused": refused,
    }
    left_out = set(sys.argv[1:])
    assert left_out <= set(cases)
    print(json.dumps({name: measure() for name, measure in cases.items() if name not in left_out}))
