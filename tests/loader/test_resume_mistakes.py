"""``fit`` raises before the first step if it does not match the position that it resumes from."""

import sys
from types import SimpleNamespace

import pytest
import tensorflow as tf

from tests.errors import fault, raises
from tfshards import loader
from tfshards.schemas import OptionsError

# An epoch has 6 steps.
SIZES, BATCH_SIZE = [14, 11], 4


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


CASES = [
    ({"steps_per_epoch": 3}, fault("resume-steps-per-epoch", params=3, steps=6)),
    ({"load_epochs": 2, "epochs": 5}, fault("resume-epochs", params=5, epochs=2)),
    (
        {"model": lambda: model_of(steps_per_execution=4)},
        fault("resume-steps-per-execution", at_once=4, steps=6),
    ),
    ({"initial_epoch": 1, "epochs": 2}, fault("resume-initial-epoch", epoch=1, epoch2=0)),
    ({"model": lambda: model_of(built=False)}, "resume-no-weights"),
]


@pytest.mark.parametrize(("options", "message"), CASES)
def test_fit_raises_if_it_does_not_match_the_position(numbered, tmp_path, options, message):
    options = {**options, "model": options["model"]()} if "model" in options else options
    with raises(OptionsError, message):
        fit(numbered, tmp_path, **options)
    fit(numbered, tmp_path)


def test_a_dataset_can_be_used_for_only_one_fit(numbered, tmp_path):
    model = model_of()
    resume, train = fit(numbered, tmp_path, model)
    with raises(OptionsError, "resume-steps-taken"):
        fit(numbered, tmp_path, model, epochs=2, resume=resume, train=train)
    assert (resume.progress.epoch, resume.progress.step) == (1, 0)


@pytest.mark.parametrize("other", [{"units": 3}, {"optimizer": "adam"}])
def test_a_checkpoint_of_a_different_model_is_rejected(numbered, tmp_path, other):
    fit(numbered, tmp_path)
    with pytest.raises(OptionsError, match="does not match this model and optimizer; create them as"):
        fit(numbered, tmp_path, model_of(**other), epochs=2)


def test_a_legacy_optimizer_is_rejected(numbered, tmp_path):
    tf_keras = pytest.importorskip("tf_keras")
    model = tf_keras.Sequential([tf_keras.Input([1]), tf_keras.layers.Dense(1)])
    model.compile(tf_keras.optimizers.legacy.SGD(), "mse")
    with raises(OptionsError, "resume-optimizer"):
        fit(numbered, tmp_path, model)


def test_a_backend_with_random_numbers_outside_of_the_model_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "numpy")
    with raises(OptionsError, "resume-backend", backend="numpy"):
        loader.Resume(tmp_path)


def test_one_of_several_processes_of_jax_is_rejected(numbered, tmp_path, monkeypatch):
    model = model_of()
    model.jax_state_sync = lambda: None
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(process_count=lambda: 2))
    with raises(OptionsError, "resume-hosts"):
        fit(numbered, tmp_path, model)
