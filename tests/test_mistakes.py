"""Common mistakes, such as values of a wrong type, raise an error that names the allowed values."""

import fcntl
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.errors import raises
from tfshards import loader
from tfshards.prep import (
    Arrays,
    ColumnRoles,
    FeatureRoles,
    ImageFolder,
    Options,
    Table,
    append,
    build,
    info,
    plan,
)
from tfshards.schemas import InputError, OptionsError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    out = tmp_path_factory.mktemp("mistakes") / "numbers"
    build(Arrays({"x": np.arange(8)}), out, shards=2, log=lambda _: None)
    return out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"worker": 0}, "worker=0 must be loader.Worker(...)"),
        ({"worker": (0, 2)}, "worker=(0, 2) must be loader.Worker(...)"),
        ({"shuffle": True}, "shuffle=True must be loader.Shuffle(...)"),
        ({"shuffle": loader.Shuffle}, "must be loader.Shuffle(...)"),
        ({"image": (64, 64)}, "image=(64, 64) must be loader.Image(...)"),
        ({"start": 3}, "start=3 must be loader.Position(...)"),
        ({"epochs": "3"}, "epochs='3' must be an integer"),
        ({"epochs": 1.5}, "epochs=1.5 must be an integer"),
        ({"select": "x"}, "select='x' must be a tuple of names, such as select=('x',)"),
        ({"select": "x, y"}, "must be a tuple of names, such as select=('x', 'y')"),
        ({"select": {"x"}}, "select={'x'} must be a tuple of names"),
        ({"split": ["train"]}, "split=['train'] must be one name; the splits are 'train'"),
        ({"batch_size": "8"}, "batch_size='8' must be an integer"),
        ({"batch_size": True}, "batch_size=True must be an integer"),
    ],
)
def test_load_names_the_keyword_of_a_wrong_type(dataset, options, message):
    with pytest.raises(OptionsError, match=re.escape(message)):
        loader.load(dataset, **{"batch_size": 2, **options})


def test_numpy_integers_are_integers_and_distribute_requires_a_strategy(dataset):
    assert len(loader.load(dataset, batch_size=np.int64(2), epochs=np.int32(2))) == 8
    with raises(OptionsError, "strategy-type", strategy="mirrored"):
        loader.distribute("mirrored", dataset, global_batch_size=2)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("photos", {}, "source='photos' must be a source, such as ImageFolder('photos')"),
        (None, {"options": {"stratify": True}}, "options={'stratify': True} must be an Options(...)"),
        (None, {"options": {}}, "options={} must be an Options(...)"),
        (None, {"shards": {"val": "2"}}, "shards={\"val\": '2'} must be an integer, or a dict such as"),
        (None, {"shards": [2]}, "shards=[2] must be an integer, or a dict such as"),
        (None, {"shards": 1.5}, "shards=1.5 must be an integer"),
        (None, {"seed": "1"}, "seed='1' must be an integer"),
        (None, {"seed": 1.5}, "seed=1.5 must be an integer"),
    ],
)
@pytest.mark.parametrize("function", [build, plan])
def test_build_and_plan_name_the_argument_of_a_wrong_type(tmp_path, function, source, options, message):
    with pytest.raises(OptionsError, match=re.escape(message)):
        function(source or Arrays({"x": np.arange(8)}), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: loader.Image(size=64), "Image.size=64 must be (height, width)"),
        (lambda: loader.Image(size=(64.5, 64)), "Image.size=(64.5, 64) must be (height, width)"),
        (lambda: loader.Shuffle(seed="a"), "Shuffle.seed='a' must be an integer"),
        (lambda: loader.Shuffle("full"), "pass the kind of order by name: Shuffle(how='full')"),
        (lambda: loader.Worker("0", 2), "Worker.index='0' must be an integer"),
        (lambda: loader.Worker(0, 2.0), "Worker.count=2.0 must be an integer"),
        (lambda: loader.Position(0, None), "Position.step=None must be an integer"),
        (lambda: ColumnRoles(drop="maybe"), "drop='maybe' must be a list of strings"),
        (lambda: ColumnRoles(images="a"), "images='a' must be a list of strings"),
        (lambda: ColumnRoles(masks=[1]), "masks=[1] must be a list of strings"),
        (lambda: FeatureRoles(drop="maybe"), "drop='maybe' must be a list of strings"),
        (lambda: Arrays({"x": np.arange(3)}, lists="x"), "lists='x' must be a list of strings"),
        (lambda: ImageFolder("flat", "short=20"), "images='short=20' must be ImageOptions(...)"),
        (lambda: Table("t.csv", "short=20"), "images='short=20' must be ImageOptions(...)"),
        (lambda: Table("t.csv", columns=["a"]), "columns=['a'] must be ColumnRoles(...)"),
        (lambda: Options(splits=["train"]), "splits=['train'] must be a ratio for each split, such as"),
        (lambda: ImageFolder(3), "root=3 must be a path"),
        (lambda: Table(3), "path=3 must be a path"),
        (lambda: build(Arrays({"x": np.arange(3)}), 5), "dataset=5 must be a path"),
        (lambda: append("flat", 5), "dataset=5 must be a path"),
        (lambda: info(5), "path=5 must be a path"),
        (lambda: loader.load(5, batch_size=1), "path=5 must be a path"),
        (lambda: loader.Resume(5), "folder=5 must be a path"),
        (
            lambda: build(Arrays({"x": np.arange(3)}), "out", beam_args="--runner=DirectRunner"),
            "beam_args='--runner=DirectRunner' must be a list of strings",
        ),
    ],
)
def test_a_wrong_type_is_named_with_its_argument(make, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionsError, match=re.escape(message)):
        make()
    assert list(tmp_path.iterdir()) == []


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
