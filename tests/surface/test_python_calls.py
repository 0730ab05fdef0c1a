"""Calls from Python with a value of a wrong type raise OptionsError, which names the argument."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tfshards import loader, prep
from tfshards.prep import Arrays, ImageFolder, Options, Table, append, build, info, plan
from tfshards.schemas import OptionsError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    out = tmp_path_factory.mktemp("mistakes") / "numbers"
    build(Arrays({"x": np.arange(8)}), out, shards=2)
    return out


def load(data, **options):
    return loader.load(data, **{"batch_size": 2, **options})


ARRAYS = Arrays({"x": np.arange(8)})
# calls with the dataset, and what their errors say
MISTAKES = [
    (lambda data: load(data, worker=(0, 2)), "worker="),
    (lambda data: load(data, shuffle=True), "shuffle="),
    (lambda data: load(data, epochs=1.5), "epochs="),
    (lambda data: load(data, select="x, y"), "select="),
    (lambda data: load(data, select={"x"}), "select="),
    (lambda data: load(data, split=["train"]), "split="),
    (lambda data: load(data, batch_size="8"), "batch_size="),
    (lambda _: loader.Image(size=64), "size="),
    (lambda _: loader.Shuffle(seed="a"), "seed="),
    (lambda _: loader.Worker(0, 2.0), "count="),
    (lambda _: loader.Position(0, None), "step="),
    (lambda data: load(data, cache="disk:gs://bucket/cache"), "is a URL, but"),
    (lambda _: Arrays({"x": np.arange(3)}, "x"), "roles="),
    (lambda _: ImageFolder("flat", "short=20"), "images="),
    (lambda _: Table("t.csv", images="short=20"), "images="),
    (lambda _: Table("t.csv", ["a"]), "roles="),
    (lambda _: Options(splits=["train"]), "splits="),
    (lambda _: ImageFolder(3), "root="),
    (lambda _: Table(3), "__arrow_c_stream__"),
    (lambda _: build(ARRAYS, 5), "dataset="),
    (lambda data: build(ARRAYS, data, overwrite="no"), "overwrite='no' must be True or False"),
    (lambda data: prep.verify(data, repair="no"), "repair='no' must be True or False"),
    (lambda data: prep.reshard(data, data, shards=3, overwrite=1), "overwrite=1 must be True or False"),
    (lambda _: ImageFolder("flat", as_is="no"), "as_is='no'"),
    (lambda _: Options(splits={"a": 0.5, "b": 0.5}, stratify="no"), "stratify='no'"),
    (lambda _: append("flat", 5), "dataset="),
    (lambda _: info(5), "path="),
    (lambda _: load(5), "path="),
    (lambda _: loader.Resume(5), "folder="),
    (lambda _: build(ARRAYS, "out", beam_args="--runner"), "beam_args="),
    (lambda _: build("photos", "out"), "source="),
    (lambda _: plan("photos", "out"), "source="),
]
WRONG_OPTIONS = [
    ({"options": {}}, "options="),
    ({"shards": [2]}, "shards="),
    ({"shards": {"val": "2"}}, "shards="),
    ({"seed": 1.5}, "seed="),
]
URL = "hdfs://host/data"
URLS = [
    *(partial(getattr(prep, name), URL) for name in ("prune", "adopt", "verify", "audit", "info")),
    *(partial(call, ARRAYS, Path(URL)) for call in (build, plan)),
    *(partial(prep.reshard, URL, "out"), partial(prep.merge, [URL, "a"], "out")),
    *(partial(append, "photos", URL), partial(loader.load, URL, batch_size=1)),
    *(partial(loader.Mix, {URL: 1}), partial(ImageFolder, Path(URL))),
    *(partial(Table, URL), partial(Table, "metadata.csv", root=URL)),
    partial(plan, Arrays(["https://host/x.npz"]), "out"),
]
MISTAKES += [(lambda _, call=call: call(), "and local paths") for call in URLS]
MISTAKES += [
    (partial(lambda call, options, _: call(ARRAYS, "out", **options), call, options), message)
    for call, wrong in ((build, WRONG_OPTIONS), (plan, WRONG_OPTIONS[:1]))
    for options, message in wrong
]


@pytest.mark.parametrize(("make", "message"), MISTAKES)
def test_a_wrong_type_is_named_with_its_argument(make, message, dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionsError, match=re.escape(message)):
        make(dataset)
    assert list(tmp_path.iterdir()) == []


def test_numpy_integers_are_integers(dataset):
    assert len(loader.load(dataset, batch_size=np.int64(2), epochs=np.int32(2))) == 8


def test_the_error_for_ratios_that_nearly_sum_to_one_has_a_remedy():
    with raises(OptionsError, "the split ratios"):
        Options(splits={"train": 1 / 3, "val": 2 / 3})
