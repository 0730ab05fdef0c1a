"""``fit`` raises before the first step if it does not match the position that it resumes from."""

import pytest
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import InputError, OptionsError

# An epoch has 6 steps.
SIZES, BATCH_SIZE, STEPS = [14, 11], 4, 6


def model_of(units=1, built=True, optimizer="sgd", **options):
    layers = [tf.keras.Input([1])] if built else []
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(units)])
    model.compile(optimizer, "mse", **options)
    return model


def fit(numbered, folder, model=None, epochs=1, load_epochs=None, resume=None, train=None, **options):
    """Train as in the docstring of ``Resume``, with changed ``options``."""
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
    "steps_per_epoch is not an epoch": (
        {"steps_per_epoch": 3},
        r"fit takes 3 steps per epoch, but an epoch of the dataset has 6; use fit\(steps_per_epoch=",
    ),
    "more epochs than loaded": (
        {"load_epochs": 2, "epochs": 5},
        r"fit\(epochs=5\) exceeds load\(epochs=2\); use load\(epochs=None\)",
    ),
    "steps_per_execution does not divide an epoch": (
        {"model": lambda: model_of(steps_per_execution=4)},
        "steps_per_execution=4 must divide both the 6 steps of an epoch",
    ),
    "initial_epoch differs from the position": (
        {"initial_epoch": 1, "epochs": 2},
        r"fit starts at epoch 1, but the run is in epoch 0; use fit\(initial_epoch=resume.progress.epoch\)",
    ),
    "a model without weights": (
        {"model": lambda: model_of(built=False)},
        r"no weights yet; start it with an Input layer, or call model.build\(input_shape\) before fit",
    ),
}


@pytest.mark.parametrize(("options", "message"), CASES.values(), ids=CASES.keys())
def test_fit_raises_if_it_does_not_match_the_position(numbered, tmp_path, options, message):
    options = {**options, "model": options["model"]()} if "model" in options else options
    with pytest.raises(OptionsError, match=message):
        fit(numbered, tmp_path, **options)
    fit(numbered, tmp_path)


def test_a_dataset_can_be_used_for_only_one_fit(numbered, tmp_path):
    model = model_of()
    resume, train = fit(numbered, tmp_path, model)
    with pytest.raises(OptionsError, match=r"steps were taken since load\(start=resume.progress\)"):
        fit(numbered, tmp_path, model, epochs=2, resume=resume, train=train)
    assert (resume.progress.epoch, resume.progress.step) == (1, 0)


@pytest.mark.parametrize("other", [{"units": 3}, {"optimizer": "adam"}])
def test_a_checkpoint_of_a_different_model_is_rejected(numbered, tmp_path, other):
    fit(numbered, tmp_path)
    with pytest.raises(OptionsError, match="does not match this model and optimizer; create them as"):
        fit(numbered, tmp_path, model_of(**other), epochs=2)


def test_a_missing_checkpoint_is_an_error(numbered, tmp_path):
    fit(numbered, tmp_path)
    for path in tmp_path.glob("ckpt-*"):
        path.unlink()
    with pytest.raises(InputError, match="names a checkpoint that is missing; restore its files"):
        loader.Resume(tmp_path)


def test_a_legacy_optimizer_is_rejected(numbered, tmp_path):
    tf_keras = pytest.importorskip("tf_keras")
    model = tf_keras.Sequential([tf_keras.Input([1]), tf_keras.layers.Dense(1)])
    model.compile(tf_keras.optimizers.legacy.SGD(), "mse")
    with pytest.raises(OptionsError, match=r"SGD has no build\(\), so its state cannot be restored"):
        fit(numbered, tmp_path, model)
