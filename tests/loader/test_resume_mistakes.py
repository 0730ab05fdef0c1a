"""What does not fit together when training goes on is refused before the first step, with what to do."""

import pytest
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import InputError, OptionsError

# an epoch of 6 steps
SIZES, BATCH_SIZE, STEPS = [14, 11], 4, 6


def model_of(units=1, built=True, optimizer="sgd", **options):
    layers = [tf.keras.Input([1])] if built else []
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(units)])
    model.compile(optimizer, "mse", **options)
    return model


def fit(numbered, folder, model=None, epochs=1, load_epochs=None, resume=None, train=None, **options):
    """Train as the docstring of ``Resume`` has it, but for ``options``."""
    resume = resume or loader.Resume(folder)
    train = train or loader.load(
        numbered(SIZES),
        batch_size=BATCH_SIZE,
        epochs=load_epochs,
        start=resume.progress,
        map_fn=lambda example, _: (tf.cast(example["number"], tf.float32)[tf.newaxis], 0.0),
    )
    options = {
        "initial_epoch": resume.progress.epoch,
        "steps_per_epoch": resume.progress.steps_per_epoch,
        **options,
    }
    (model or model_of()).fit(train, epochs=epochs, callbacks=[resume], verbose=0, **options)
    return resume, train


CASES = {
    "steps that are no epoch": (
        {"steps_per_epoch": 3},
        r"fit takes 3 steps an epoch, but the epochs of the dataset have 6; use fit\(steps_per_epoch=",
    ),
    "more epochs than are loaded": (
        {"load_epochs": 2, "epochs": 5},
        r"fit\(epochs=5\) goes on behind the end of load\(epochs=2\); use load\(epochs=None\)",
    ),
    "steps that are run together and do not divide an epoch": (
        {"model": lambda: model_of(steps_per_execution=4)},
        "steps_per_execution=4 does not divide the 6 steps of an epoch",
    ),
    "another epoch than the position's": (
        {"initial_epoch": 1, "epochs": 2},
        r"fit begins with epoch 1, but the run is in epoch 0; use fit\(initial_epoch=resume.progress.epoch\)",
    ),
    "a model without weights": (
        {"model": lambda: model_of(built=False)},
        r"no weights yet that could be restored; give it an Input, or call model.build\(input_shape\)",
    ),
}


@pytest.mark.parametrize(("options", "message"), CASES.values(), ids=CASES.keys())
def test_a_fit_that_does_not_fit_the_position_is_refused(numbered, tmp_path, options, message):
    options = {**options, "model": options["model"]()} if "model" in options else options
    with pytest.raises(OptionsError, match=message):
        fit(numbered, tmp_path, **options)
    fit(numbered, tmp_path)


def test_a_dataset_is_for_one_fit(numbered, tmp_path):
    model = model_of()
    resume, train = fit(numbered, tmp_path, model)
    with pytest.raises(OptionsError, match=r"steps were taken since load\(start=resume.progress\)"):
        fit(numbered, tmp_path, model, epochs=2, resume=resume, train=train)
    assert (resume.progress.epoch, resume.progress.step) == (1, 0)


@pytest.mark.parametrize("other", [{"units": 3}, {"optimizer": "adam"}])
def test_a_checkpoint_of_another_model_is_refused(numbered, tmp_path, other):
    fit(numbered, tmp_path)
    with pytest.raises(OptionsError, match="is not a checkpoint of this model and optimizer; make them as"):
        fit(numbered, tmp_path, model_of(**other), epochs=2)


def test_a_checkpoint_that_was_taken_away_is_missed(numbered, tmp_path):
    fit(numbered, tmp_path)
    for path in tmp_path.glob("ckpt-*"):
        path.unlink()
    with pytest.raises(InputError, match="names a checkpoint that is not there; put it back"):
        loader.Resume(tmp_path)


def test_a_legacy_optimizer_is_refused(numbered, tmp_path):
    tf_keras = pytest.importorskip("tf_keras")
    model = tf_keras.Sequential([tf_keras.Input([1]), tf_keras.layers.Dense(1)])
    model.compile(tf_keras.optimizers.legacy.SGD(), "mse")
    with pytest.raises(OptionsError, match=r"SGD has no build\(\), so that its state cannot be restored"):
        fit(numbered, tmp_path, model)
