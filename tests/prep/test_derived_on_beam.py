"""Builds, derivations and exports by workers: tasks, repeated ones, errors; see tests/verbs for the bytes."""

import pickle
import re
import shutil
from pathlib import Path

import pytest

from tests.durability.commands import identity
from tests.tables import mostly_nightly
from tfshards import prep
from tfshards.prep import merge, relabel, remove, reshard
from tfshards.schemas import BuildError, Schema

from . import derived
from .derived import first_shard, flip, quiet
from .exported import EVERYTHING, example, write_dataset, write_everything

pytestmark = pytest.mark.processes

PROCESSES = ["--runner=DirectRunner", "--direct_running_mode=multi_processing", "--direct_num_workers=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The datasets ``old``, 60 images of three splits, ``one`` and ``two``, two halves, and ``every``."""
    root = tmp_path_factory.mktemp("datasets")
    derived.build_images(root)
    for name, numbers in (("one", range(20)), ("two", range(20, 40))):
        photos = prep.ImageFolder(derived.write_images(root / f"of-{name}", numbers))
        derived.build_quietly(photos, root / name, shards=2)
    write_everything(root / "every")
    return root


@pytest.mark.parametrize("to", mostly_nightly(["webdataset", "parquet"], ["webdataset"]))
def test_worker_processes_of_beam_export_the_bytes_of_the_local_engine(to, folder, tmp_path, contents):
    prep.export(folder / "every", tmp_path / "a", to=to, log=quiet, engine="local")
    prep.export(folder / "every", tmp_path / "b", to=to, log=quiet, beam_args=PROCESSES)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert contents(tmp_path / "a")


@pytest.mark.parametrize("verb", ["reshard", "remove"])
def test_a_damaged_record_that_a_worker_process_finds_is_named_and_the_same_call_resumes(
    verb, folder, tmp_path, contents
):
    old, whole = (Path(shutil.copytree(folder / "old", tmp_path / name / "old")) for name in ("a", "b"))
    out = old.parent / "out" if verb == "reshard" else old

    def call(root: Path, **on: object) -> None:
        if verb == "reshard":
            reshard(root, root.parent / "out", shards=4, log=quiet, **on)
        else:
            remove(root, ["cat/000.png"], log=quiet, **on)

    shard = flip(first_shard(old), -1)
    with pytest.raises(BuildError, match=rf"{re.escape(shard.name)}: record \d+ at byte \d+: ") as failed:
        call(old, beam_args=PROCESSES)
    assert failed.value.code == "build-failed"
    flip(shard, -1)
    call(old)
    call(whole)
    assert contents(out) == contents(whole.parent / out.name)


def test_byte_strings_that_a_worker_of_beam_cannot_store_as_text_are_stored_as_bytes(tmp_path, contents, log):
    features = (EVERYTHING["key"], EVERYTHING["caption"])
    rows = [{name: example(number)[name] for name in ("key", "caption")} for number in range(4)]
    rows[3]["caption"] = b"\xfe\xfd"
    write_dataset(tmp_path / "ds", Schema(features), {"train": [rows[:2], rows[2:]]})
    for engine in ("local", "beam"):
        prep.export(tmp_path / "ds", tmp_path / engine, to="parquet", engine=engine, log=log.append)
    assert ["'caption'" in line for line in log] == [True] * 2
    assert contents(tmp_path / "local") == contents(tmp_path / "beam")


CALLS = {
    "build": lambda folder, out: derived.build_quietly(
        prep.ImageFolder(folder / "of-one"), out / "a", shards=4
    ),
    "reshard": lambda folder, out: reshard(folder / "old", out / "a", shards={"train": 40}, log=quiet),
    "merge": lambda folder, out: merge([folder / "one", folder / "two"], out / "a", shards=2, log=quiet),
    "relabel": lambda folder, out: relabel(
        out / "old", {f"cat/{n:03}.png": "dog" for n in range(0, 60, 2)}, log=quiet
    ),
    "WebDataset": lambda folder, out: prep.export(folder / "old", out / "a", to="webdataset", log=quiet),
    "Parquet": lambda folder, out: prep.export(folder / "every", out / "a", to="parquet", log=quiet),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_tasks_do_not_grow_with_the_dataset_and_may_be_repeated(
    call, folder, tmp_path, contents, monkeypatch
):
    for name in ("once", "twice"):
        shutil.copytree(folder / "old", tmp_path / name / "old")
    call(folder, tmp_path / "once")
    num_tasks = 0

    def run_twice(work, arguments: object = ()) -> None:
        """Run each task as runners do that lose an answer."""
        nonlocal num_tasks
        sent = pickle.dumps((work.function, work.area))
        # neither shards nor keys
        assert b".tfrecord" not in sent
        assert b".png" not in sent
        assert len(sent) < 3_000
        for item in work.items:
            num_tasks += 1
            work.function(item)
            before = {path: identity(path) for path in work.area.shards.rglob("*") if path.is_file()}
            work.function(item)
            after = {path: identity(path) for path in work.area.shards.rglob("*") if path.is_file()}
            assert after == before
        # of a shard only its name and its number of examples
        assert max(len(pickle.dumps(item)) for item in work.items) < 200
        work.progress.end()
        work.progress.follow()

    monkeypatch.setattr("tfshards.prep.engines.local.run", run_twice)
    call(folder, tmp_path / "twice")
    assert num_tasks > 1
    assert contents(tmp_path / "twice") == contents(tmp_path / "once")
