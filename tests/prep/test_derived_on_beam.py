"""Builds, derivations and exports by workers: tasks, repeated ones, errors; see tests/verbs for the bytes."""

import pickle
import shutil
from pathlib import Path

import pytest

from tfshards import prep
from tfshards.prep import merge, relabel, reshard

from . import derived
from .exported import write_everything

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The datasets ``old``, 60 images of three splits, ``one`` and ``two``, two halves, and ``every``."""
    root = tmp_path_factory.mktemp("datasets")
    derived.build_images(root)
    for name, numbers in (("one", range(20)), ("two", range(20, 40))):
        photos = prep.ImageFolder(derived.write_images(root / f"of-{name}", numbers))
        prep.build(photos, root / name, shards=2)
    write_everything(root / "every")
    return root


CALLS = {
    "build": lambda old, out: prep.build(prep.ImageFolder(old / "of-one"), out / "a", shards=4),
    "reshard": lambda old, out: reshard(old / "old", out / "a", shards={"train": 40}),
    "merge": lambda old, out: merge([old / "one", old / "two"], out / "a", shards=2),
    "relabel": lambda _, out: relabel(out / "old", {f"cat/{n:03}.png": "dog" for n in range(0, 60, 2)}),
    "WebDataset": lambda old, out: prep.export(old / "old", out / "a", to="webdataset"),
    "Parquet": lambda old, out: prep.export(old / "every", out / "a", to="parquet"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_tasks_do_not_grow_with_the_dataset_and_may_be_repeated(
    call, folder, tmp_path, contents, monkeypatch
):
    for name in ("once", "twice"):
        shutil.copytree(folder / "old", tmp_path / name / "old")
    call(folder, tmp_path / "once")
    num_tasks = 0

    def run_twice(work) -> None:
        """Run each task as runners do that lose an answer."""
        nonlocal num_tasks
        sent = pickle.dumps(work.function)
        # neither shards nor keys
        assert b".tfrecord" not in sent
        assert b".png" not in sent
        assert len(sent) < 3_000
        for item in work.items:
            num_tasks += 1
            work.function(item)
            before = contents(work.folder)
            work.function(item)
            assert contents(work.folder) == before
        # of one shard its name, or its entry in the manifest
        assert max(len(pickle.dumps(item)) for item in work.items) < 800

    monkeypatch.setattr("tfshards.prep.engines.local.run", run_twice)
    call(folder, tmp_path / "twice")
    assert num_tasks > 1
    assert contents(tmp_path / "twice") == contents(tmp_path / "once")
