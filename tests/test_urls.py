"""URLs of other stores are refused wherever a path is expected, and all URLs where files must be local."""

from pathlib import Path

import numpy as np
import pytest

from tfshards import loader, prep
from tfshards.prep import Arrays, ImageFolder, build, plan
from tfshards.prep.cli.main import main
from tfshards.schemas import OptionsError
from tfshards.schemas.files import local_path

REMOTE = {"cache": lambda: loader.load("data", batch_size=1, cache="disk:gs://bucket/cache")}


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
    with pytest.raises(OptionsError, match="is a URL of another kind; only s3://, gs://, az:// and local"):
        call()


@pytest.mark.parametrize("call", REMOTE.values(), ids=REMOTE)
def test_a_url_is_refused_and_does_not_become_a_folder(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionsError, match="is a URL, but only local paths, without file://, are supported"):
        call()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command",
    [
        ["build", "images", ".", "out", "--class-names-from", "hdfs://bucket/data"],
        ["info", "hdfs://bucket/data"],
        ["show", "hdfs://bucket/data", "1"],
        ["verify", "hdfs://bucket/data"],
    ],
    ids=" ".join,
)
def test_the_command_refuses_a_url(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    assert "://bucket/" in (error := capsys.readouterr().err)
    assert "is a URL of another kind; only s3://, gs://, az:// and local paths" in error
    assert not any(tmp_path.iterdir())


def test_a_local_path_is_not_a_url():
    for path in ("a:b/c", "C:/photos", "./gs://bucket", "1:/x", "photos", "/a/b:/c"):
        assert local_path(path) == Path(path)
    assert local_path(b"a/b") == Path("a/b")
    with pytest.raises(OptionsError, match=r"file:///data is a URL, but only local paths, without file://"):
        local_path("file:///data")
