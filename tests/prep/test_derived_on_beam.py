"""Derivations and exports on Apache Beam: what workers do, and errors; see tests/verbs for the bytes."""

import pickle
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.errors import raises
from tests.tables import mostly_nightly
from tfshards import prep
from tfshards.prep import relabel, reshard
from tfshards.prep.engines import local
from tfshards.prep.engines.table import run_on_threads
from tfshards.prep.exporting import write_parts
from tfshards.prep.exporting.table import FORMATS
from tfshards.prep.rewriting import scan
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


@pytest.mark.parametrize("to", mostly_nightly(FORMATS, ["webdataset"]))
def test_worker_processes_of_beam_export_the_bytes_of_the_local_engine(to, folder, tmp_path, contents):
    prep.export(folder / "every", tmp_path / "a", to=to, log=quiet, engine="local")
    prep.export(folder / "every", tmp_path / "b", to=to, log=quiet, beam_args=PROCESSES)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert contents(tmp_path / "a")


def test_a_damaged_record_that_a_worker_process_finds_is_named_and_the_same_call_resumes(
    folder, tmp_path, contents
):
    old = Path(shutil.copytree(folder / "old", tmp_path / "old"))
    flip(first_shard(old), -1)
    call = partial(reshard, old, tmp_path / "out", shards=4, log=quiet)
    with pytest.raises(
        BuildError, match=r"old-.*: record \d+ at byte \d+: a checksum of its frame"
    ) as failed:
        call(beam_args=PROCESSES)
    assert failed.value.code == "build-failed"
    flip(first_shard(old), -1)
    call()
    reshard(folder / "old", tmp_path / "whole" / "out", shards=4, log=quiet)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole" / "out")


def test_byte_strings_that_a_worker_of_beam_cannot_store_as_text_are_stored_as_bytes(tmp_path, contents, log):
    features = (EVERYTHING["key"], EVERYTHING["caption"])
    rows = [{name: example(number)[name] for name in ("key", "caption")} for number in range(4)]
    rows[3]["caption"] = b"\xfe\xfd"
    write_dataset(tmp_path / "ds", Schema(features), {"train": [rows[:2], rows[2:]]})
    for engine in ("local", "beam"):
        prep.export(tmp_path / "ds", tmp_path / engine, to="parquet", engine=engine, log=log.append)
    assert log == ["some values of 'caption' are not UTF-8; all of them are stored as bytes"] * 2
    assert contents(tmp_path / "local") == contents(tmp_path / "beam")


class NotRunError(Exception):
    """Raised in place of a run."""


@pytest.fixture
def works(monkeypatch) -> list:
    """The work that is handed to the local engine, which only reads keys."""
    found = []

    def take(work, arguments=()):
        if work.function.func is scan._scan:
            found.append(work)
            run_on_threads(work)
            return
        work.progress.end()
        work.progress.follow()
        found.append(work)
        raise NotRunError

    monkeypatch.setattr(local, "run", take)
    return found


def test_what_a_worker_is_sent_does_not_grow_with_the_dataset(folder, tmp_path, works):
    old = shutil.copytree(folder / "old", tmp_path / "old")
    for call in (
        lambda: reshard(folder / "old", tmp_path / "a", shards={"train": 40}, log=quiet),
        lambda: relabel(old, {f"cat/{n:03}.png": "dog" for n in range(0, 60, 2)}, log=quiet),
        lambda: prep.export(folder / "old", tmp_path / "b", to="webdataset", log=quiet),
    ):
        with pytest.raises(NotRunError):
            call()
    for work in works:
        sent = pickle.dumps((work.function, work.area))
        # neither shards nor keys
        assert b".tfrecord" not in sent
        assert b".png" not in sent
        assert len(sent) < 3_000
        # of a shard only its name and its number of examples
        assert len(pickle.dumps(work.items[0])) < 120


def test_a_repeated_task_of_an_export_does_nothing_and_another_release_of_the_format_is_refused(
    folder, tmp_path, works, monkeypatch
):
    # progress is reported after each
    monkeypatch.setattr(write_parts, "_EXAMPLES", 1)
    with pytest.raises(NotRunError):
        prep.export(folder / "every", tmp_path / "out", to="parquet", log=quiet)
    work, task = works[0], works[0].function.args[0]
    other = replace(task, release="0.1")
    with raises(BuildError, "worker-unfit"):
        write_parts.write_part(other, work.items[0])
    assert "pyarrow" in task.area.stop_reason()
    task.area.stop_path.unlink()
    write_parts.write_part(task, work.items[0])
    assert work.measure().num_examples > 0
    write_parts.write_part(other, work.items[0])
    # and one that has stopped meanwhile ends
    task.area.stop("why")
    with raises(BuildError, "build-stopped"):
        write_parts.write_part(task, work.items[1])
