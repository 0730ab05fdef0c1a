"""``InputWait`` with inputs and steps of known duration."""

import time

import keras
import pytest
import tensorflow as tf

from tests.errors import raises
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.schemas import OptionsError

pytestmark = pytest.mark.nightly

STEPS, SLOW, FAST = 8, 36, 18


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


def fit(input_ms, step_ms, keras=keras, steps_per_execution=1, **options):
    class Works(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(step_ms * steps_per_execution / 1000)

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    wait, given = loader.InputWait(), dense(input_ms)
    watched = wait.watch(given)
    assert (watched.element_spec, len(watched)) == (given.element_spec, STEPS)
    # InputWait is last in the list, so that the other callback's work is included in the measurement.
    history = model.fit(watched, callbacks=[Works(), wait], epochs=2, verbose=0, **options).history
    assert len(history["input_wait"]) == 2
    assert min(history["input_wait"]) <= wait.share <= max(history["input_wait"])
    return wait


def loop(input_ms, step_ms):
    wait = loader.InputWait()
    for _ in range(2):
        for batch in wait.batches(slowly(input_ms)):
            batch[0]["tags"].to_list()
            time.sleep(step_ms / 1000)
    return wait


# Wide limits, because other processes slow down input and steps. The first step does not count, of two epochs
# of 8 steps, or of 4 if they share one iterator.
CASES = {
    "fit, starved": (lambda: fit(SLOW, 0), 0.5, 1.0, 15),
    "fit, fed": (lambda: fit(0, SLOW), 0.0, 0.6, 15),
    "fit, two steps at once": (lambda: fit(SLOW, FAST, steps_per_execution=2), 0.05, 0.9, 14),
    "fit, an iterator over epochs": (lambda: fit(SLOW, FAST, steps_per_epoch=STEPS // 2), 0.05, 0.9, 7),
    "tf_keras": (lambda: fit(SLOW, FAST, pytest.importorskip("tf_keras")), 0.05, 0.9, 15),
    "loop": (lambda: loop(SLOW, FAST), 0.05, 0.9, 15),
}


@pytest.mark.parametrize("case", mostly_nightly(CASES, ["fit, starved", "fit, fed", "loop"]))
def test_the_share_is_the_time_by_which_input_is_slower_than_the_step(case):
    measure, low, high, batches = CASES[case]
    wait = measure()
    assert low <= wait.share <= high
    assert wait.num_batches == batches
    if high == 1:
        assert 'cache="disk:PATH"' in str(wait)


def test_a_dataset_that_is_not_watched_is_rejected():
    assert "nothing was measured; train for two steps" in str(loader.InputWait())
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with raises(OptionsError, "wait-no-batches"):
        model.fit(dense(0), callbacks=[loader.InputWait()], verbose=0)
    with raises(OptionsError, "watch-type", name="list"):
        loader.InputWait().watch([1, 2])
