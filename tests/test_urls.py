"""URLs of other stores are refused wherever a path is expected, and all URLs where files must be local."""

from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tfshards import loader, prep
from tfshards.prep import Arrays, ImageFolder, build, plan
from tfshards.schemas import OptionsError

OTHER_KINDS = {
    "build into": lambda: build(Arrays({"x": np.arange(3)}), "hdfs://host/data"),
    "plan into": lambda: plan(Arrays({"x": np.arange(3)}), Path("https://host/data")),
    "prune": lambda: prep.prune("ftp://host/data"),
    "reshard": lambda: prep.reshard("hdfs://host/data", "out"),
    "merge": lambda: prep.merge(["hdfs://host/data", "a"], "out"),
    "append to": lambda: prep.append("photos", "hdfs://host/data"),
    "load": lambda: loader.load("hdfs://host/data", batch_size=1),
    "mix": lambda: loader.load(loader.Mix({"hdfs://host/data": 1}), batch_size=1),
    "adopt": lambda: prep.adopt("hdfs://host/data"),
    "repair": lambda: prep.repair("hdfs://host/data"),
    "verify": lambda: prep.verify("hdfs://host/data"),
    "audit": lambda: prep.audit("hdfs://host/data"),
    "info": lambda: prep.info("hdfs://host/data"),
    "images": lambda: ImageFolder("https://host/photos"),
    "a table": lambda: prep.Table("https://host/metadata.csv"),
    "images of a table": lambda: prep.Table("metadata.csv", root="hdfs://host/photos"),
    "an archive": lambda: Arrays.open(["https://host/x.npz"]),
    "images of pathlib": lambda: ImageFolder(Path("hdfs://host/photos")),
}


@pytest.mark.parametrize("call", OTHER_KINDS.values(), ids=OTHER_KINDS)
def test_a_url_of_another_kind_is_refused(call):
    with raises(OptionsError, "url-scheme-unknown"):
        call()


def test_a_url_of_a_cache_is_refused_and_does_not_become_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with raises(OptionsError, "url-not-supported"):
        loader.load("data", batch_size=1, cache="disk:gs://bucket/cache")
    assert not any(tmp_path.iterdir())
