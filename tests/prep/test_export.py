"""Exports in parallel: stopped ones resume, damage is found, and nothing else is written over."""

import fcntl
import os
import shutil
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.prep.exported import EVERYTHING, example, record, write_dataset, write_everything, write_records
from tfshards.prep import Arrays, Options, build, export
from tfshards.prep.exporting import export as module
from tfshards.schemas import Feature, InputError, OptionsError, Schema, TfshardsError, read_manifest

quietly = partial(export)
FORMATS = ("webdataset", "parquet")
both = pytest.mark.parametrize("to", FORMATS)


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    root = tmp_path_factory.mktemp("every") / "every"
    write_everything(root)
    return root


@both
def test_an_export_ends_with_the_same_bytes_after_any_stop(every, tmp_path, monkeypatch, contents, to):
    dataset = contents(every)
    quietly(every, tmp_path / "whole", to=to)
    whole = contents(tmp_path / "whole")
    assert all(name.startswith(("data/", "every-", "labels.txt")) for name in whole)
    written = []

    def stop_before(unfinished, *args):
        if len(written) == 2:
            raise KeyboardInterrupt
        real(unfinished, *args)
        written.append(unfinished)

    writer = module._FORMATS[to]
    real = writer.write
    monkeypatch.setattr(writer, "write", stop_before)
    monkeypatch.setattr("tfshards.prep.progress.threads._NUM_CORES", 1)
    with pytest.raises(KeyboardInterrupt):
        quietly(every, tmp_path / "out", to=to)
    monkeypatch.undo()
    other = {"webdataset": "parquet", "parquet": "webdataset"}[to]
    with pytest.raises(InputError, match="does not hold this export"):
        quietly(every, tmp_path / "out", to=other)
    made = quietly(every, tmp_path / "out", to=to)
    # how many parts end before the error depends on the threads
    assert (made.num_kept, made.num_parts) == (len(written), 4)
    assert contents(tmp_path / "out") == whole
    # of a finished export, only parts that are gone are written, and the class names
    for name in made.files:
        (tmp_path / "out" / name).unlink()
        before = stamps(tmp_path / "out")
        quietly(every, tmp_path / "out", to=to)
        after = stamps(tmp_path / "out")
        written = {path for path in after if after[path] != before.get(path)}
        assert written == {name, "labels.txt"}
        assert contents(tmp_path / "out") == whole
    assert contents(every) == dataset


def stamps(folder):
    """Return the time and the inode of each file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.stat().st_ino) for path in files
    }


@both
def test_compressed_datasets_and_empty_shards_are_exported(to, tmp_path):
    options = Options(compression="gzip")
    build(Arrays({"x": np.arange(101)}), tmp_path / "old", shards=3, options=options)
    made = quietly(tmp_path / "old", tmp_path / "out", to=to)
    assert made.num_examples == 101
    assert set(made.files) == {
        path.relative_to(tmp_path / "out").as_posix()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    schema = Schema((EVERYTHING["image"], EVERYTHING["key"]))
    row = {name: example(1)[name] for name in ("image", "key")}
    write_dataset(tmp_path / "ds", schema, {"train": [[row], []], "val": [[]]})
    assert quietly(tmp_path / "ds", tmp_path / "empty", to=to).num_examples == 1


def test_selected_features_are_exported_alone(every, tmp_path):
    quietly(every, tmp_path / "out", to="parquet", select=["boxes", "label"])
    names = pq.read_schema(tmp_path / "out" / "data" / "train-00000-of-00003.parquet").names
    assert names == ["label", "boxes"]
    with pytest.raises(InputError, match="does not hold this export"):
        quietly(every, tmp_path / "out", to="parquet")


@pytest.mark.parametrize(
    ("given", "names"),
    [({"to": "hdf5"}, "to='hdf5' must be one of webdataset, parquet"), ({"directory": "gs://bucket/x"}, "gs://"),
     ({"select": "image"}, "select='image'"),
     ({"select": []}, r"select=\(\) selects nothing"), ({"as_bytes": ["label"]}, "as_bytes='label'")],
)  # fmt: skip
def test_invalid_arguments_are_named(every, tmp_path, given, names):
    with pytest.raises(OptionsError, match=names):
        quietly(every, **{"directory": tmp_path / "out", "to": "webdataset", **given})
    assert not (tmp_path / "out").exists()


def test_two_exports_do_not_write_to_one_directory(every, tmp_path):
    (tmp_path / "out").mkdir()
    descriptor = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(InputError, match=str(tmp_path / "out")):
        quietly(every, tmp_path / "out", to="webdataset")
    os.close(descriptor)


@pytest.mark.parametrize("name", ["mine.txt", ".export", ".export-0123abcd/mine.txt"])
def test_a_folder_of_somebody_else_is_refused_and_stays_as_it_is(every, tmp_path, contents, name):
    (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "out" / name).write_bytes(b"mine")
    before = contents(tmp_path)
    with pytest.raises(InputError, match="is not empty"):
        quietly(every, tmp_path / "out", to="webdataset")
    assert contents(tmp_path) == before


def test_what_a_killed_export_leaves_is_removed_and_other_files_stay(every, tmp_path):
    quietly(every, tmp_path / "out", to="webdataset")
    (work,) = (tmp_path / "out").glob(".export-*")
    (work / "every-train-000000.tar.0123456789abcdef").write_bytes(b"\0")
    (work / "mine.txt").write_bytes(b"mine")
    quietly(every, tmp_path / "out", to="webdataset")
    assert os.listdir(work) == ["mine.txt"]
    # a link leads to another folder, in which nothing is removed
    (tmp_path / "far" / "link").mkdir(parents=True)
    (tmp_path / "far" / "link" / "x.tar.0123456789abcdef").write_bytes(b"mine")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / work.name).symlink_to(tmp_path / "far" / "link")
    with pytest.raises(InputError, match="is not empty"):
        quietly(every, tmp_path / "linked", to="webdataset")
    assert os.listdir(tmp_path / "far" / "link") == ["x.tar.0123456789abcdef"]


def test_large_parts_have_several_row_groups(tmp_path, monkeypatch):
    build(Arrays({"x": np.arange(40)}), tmp_path / "ds", shards=1)
    monkeypatch.setattr(module, "_GROUP_ROWS", 15)
    file, *_ = quietly(tmp_path / "ds", tmp_path / "rows", to="parquet").files
    assert pq.ParquetFile(tmp_path / "rows" / file).num_row_groups == 3


@both
def test_a_shard_that_is_not_what_the_manifest_says_ends_the_export(to, tmp_path):
    schema, other = (Schema((Feature(name, "int", "int64"),)) for name in "xy")
    write_records(tmp_path / "other", other, {"train": [[record(schema, {"x": 1})]]})
    with pytest.raises(TfshardsError, match="record 0 at byte 0"):
        quietly(tmp_path / "other", tmp_path / "out", to=to)
    write_everything(tmp_path / "ds")
    one, two, *_ = read_manifest(tmp_path / "ds").shards[1:]
    shutil.move(tmp_path / "ds" / one.path, tmp_path / "ds" / two.path)
    (tmp_path / "ds" / one.path).write_bytes(b"")
    # whichever is read first
    with pytest.raises(TfshardsError, match=f"{one.path}|{two.path}"):
        quietly(tmp_path / "ds", tmp_path / "counted", to=to)
    # another shard whose records have the same lengths
    write_records(tmp_path / "same", schema, {"train": [[record(schema, {"x": x})] for x in (1, 2)]})
    one, two = read_manifest(tmp_path / "same").shards
    shutil.copy(tmp_path / "same" / two.path, tmp_path / "same" / one.path)
    with pytest.raises(InputError, match=f"{one.path} holds other records"):
        quietly(tmp_path / "same", tmp_path / "copied", to=to)
