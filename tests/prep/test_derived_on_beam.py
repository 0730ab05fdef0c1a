"""Derivations and exports on Apache Beam: what workers do, and errors; see tests/verbs for the bytes."""

import json
import pickle
import shutil
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from tests.errors import raises
from tests.tables import mostly_nightly
from tfshards import prep
from tfshards.prep import merge, relabel, remove, reshard
from tfshards.prep.building.planned_build import run_work
from tfshards.prep.cli.main import main
from tfshards.prep.engines import local
from tfshards.prep.engines.job import JobNote
from tfshards.prep.engines.table import run_on_threads
from tfshards.prep.exporting import write_parts
from tfshards.prep.exporting.table import FORMATS
from tfshards.prep.rewriting import scan
from tfshards.prep.rewriting import write as rewrite
from tfshards.schemas import BuildError, Schema, read_manifest
from tfshards.schemas.build_area import AREA_NAME, create

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


def test_workers_check_that_they_see_every_dataset_that_they_read(folder, tmp_path, works):
    for call in (
        lambda: merge({"a": folder / "one", "b": folder / "two"}, tmp_path / "a", shards=2, log=quiet),
        lambda: merge([folder / "two", folder / "one"], tmp_path / "a", log=quiet),
        lambda: prep.export(folder / "one", tmp_path / "b", to="webdataset", log=quiet),
    ):
        with pytest.raises(NotRunError):
            call()
    names = [[source.name for source in work.sources] for work in works]
    assert names == [["one", "two"], ["two"], ["one"], ["two", "one"], ["one"]]


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


def test_a_shard_that_no_worker_has_written_ends_the_call(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(rewrite, "run_work", lambda run, work: work.progress.end() or work.progress.follow())
    with raises(BuildError, "shard-unfinished", where="shard 0 of split 'train'"):
        reshard(folder / "one", tmp_path / "out", shards=2, log=quiet)


def test_keys_that_workers_cannot_read_are_named_and_the_same_call_reads_only_the_others(
    folder, tmp_path, contents, monkeypatch
):
    old, read, found = Path(shutil.copytree(folder / "old", tmp_path / "old")), scan._read_shard, []
    names = [shard.path for shard in read_manifest(old).shards]
    flip(old / names[-1], -1)
    for on in {"engine": "local"}, {"beam_args": PROCESSES}:
        with pytest.raises(BuildError, match=r"old-.*: record \d+ at byte \d+: the checksum of the record"):
            remove(old, ["cat/000.png"], log=quiet, **on)
    flip(old / names[-1], -1)
    monkeypatch.setattr(scan, "_read_shard", lambda *each: found.append(each[1]) or read(*each))
    remove(old, ["cat/000.png"], log=quiet)
    assert names[-1] in found
    assert len({*found}) == len(found) < len(names)
    assert not (old / AREA_NAME).exists()
    expected = Path(shutil.copytree(folder / "old", tmp_path / "whole" / "old"))
    remove(expected, ["cat/000.png"], log=quiet)
    assert contents(old) == contents(expected)


def test_a_call_that_stopped_after_all_keys_were_read_reads_none_again(folder, tmp_path, monkeypatch):
    old = Path(shutil.copytree(folder / "old", tmp_path / "old"))

    def fail(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(scan, "read_whole", fail)
        with raises(BuildError, "build-failed"):
            remove(old, ["cat/000.png"], log=quiet)
    monkeypatch.setattr(scan, "_read_shard", fail)
    assert remove(old, ["cat/000.png"], log=quiet).num_examples == 59
    assert not (old / AREA_NAME).exists()


def test_jobs_that_killed_commands_have_left_are_cancelled_before_the_next_one_begins(
    folder, tmp_path, monkeypatch
):
    old, cancelled = Path(shutil.copytree(folder / "old", tmp_path / "old")), []

    def run(_, work):
        assert work.measure() == (0, 0)
        work.function(work.items[0])
        # a task that is repeated reads nothing again
        patch.setattr(scan, "_read_shard", None)
        work.function(work.items[0])
        work.progress.end()
        work.progress.follow()
        assert work.measure().num_examples == work.items[0][2]

    shards = read_manifest(old).shards
    # no worker reads the others
    with monkeypatch.context() as patch:
        patch.setattr(scan, "run_work", run)
        with raises(BuildError, "shard-unfinished", where=f"the keys of {shards[1].path}"):
            remove(old, ["cat/000.png"], log=quiet)
    monkeypatch.setattr(rewrite, "run_work", lambda run, work: cancelled.append(None) or run_work(run, work))
    ((left,), other) = old.glob(f"{AREA_NAME}/*"), old / AREA_NAME / "0123abcd"
    create(other)
    for each in (left, other):
        (each / "job").write_text(json.dumps(asdict(JobNote("number-1", "localhost:1"))))
    monkeypatch.setattr(scan, "cancel_lost_job", lambda path: cancelled.append(path))
    remove(old, ["cat/000.png"], log=quiet)
    assert cancelled == [*sorted([left / "job", other / "job"]), None]
    assert not (old / AREA_NAME).exists()


@pytest.mark.parametrize("verb", ["reshard", "merge", "append", "remove", "relabel", "export", "build"])
def test_every_verb_of_an_engine_refuses_options_that_have_no_effect(verb, folder, tmp_path, capsys):
    inputs = {
        "reshard": [folder / "one", tmp_path / "out"],
        "merge": [folder / "one", folder / "two", tmp_path / "out"],
        "append": [folder / "of-one", folder / "one"],
        "remove": [folder / "one", "--keys", "keys.txt"],
        "relabel": [folder / "one", "--labels", "labels.csv"],
        "export": [folder / "one", tmp_path / "out", "--to", "webdataset"],
        "build": ["images", folder / "of-one", tmp_path / "out"],
    }[verb]
    command = [verb, *map(str, inputs)]
    assert main([*command, "--engine", "local", "--", "--direct_num_workers=2"]) == 2
    assert capsys.readouterr().err == (
        "tfshards: --engine local has no pipeline options: give --engine beam -- --direct_num_workers=2, or "
        "leave them out\n"
    )
    assert main([*command, "--engine", "beam", "--jobs", "2"]) == 2
    assert capsys.readouterr().err.startswith("tfshards: --jobs 2 limits a build on this machine; leave it")
    assert main([*command, "--", "--flonk=1"]) == 2
    assert capsys.readouterr().err == "tfshards: Apache Beam: --flonk=1 is not a pipeline option\n"


def test_the_engine_is_chosen_without_pipeline_options(folder, tmp_path, capsys, contents):
    for engine in ("local", "beam"):
        out = str(tmp_path / engine / "photos")
        assert main(["build", "images", str(folder / "of-one"), out, "--engine", engine]) == 0
    assert contents(tmp_path / "local") == contents(tmp_path / "beam")
