"""``loader.keras``: the order of ``load`` in ``fit`` of Keras, on each backend."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.errors import raises
from tfshards import loader
from tfshards.loader import Position, Shuffle
from tfshards.schemas import OptionsError

from .framework_data import run_together, write_data

pytestmark = pytest.mark.processes

keras = pytest.importorskip("keras", "3.10")

OPTIONS = {"batch_size": 8, "shuffle": Shuffle(seed=4), "select": ("pixels", "label")}


@pytest.fixture(scope="module")
def data(write_dataset, tmp_path_factory):
    return write_data(write_dataset, tmp_path_factory.mktemp("keras") / "data")


def model():
    keras.utils.set_random_seed(1)
    made = keras.Sequential(
        [
            keras.Input((4, 3)),
            keras.layers.Rescaling(1 / 63),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(0.5, momentum=0.9), loss)
    return made


def trained(batches):
    """Return the weights of a model that was trained on some batches, in their order."""
    made = model()
    for batch in batches:
        made.train_on_batch(*batch)
    return made.get_weights()


def same(one, other):
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(one, other, strict=True))


FITS = {
    "one epoch after another": ({}, {"epochs": 3}),
    "a run without an end": ({"epochs": None}, {"epochs": 3, "steps_per_epoch": 7}),
    "from a position": ({"epochs": 3, "start": Position(1, 2)}, {}),
}


@pytest.mark.parametrize(("options", "fit"), FITS.values(), ids=FITS)
def test_fit_takes_the_batches_in_the_order_of_load(data, options, fit):
    made, batches = model(), loader.keras.Batches(data, **OPTIONS, **options)
    made.fit(batches, shuffle=False, verbose=0, **fit)
    whole = [*loader.batches(data, **OPTIONS | {"epochs": 3})]
    first = 9 if "start" in options else 0
    count = fit.get("epochs", 3) * fit.get("steps_per_epoch", 7) - first
    expected = whole[first:][:count]
    assert same(made.get_weights(), trained(expected))
    assert not same(made.get_weights(), trained(expected[::-1]))
    assert batches.steps_per_epoch == 7


def test_a_batch_is_had_by_its_index(data):
    batches = loader.keras.Batches(data, **OPTIONS)
    expected = [label.tolist() for _, label in loader.batches(data, **OPTIONS)]
    assert [batches[index][1].tolist() for index in (3, 4, 0, 6)] == [expected[i] for i in (3, 4, 0, 6)]
    assert [label.tolist() for _, label in batches] == expected
    assert (len(batches), batches.num_batches) == (7, 7)
    for index in (-1, 7):
        with pytest.raises(IndexError, match=f"batch {index} of 7"):
            batches[index]
    endless = loader.keras.Batches(data, **OPTIONS, epochs=None)
    assert endless.num_batches is None
    assert endless[7][1].tolist() != expected[0]


def test_what_keras_cannot_use_is_refused(data):
    # this backend wraps errors of the batches
    with pytest.raises(Exception, match=r"use fit\(shuffle=False\)"):
        model().fit(loader.keras.Batches(data, **OPTIONS), verbose=0)
    batches = loader.keras.Batches(data, **OPTIONS)
    batches.on_epoch_begin()
    with raises(OptionsError, "keras-shuffle", index=3, wanted=0):
        batches[3]
    with raises(OptionsError, "batch-objects", name="key", found="bytes"):
        loader.keras.Batches(data, batch_size=8)[0]
    with raises(OptionsError, "batch-objects", name=1, found="ndarray"):
        loader.keras.Batches(data, batch_size=8, select=("label", "ids"))[0]
    start = loader.Progress(Position(0, 2))
    with raises(OptionsError, "keras-step", step=2):
        loader.keras.Batches(data, **OPTIONS, epochs=None, start=start)


def test_resume_saves_after_each_epoch(data, tmp_path):
    whole = [*loader.batches(data, **OPTIONS | {"epochs": 3})]
    for epochs in (1, 3):
        resume = loader.Resume(tmp_path)
        options = {**OPTIONS, "epochs": None, "start": resume.progress}
        made, steps = model(), loader.keras.Batches(data, **options).steps_per_epoch
        batches = loader.keras.Batches(data, **options)
        made.fit(
            batches,
            epochs=epochs,
            initial_epoch=resume.progress.epoch,
            steps_per_epoch=steps,
            shuffle=False,
            verbose=0,
            callbacks=[resume],
        )
    assert same(made.get_weights(), trained(whole))


FIT = """
import json, sys
from importlib.machinery import PathFinder
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == "tensorflow" else PathFinder.find_spec(name, path, target)
sys.meta_path = [Without if each is PathFinder else each for each in sys.meta_path]
from tests.loader.test_frameworks_keras import OPTIONS, keras, loader, model, same, trained
path, _ = sys.argv[1:]
made, batches = model(), loader.keras.Batches(path, **OPTIONS)
made.fit(batches, epochs=3, shuffle=False, verbose=0)
expected = trained(loader.batches(path, **{**OPTIONS, "epochs": 3}))
print(json.dumps([keras.backend.backend(), same(made.get_weights(), expected)]))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_fit_on_the_backends_without_tensorflow(data, backend):
    pytest.importorskip(backend)
    (printed,) = run_together(FIT, data, KERAS_BACKEND=backend)
    assert json.loads(printed) == [backend, True]
