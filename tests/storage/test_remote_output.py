"""A dataset that is built into an object store is the one that is built on a disk; nothing else is left."""

import itertools

import numpy as np
import pytest

from tests.errors import raises
from tests.format_reader import Folder
from tests.prep import conftest
from tests.tables import mostly_nightly
from tfshards.prep import Arrays, ImageFolder, Options, limited_jobs, prune, verify
from tfshards.prep.building import commit
from tfshards.prep.engines import local
from tfshards.schemas import BuildError
from tfshards.schemas.storage import RemotePath, any_path

from .conftest import STORES, each_store, objects, uploads
from .faults import Answer, FaultProxy, LoseAnswer

image_folder, log, quiet_build = conftest.image_folder, conftest.log, conftest.quiet_build
small_folder = conftest.small_folder


def versions(url: str) -> dict[str, object]:
    """Return what a listing says of every object below a URL."""
    return dict(any_path(url).files_below())


def damaged(folder):
    for number in range(3):
        (folder / "cat" / f"bad{number}.png").write_bytes(b"no image")
    return folder


CASES = {
    "images of which some are rejected": (
        lambda folder: ImageFolder(damaged(folder)),
        {"shards": 2, "options": Options(max_rejected="50%")},
    ),
    "several splits, compressed": (
        lambda folder: ImageFolder(folder),
        {"shards": 2, "options": Options(splits={"train": "70%", "val": "30%"}, compression="gzip")},
    ),
    "arrays": (lambda _: Arrays({"x": np.arange(5000), "y": np.arange(5000) % 3}), {"shards": {"train": 7}}),
}


# every kind of build on one store, and every store
OFTEN = [*(("moto", name) for name in CASES)]


@pytest.mark.parametrize(
    ("server", "name"), mostly_nightly(itertools.product(STORES, CASES), OFTEN), indirect=["server"]
)
def test_a_build_into_a_bucket_equals_a_local_one(name, bucket, small_folder, tmp_path, quiet_build):
    make, arguments = CASES[name]
    source = make(small_folder)
    expected = quiet_build(source, tmp_path / "data", **arguments)
    out = f"{bucket.url}/some/data"
    assert quiet_build(source, out, **arguments) == expected
    assert objects(out) == {**Folder(tmp_path / "data")}
    assert uploads(bucket) == []
    before = versions(out)
    assert quiet_build(source, out, **arguments) == expected
    assert versions(out) == before


def interrupted(monkeypatch, quiet_build, *arguments, **options):
    """Run a build that fails before its commit."""
    with monkeypatch.context() as patch:
        patch.setattr(commit, "finish", failing)
        with pytest.raises(BuildError, match="the power failed"):
            quiet_build(*arguments, **options)


def failing(*_):
    raise BuildError("the power failed")


@each_store
def test_a_resumed_build_reads_no_shard_and_writes_those_again_that_were_replaced(
    bucket, small_folder, monkeypatch, quiet_build, log
):
    out = f"{bucket.url}/data"
    source = ImageFolder(small_folder)
    whole = quiet_build(source, f"{bucket.url}/whole/data", shards=4)
    interrupted(monkeypatch, quiet_build, source, out, shards=4)
    shards = sorted(path for path, _ in any_path(out).files_below() if ".tfrecord" in path.name)
    assert len(shards) == 16
    # one that has other bytes, one that is missing, and one whose index is missing
    (first,) = (path for path in shards if path.name.endswith("00000-of-00004"))
    first.write_bytes(first.read_bytes()[::-1])
    next(path for path in shards if path.name.endswith("00001-of-00004")).unlink()
    next(path for path in shards if path.name.endswith("00002-of-00004.idx")).unlink()
    opened = []
    monkeypatch.setattr(RemotePath, "open_regular", lambda path, *_: opened.append(path))
    log.clear()
    assert quiet_build(source, out, shards=4) == whole
    assert any(line.startswith("build: 3 of 4 shards to write") for line in log)
    assert opened == []
    assert objects(out) == objects(f"{bucket.url}/whole/data")


def test_prune_removes_an_unfinished_build(bucket, small_folder, monkeypatch, quiet_build):
    out = f"{bucket.url}/data"
    interrupted(monkeypatch, quiet_build, ImageFolder(small_folder), out)
    (folder,) = any_path(out).iterdir()
    assert any(path.startswith(f"{folder.name}/work/") for path in prune(out))
    assert objects(out) == {}


@each_store
@pytest.mark.parametrize("step", ["replace_if", "finish"])
@pytest.mark.parametrize("how", ["another", "the same", "a removed one"])
def test_a_commit_that_comes_too_late_is_reported(how, step, bucket, small_folder, monkeypatch, quiet_build):
    out, source = f"{bucket.url}/data", ImageFolder(small_folder)
    if how == "a removed one":
        quiet_build(source, out, seed=3)
    where = commit if step == "finish" else RemotePath
    call = getattr(where, step)

    def late(*arguments):
        monkeypatch.setattr(where, step, call)
        if how == "a removed one":
            (any_path(out) / "dataset.json").unlink()
        else:
            quiet_build(source, out, seed=1 if how == "another" else 0)
        return call(*arguments)

    monkeypatch.setattr(where, step, late)
    if how == "the same":
        whole = quiet_build(source, f"{bucket.url}/whole/data")
        monkeypatch.setattr(where, step, late)
        assert quiet_build(source, out) == whole
        assert objects(out) == objects(f"{bucket.url}/whole/data")
    else:
        why = "was committed in the meantime" if how == "another" else "was replaced in the meantime"
        with pytest.raises(BuildError, match=why):
            quiet_build(source, out, overwrite=how == "a removed one")
    if how != "a removed one":
        assert verify(out, deep=True)


def test_a_shard_that_another_run_replaced_is_not_committed(bucket, small_folder, monkeypatch, quiet_build):
    out, source = f"{bucket.url}/data", ImageFolder(small_folder)
    whole = quiet_build(source, f"{bucket.url}/whole/data", shards=2)
    finish = commit.finish

    def late(target, *arguments):
        (path,) = (path for path in target.root.iterdir() if path.name.endswith("-00000-of-00002"))
        path.write_bytes(path.read_bytes()[::-1])
        return finish(target, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "finish", late)
        with raises(BuildError, "another run of the same build", code="build-overtaken"):
            quiet_build(source, out, shards=2)
    assert "dataset.json" not in {path.name for path, _ in any_path(out).files_below()}
    assert quiet_build(source, out, shards=2) == whole
    assert objects(out) == objects(f"{bucket.url}/whole/data")


def test_a_shard_that_no_worker_has_written_is_reported(bucket, small_folder, monkeypatch, quiet_build):
    monkeypatch.setattr(local, "run", lambda *_, **__: None)
    with raises(BuildError, "the pipeline ended", "shard 0 of split 'train'"):
        quiet_build(ImageFolder(small_folder), f"{bucket.url}/data", shards=2)


@pytest.mark.processes
def test_a_build_outlives_faults_and_resumes_later(bucket, small_folder, monkeypatch, quiet_build, log):
    source, out = ImageFolder(small_folder), f"{bucket.url}/data"
    whole = quiet_build(source, f"{bucket.url}/whole/data", shards=4)
    with FaultProxy(bucket.server.endpoint) as proxy:
        for name, value in bucket.server.behind(proxy.endpoint).environment.items():
            monkeypatch.setenv(name, value)
        proxy.add(Answer(403, "AccessDenied"), r"put .*-00002-of-00004$")
        resumes = pytest.raises(BuildError, match=r"-00002-of-00004: .* run the same command to resume$")
        # one shard after the other
        with resumes, limited_jobs(1):
            quiet_build(source, out, shards=4)
        proxy.clear()
        proxy.add(Answer(503, "SlowDown"), rate=0.1)
        proxy.add(LoseAnswer(), "(put|copy|get|head)", rate=0.05)
        log.clear()
        assert quiet_build(source, out, shards=4) == whole
        assert any(line[:8] in ("build: 1", "build: 2", "build: 3") for line in log)
        assert proxy.count().total() > 50
        assert [request for request in proxy.requests if request.fault]
        proxy.clear()
        assert objects(out) == objects(f"{bucket.url}/whole/data")
