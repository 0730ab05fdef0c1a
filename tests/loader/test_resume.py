"""``Progress`` in checkpoints; ``Resume``: killed training resumes with the next batch; mistakes."""

import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.campaigns import SEED
from tests.errors import raises
from tests.loader.conftest import flip_bit
from tests.storage import conftest
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Position, Progress, Shuffle
from tfshards.schemas import Feature, InputError, OptionsError, Schema
from tfshards.schemas.storage import any_path

SIZES = [9, 0, 14, 7, 11]
COUNT = sum(SIZES)


def load(numbered, **options):
    options = {"shuffle": Shuffle(seed=3), "remainder": "keep", "epochs": 3, **options}
    return loader.load(numbered(SIZES), batch_size=8, **options)


@pytest.fixture(scope="module")
def where(numbered):
    """Return a position with the order of its run, after a round trip through JSON."""
    progress = Progress(Position(1, 2))
    load(numbered, start=progress)
    return Position.from_json(json.loads(json.dumps(progress.position.to_json())))


def test_a_checkpoint_holds_the_position_and_the_order(numbered, where, tmp_path):
    progress = Progress()
    load(numbered, start=progress)
    assert progress.steps_per_epoch == 6
    progress.advance(6 + 2)
    path = tf.train.Checkpoint(progress=progress).save(str(tmp_path / "run"))
    other = Progress()
    tf.train.Checkpoint(progress=other).restore(path).assert_existing_objects_matched()
    assert other.position.to_json() == progress.position.to_json() == where.to_json()
    with raises(OptionsError, "start= belongs to a run in which", "seed was 3", code="resume-differs"):
        load(numbered, start=other, shuffle=Shuffle(seed=9))


def test_advance_raises_if_it_would_miscount(numbered, tmp_path):
    progress = Progress()
    with raises(OptionsError, "no dataset starts"):
        progress.advance()
    load(numbered, start=progress)
    with raises(OptionsError, "advance() inside"):
        tf.function(progress.advance, autograph=False)()
    path = tf.train.Checkpoint(progress=progress).save(str(tmp_path / "run"))
    progress.advance(2)
    assert (progress.epoch, progress.step, progress.is_at_start) == (0, 2, False)
    tf.train.Checkpoint(progress=progress).restore(path)
    assert (progress.epoch, progress.step) == (0, 0)
    # the dataset is elsewhere
    with raises(OptionsError, "no dataset starts"):
        progress.advance()


def test_records_before_a_position_are_not_read(write_dataset, tmp_path):
    schema, example = Schema((Feature("x", "raw", "uint8", (1000,)),)), {"x": np.zeros(1000, np.uint8)}
    dataset = write_dataset(tmp_path, schema, {"train": [[example] * 20_000]})
    for shuffle in (None, Shuffle(seed=3)):
        read = {}
        for step in (0, 8_000):
            before = bytes_read()
            next(iter(loader.load(dataset, batch_size=2, shuffle=shuffle, start=Position(0, step))))
            read[step] = bytes_read() - before
        assert read[8_000] < read[0] + 2_000_000, "16 MB of records come before it"


def bytes_read():
    """Return what this process has read by system calls so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def test_a_load_that_fails_leaves_the_progress_as_it_was(numbered):
    progress = Progress()
    with raises(OptionsError, "does not divide"):
        loader.load(numbered(SIZES), batch_size=8, start=progress, shuffle=Shuffle(lanes=3))
    with raises(OptionsError, "no dataset starts"):
        _ = progress.steps_per_epoch
    loader.load(numbered(SIZES), batch_size=4, start=progress)
    assert progress.steps_per_epoch == COUNT // 4


# ``Resume``: killed training resumes with the next batch; damaged files, mistakes, other optimizers


server, proxy, bucket = conftest.server, conftest.proxy, conftest.bucket


PROGRAM = Path(__file__).with_name("resuming.py")


IMAGES = Schema((Feature("image", "image", "uint8", (None, None, 1)), Feature("number", "int", "int64")))


NUM_IMAGES = 45


# The numbers of kills by backend and way of training.
KILLS = {
    "tensorflow": {"keras": 1, "loop": 1},
    "jax": {"keras": 2},
    "torch": {"keras": 2},
}


CASES = [(backend, way) for backend, ways in KILLS.items() for way in ways]


@pytest.fixture(scope="module")
def train(programs, write_dataset, tmp_path_factory):
    """Return a function that returns the steps that each way saw, uninterrupted and in parts."""
    pixels = np.random.default_rng(0).integers(0, 256, (NUM_IMAGES, 9, 8, 1), dtype=np.uint8)
    examples = [{"image": tf.io.encode_png(image).numpy(), "number": i} for i, image in enumerate(pixels)]
    dataset = write_dataset(tmp_path_factory.mktemp("set"), IMAGES, {"train": [examples[:20], examples[20:]]})
    seed = random.Random(SEED).randrange(2**32)

    @cache
    def train(backend):
        command = [PROGRAM, dataset, tmp_path_factory.mktemp("runs"), seed, json.dumps(KILLS[backend])]
        environment = os.environ | {"KERAS_BACKEND": backend}
        if backend == "tensorflow":
            done = programs.run(command, env=environment)
        else:
            # the processes that have imported TensorFlow have chosen the backend of Keras
            command = [sys.executable, *map(str, command)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return train


@pytest.mark.processes
@pytest.mark.parametrize(("backend", "way"), mostly_nightly(CASES, [CASES[0], CASES[1]]))
def test_a_killed_run_resumes_bit_for_bit(train, backend, way):
    if find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    trained = train(backend)
    whole, parts = trained[way]["whole"], trained[way]["parts"]
    assert [step for step, _ in whole["steps"]] == list(range(3 * (NUM_IMAGES // 4)))
    *killed, last = parts
    assert {part["status"] for part in killed} == {-9}
    assert all(part["steps"][0][0] > 0 for part in parts[1:]), "later parts start from a checkpoint"
    for part in parts:
        first = part["steps"][0][0]
        assert part["steps"] == whole["steps"][first : first + len(part["steps"])]
    for part, following in itertools.pairwise(parts):
        assert following["steps"][0][0] <= part["steps"][-1][0] + 1, "no step is skipped"
    assert last["steps"][-1] == whole["steps"][-1]
    assert last["digest"] == whole["digest"], "weights and optimizer state are equal"


# An epoch has 6 steps.
TWO_SHARDS, BATCH_SIZE = [14, 11], 4


def model_of(units=1, built=True, optimizer="adam", rate=0.001, **options):
    layers = [tf.keras.Input([1])] if built else []
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(units), tf.keras.layers.Dropout(0.5)])
    model.compile(
        tf.keras.optimizers.get({"class_name": optimizer, "config": {"learning_rate": rate}}),
        "mse",
        **options,
    )
    return model


def fit(
    numbered, folder, model=None, epochs=1, load_epochs=None, resume=None, train=None, before=(), **options
):
    """Train as in the docstring of ``Resume``, with changed ``options``."""
    resume = resume or loader.Resume(folder)
    train = train or loader.load(
        numbered(TWO_SHARDS),
        batch_size=BATCH_SIZE,
        epochs=load_epochs,
        start=resume.progress,
        map_fn=lambda example, _: (tf.cast(example["number"], tf.float32)[tf.newaxis], 0.0),
    )
    options = {
        "initial_epoch": resume.progress.epoch,
        "steps_per_epoch": resume.progress.steps_per_epoch,
        # Keras warns that it ignores it
        "shuffle": False,
        **options,
    }
    (model or model_of()).fit(train, epochs=epochs, callbacks=[*before, resume], verbose=0, **options)
    return resume, train


def trained(numbered, folder, epochs):
    """Train to the end of an epoch, from the newest file; return all weights."""
    tf.keras.utils.set_random_seed(1)
    model = model_of()
    resume, _ = fit(numbered, folder, model, epochs=epochs)
    assert (resume.progress.epoch, resume.progress.step) == (epochs, 0)
    return [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]


@pytest.fixture(scope="module")
def runs(numbered, tmp_path_factory):
    """Return the folder and the weights of undisturbed runs of 1 to 4 epochs."""
    folders = {epochs: tmp_path_factory.mktemp("runs") / "of" / str(epochs) for epochs in range(1, 5)}
    return {epochs: (folder, trained(numbered, folder, epochs)) for epochs, folder in folders.items()}


def saved_in(folder):
    return sorted(folder.iterdir(), key=lambda path: int(path.name.partition("-")[0]))


DAMAGES = {
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a bit": lambda path: flip_bit(path, path.stat().st_size // 3),
}


@pytest.mark.processes
@pytest.mark.parametrize("damage", mostly_nightly(DAMAGES, ["a bit", "cut"]))
def test_the_newest_sound_file_is_taken_and_damaged_ones_are_named(numbered, runs, tmp_path, damage):
    folder = shutil.copytree(runs[3][0], tmp_path / "saved")
    older, newest = saved_in(folder)
    assert [older.name[:2], newest.name[:2]] == ["2-", "3-"]
    assert newest.name.endswith(".weights.h5")
    DAMAGES[damage](newest)
    with pytest.warns(UserWarning, match=re.escape(f"{newest} is damaged (")) as caught:
        weights = trained(numbered, folder, 4)
    (warning,) = (each for each in caught if "resumes from" in str(each.message))
    assert f"; training resumes from {older}, which is sound" in str(warning.message)
    assert warning.filename == __file__
    for one, other in zip(weights, runs[4][1], strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(saved_in(folder)) == 2
    for path in saved_in(folder):
        DAMAGES[damage](path)
    with raises(InputError, "no file that can be read", code="checkpoints-unreadable"):
        loader.Resume(folder)


@pytest.mark.processes
def test_what_was_not_finished_is_passed_over(runs, tmp_path):
    folder = shutil.copytree(runs[3][0], tmp_path / "saved")
    shutil.copy(saved_in(folder)[1], folder / "new.weights.h5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loader.Resume(folder).progress.epoch == 3
        assert loader.Resume(tmp_path / "missing").progress.epoch == 0


@pytest.mark.processes
def test_weights_can_be_loaded_by_keras(runs, tmp_path):
    folder, weights = runs[3]
    model = model_of()
    model.load_weights(saved_in(folder)[1])
    np.testing.assert_array_equal(model.get_weights()[0], weights[0])


@pytest.mark.processes
def test_each_file_is_flushed_to_disk_before_it_has_its_name(numbered, tmp_path, monkeypatch):
    flushed, fsync = [], os.fsync

    def noted(descriptor):
        flushed.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    (tmp_path / "run").mkdir()
    trained(numbered, tmp_path / "run", 1)
    # the entries of the folder last
    assert flushed == ["new.weights.h5", "run"]


@pytest.mark.processes
def test_files_may_be_in_a_bucket(numbered, runs, bucket):
    for epochs in (2, 4):
        weights = trained(numbered, f"{bucket.url}/run", epochs)
    for one, other in zip(weights, runs[4][1], strict=True):
        np.testing.assert_array_equal(one, other)
    assert len([*any_path(f"{bucket.url}/run").iterdir()]) == 2


MISTAKES = [
    ({"steps_per_epoch": 3}, ("steps per epoch", "3 steps", "has 6")),
    (
        {"model": lambda: model_of(steps_per_execution=4)},
        ("must divide", "steps_per_execution=4", "6 steps"),
    ),
    ({"initial_epoch": 1, "epochs": 2}, ("fit starts at", "epoch 1", "epoch 0")),
    ({"model": lambda: model_of(built=False)}, "the model has"),
]


@pytest.mark.processes
@pytest.mark.parametrize(("options", "message"), MISTAKES)
def test_fit_raises_if_it_does_not_match_the_position(numbered, tmp_path, options, message):
    options = {**options, "model": options["model"]()} if "model" in options else options
    with raises(OptionsError, message):
        fit(numbered, tmp_path, **options)
    fit(numbered, tmp_path)


@pytest.mark.processes
def test_a_dataset_can_be_used_for_only_one_fit(numbered, tmp_path):
    model = model_of()
    resume, train = fit(numbered, tmp_path, model)
    with raises(OptionsError, "steps were taken"):
        fit(numbered, tmp_path, model, epochs=2, resume=resume, train=train)
    assert (resume.progress.epoch, resume.progress.step) == (1, 0)
    with raises(OptionsError, "every=0 must be"):
        loader.Resume(tmp_path, every=0)


@pytest.mark.processes
def test_a_file_of_a_different_model_is_rejected(numbered, tmp_path):
    fit(numbered, tmp_path)
    with raises(OptionsError, "does not match this"):
        fit(numbered, tmp_path, model_of(units=3), epochs=2)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("optimizer", "named"), [("adam", "learning_rate was 0.001"), ("sgd", "optimizer was 'Adam'")]
)
def test_another_optimizer_is_named_and_kept(numbered, tmp_path, optimizer, named):
    """As when a run is killed after the head was trained, and before the first save of fine-tuning."""
    expected, model = model_of(), model_of(optimizer=optimizer, rate=0.5)
    fit(numbered, tmp_path, expected)
    # what would train nothing more restores the weights only
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fit(numbered, tmp_path, model)
    assert np.array_equal(model.get_weights()[0], expected.get_weights()[0])
    change = tf.keras.callbacks.LearningRateScheduler(lambda _: 0.25)
    with pytest.warns(UserWarning, match=named):
        fit(numbered, tmp_path, model, epochs=2, before=[change])
    assert int(model.optimizer.iterations.numpy()) == 6
    # then it is the one of the run, also where a callback has changed its rate
    again = model_of(optimizer=optimizer, rate=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fit(numbered, tmp_path, again, epochs=3)
    found = again.optimizer.iterations, again.optimizer.learning_rate
    assert [float(each.numpy()) for each in found] == [12, 0.25]
