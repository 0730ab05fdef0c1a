"""Common mistakes, such as values of a wrong type, raise an error that names the allowed values."""

import fcntl
import os
import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from tests.errors import raises
from tfshards import loader, prep
from tfshards.prep import Arrays, ColumnRoles, ImageFolder, Options, Table, append, build, info, plan
from tfshards.schemas import InputError, OptionsError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    out = tmp_path_factory.mktemp("mistakes") / "numbers"
    build(Arrays({"x": np.arange(8)}), out, shards=2, log=lambda _: None)
    return out


def load(data, **options):
    return loader.load(data, **{"batch_size": 2, **options})


ARRAYS = Arrays({"x": np.arange(8)})
# calls with the dataset, and what their errors say
MISTAKES = [
    (lambda data: load(data, worker=(0, 2)), "worker=(0, 2) must be loader.Worker(...)"),
    (lambda data: load(data, shuffle=True), "shuffle=True must be loader.Shuffle(...)"),
    (lambda data: load(data, shuffle=loader.Shuffle), "must be loader.Shuffle(...)"),
    (lambda data: load(data, image=(64, 64)), "image=(64, 64) must be loader.Image(...)"),
    (lambda data: load(data, start=3), "start=3 must be loader.Position(...)"),
    (lambda data: load(data, epochs=1.5), "epochs=1.5 must be an integer"),
    (lambda data: load(data, select="x, y"), "select='x, y' must be a tuple of names, such as"),
    (lambda data: load(data, select={"x"}), "select={'x'} must be a tuple of names"),
    (lambda data: load(data, split=["train"]), "split=['train'] must be one name; the splits are 'train'"),
    (lambda data: load(data, batch_size="8"), "batch_size='8' must be an integer"),
    (lambda data: load(data, batch_size=True), "batch_size=True must be an integer"),
    (lambda data: loader.distribute("mirrored", data, global_batch_size=2), "'mirrored' must be"),
    (lambda _: loader.Image(size=64), "Image.size=64 must be (height, width)"),
    (lambda _: loader.Image(size=(64.5, 64)), "Image.size=(64.5, 64) must be (height, width)"),
    (lambda _: loader.Shuffle(seed="a"), "Shuffle.seed='a' must be an integer"),
    (lambda _: loader.Worker(0, 2.0), "Worker.count=2.0 must be an integer"),
    (lambda _: loader.Position(0, None), "Position.step=None must be an integer"),
    (lambda _: ColumnRoles(drop="maybe"), "drop='maybe' must be a list of strings"),
    (lambda _: ColumnRoles(masks=[1]), "masks=[1] must be a list of strings"),
    (lambda _: prep.FeatureRoles(drop="maybe"), "drop='maybe' must be a list of strings"),
    (lambda _: Arrays({"x": np.arange(3)}, lists="x"), "lists='x' must be a list of strings"),
    (lambda _: ImageFolder("flat", "short=20"), "images='short=20' must be ImageOptions(...)"),
    (lambda _: Table("t.csv", "short=20"), "images='short=20' must be ImageOptions(...)"),
    (lambda _: Table("t.csv", columns=["a"]), "columns=['a'] must be ColumnRoles(...)"),
    (lambda _: Options(splits=["train"]), "splits=['train'] must be a ratio for each split, such as"),
    (lambda _: ImageFolder(3), "root=3 must be a path"),
    (lambda _: Table(3), "path= is of type int, not a path"),
    (lambda _: build(ARRAYS, 5), "dataset=5 must be a path"),
    (lambda _: append("flat", 5), "dataset=5 must be a path"),
    (lambda _: info(5), "path=5 must be a path"),
    (lambda _: load(5), "path=5 must be a path"),
    (lambda _: loader.Resume(5), "folder=5 must be a path"),
    (lambda _: build(ARRAYS, "out", beam_args="--runner"), "beam_args='--runner' must be a list of strings"),
    (lambda _: build("photos", "out"), "source='photos' must be a source, such as ImageFolder('photos')"),
    (lambda _: plan("photos", "out"), "source='photos' must be a source, such as ImageFolder('photos')"),
]
WRONG_OPTIONS = [
    ({"options": {}}, "options={} must be an Options(...)"),
    ({"shards": [2]}, "shards=[2] must be an integer, or a dict such as"),
    ({"shards": {"val": "2"}}, "shards={\"val\": '2'} must be an integer, or a dict such as"),
    ({"seed": 1.5}, "seed=1.5 must be an integer"),
]
MISTAKES += [
    (partial(lambda call, options, _: call(ARRAYS, "out", **options), call, options), message)
    for call in (build, plan)
    for options, message in WRONG_OPTIONS
]


@pytest.mark.parametrize(("make", "message"), MISTAKES)
def test_a_wrong_type_is_named_with_its_argument(make, message, dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionsError, match=re.escape(message)):
        make(dataset)
    assert list(tmp_path.iterdir()) == []


def test_numpy_integers_are_integers(dataset):
    assert len(loader.load(dataset, batch_size=np.int64(2), epochs=np.int32(2))) == 8


def test_a_second_build_into_one_output_is_refused_while_the_first_one_runs(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    arrays = Arrays({"x": np.arange(8)})
    # The lock belongs to another process, which is killed; this releases the lock.
    code = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), 2); print(1, flush=True); input()"
    command = [sys.executable, "-c", code, str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with raises(InputError, "build-running"):
            build(arrays, out, shards=2)
        other.kill()
    assert build(arrays, out, shards=2).num_examples == 8
    descriptor = os.open(out, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


def test_the_error_for_ratios_that_nearly_sum_to_one_has_a_remedy():
    with raises(OptionsError, "ratios-sum"):
        Options(splits={"train": 1 / 3, "val": 2 / 3})
