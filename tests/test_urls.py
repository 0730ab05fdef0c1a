"""URLs of other stores are refused wherever a path is expected, and all URLs where files must be local."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tfshards import loader, prep
from tfshards.prep import Arrays
from tfshards.schemas import OptionsError

URL = "hdfs://host/data"
ARRAYS = Arrays({"x": np.arange(3)})
IN_PREP = ["prune", "adopt", "verify", "audit", "info"]
CALLS = [
    *(partial(getattr(prep, name), URL) for name in IN_PREP),
    *(partial(call, ARRAYS, Path(URL)) for call in (prep.build, prep.plan)),
    *(partial(prep.reshard, URL, "out"), partial(prep.merge, [URL, "a"], "out")),
    *(partial(prep.append, "photos", URL), partial(loader.load, URL, batch_size=1)),
    *(partial(loader.Mix, {URL: 1}), partial(prep.ImageFolder, Path(URL))),
    *(partial(prep.Table, URL), partial(prep.Table, "metadata.csv", root=URL)),
    partial(prep.plan, Arrays(["https://host/x.npz"]), "out"),
]


@pytest.mark.parametrize("call", CALLS, ids=[call.func.__name__ for call in CALLS])
def test_a_url_of_another_kind_is_refused(call):
    with raises(OptionsError, "and local paths"):
        call()


def test_a_url_of_a_cache_is_refused_and_does_not_become_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with raises(OptionsError, "is a URL, but"):
        loader.load("data", batch_size=1, cache="disk:gs://bucket/cache")
    assert not any(tmp_path.iterdir())
