"""Derivations and exports on Apache Beam: the bytes of the local engine, and its errors."""

import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.errors import raises
from tests.tables import mostly_nightly
from tfshards import prep
from tfshards.prep import ShardOptions, merge, relabel, remove, reshard
from tfshards.prep.cli.main import main
from tfshards.prep.engines import local
from tfshards.prep.exporting import write_parts
from tfshards.prep.exporting.table import FORMATS
from tfshards.prep.rewriting import write as rewrite
from tfshards.schemas import BuildError, Schema

from . import derived
from .derived import first_shard, flip, quiet
from .exported import EVERYTHING, example, write_dataset, write_everything

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


# each writes into the folder ``out`` of a copy of the datasets, or edits a dataset there
CALLS: dict[str, Callable[..., object]] = {
    "reshard": lambda root, **on: reshard(root / "old", root / "out", shards=4, log=quiet, **on),
    "reshard, by bytes and compressed": lambda root, **on: reshard(
        root / "old",
        root / "out",
        shards=4,
        options=ShardOptions(balance="bytes", compression="gzip"),
        log=quiet,
        **on,
    ),
    "reshard in place": lambda root, **on: reshard(
        root / "old", root / "old", shards=2, overwrite=True, log=quiet, **on
    ),
    "merge, links": lambda root, **on: merge([root / "one", root / "two"], root / "out", log=quiet, **on),
    "merge, mixed": lambda root, **on: merge(
        [root / "one", root / "two"], root / "out", shards=3, log=quiet, **on
    ),
    "merge, as splits": lambda root, **on: merge(
        {"train": root / "one", "test": root / "two"}, root / "out", log=quiet, **on
    ),
    "remove": lambda root, **on: remove(root / "old", ["cat/000.png", "dog/007.png"], log=quiet, **on),
    "relabel": lambda root, **on: relabel(
        root / "old", {"cat/000.png": "dog", "dog/007.png": "cat"}, log=quiet, **on
    ),
    **{
        f"export, {to}": lambda root, to=to, **on: prep.export(
            root / ("every" if to != "folder" else "old"), root / "out", to=to, log=quiet, **on
        )
        for to in FORMATS
    },
}
OFTEN = ["reshard", "merge, mixed", "remove", "relabel", "export, folder"]


@pytest.mark.parametrize("name", mostly_nightly(CALLS, OFTEN))
def test_worker_processes_of_beam_write_the_bytes_of_the_local_engine(name, folder, tmp_path, contents):
    (tmp_path / "a").mkdir()
    for engine in ("a", "b"):
        shutil.copytree(folder, tmp_path / engine, dirs_exist_ok=True)
    CALLS[name](tmp_path / "a", engine="local")
    CALLS[name](tmp_path / "b", beam_args=PROCESSES)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    # which is more than what was there before
    assert contents(tmp_path / "a") != contents(folder)


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
    """The work that is handed to the local engine, which does not do it."""
    found = []

    def take(work, arguments=()):
        work.progress.end()
        work.progress.follow()
        found.append(work)
        raise NotRunError

    monkeypatch.setattr(local, "run", take)
    return found


def test_workers_check_that_they_see_every_dataset_that_they_read(folder, tmp_path, works):
    for call in (
        lambda: merge([folder / "one", folder / "two"], tmp_path / "a", shards=2, log=quiet),
        lambda: prep.export(folder / "one", tmp_path / "b", to="webdataset", log=quiet),
    ):
        with pytest.raises(NotRunError):
            call()
    assert [work.sources for work in works] == [(folder / "one", folder / "two"), (folder / "one",)]


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
