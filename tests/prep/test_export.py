"""Exports in parallel: killed ones resume, damage is found, and nothing else is written over."""

import fcntl
import json
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.errors import raises
from tests.prep.derived import build_arrays, build_quietly, write_images
from tests.prep.exported import EVERYTHING, example, write_dataset, write_everything
from tfshards.prep import ImageFolder, export
from tfshards.prep.cli.main import main
from tfshards.prep.exporting import parquet, write_parts
from tfshards.prep.exporting.table import FORMATS
from tfshards.prep.records.frames import RecordError
from tfshards.schemas import Feature, InputError, OptionsError, Schema, read_manifest
from tfshards.schemas.errors import counted
from tfshards.schemas.manifest_file import write_manifest
from tfshards.schemas.sizes import size

quietly = partial(export, log=lambda _: None)


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    root = tmp_path_factory.mktemp("every") / "every"
    write_everything(root)
    return root


@pytest.mark.parametrize("place", ["", "sub", "sub/sub"])
def test_an_export_into_a_dataset_is_refused(every, place):
    before = sorted(every.rglob("*"))
    with raises(InputError, "output-in-dataset" if place else "export-not-empty"):
        quietly(every, every / place, to="parquet")
    assert sorted(every.rglob("*")) == before


@pytest.mark.parametrize("to", FORMATS)
def test_an_export_ends_with_the_same_bytes_after_any_stop(every, tmp_path, monkeypatch, contents, to):
    quietly(every, tmp_path / "whole", to=to)
    whole = contents(tmp_path / "whole")
    hidden = {name for name in whole if name.startswith(".")}
    assert hidden == {".export/journal.jsonl"}
    written = []

    def stop_before(task, part):
        if len(written) == 2:
            raise KeyboardInterrupt
        real(task, part)
        written.append(part)

    real = write_parts.write_part
    monkeypatch.setattr("tfshards.prep.exporting.export.write_part", stop_before)
    monkeypatch.setattr("tfshards.prep.progress.threads._NUM_CORES", 1)
    with pytest.raises(KeyboardInterrupt):
        quietly(every, tmp_path / "stopped", to=to)
    assert len({*written}) < 4
    monkeypatch.undo()
    lines = []
    made = export(every, tmp_path / "stopped", to=to, log=lines.append)
    # how many parts end before the error depends on the threads
    kept = len(written)
    assert lines == (
        [f"keeping {counted(kept, 'part')} of an earlier run, writing {4 - kept}"] if kept else []
    )
    assert (made.num_kept, made.num_parts) == (kept, 4)
    assert contents(tmp_path / "stopped") == whole


@pytest.mark.parametrize("to", FORMATS)
def test_a_flipped_byte_of_a_finished_export_is_found_and_written_again(every, tmp_path, contents, to, log):
    quietly(every, tmp_path / "out", to=to)
    before = contents(tmp_path / "out")
    assert quietly(every, tmp_path / "out", to=to).num_kept == 4
    part = json.loads(before[".export/journal.jsonl"].splitlines()[2])
    largest = part["files"][-1][0]
    path = tmp_path / "out" / largest
    data = bytearray(before[largest])
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    export(every, tmp_path / "out", to=to, log=log.append)
    assert log == ["keeping 3 parts of an earlier run, writing 1"]
    assert contents(tmp_path / "out") == before


def test_a_damaged_record_of_the_dataset_ends_the_export(tmp_path):
    write_everything(tmp_path / "ds")
    path = tmp_path / "ds" / read_manifest(tmp_path / "ds").shards[1].path
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(RecordError, match="record 0 at byte 0"):
        quietly(tmp_path / "ds", tmp_path / "out", to="parquet")


def test_a_shard_that_was_exchanged_ends_the_export(tmp_path):
    write_everything(tmp_path / "ds")
    one, other, *_ = read_manifest(tmp_path / "ds").shards[1:]
    os.replace(tmp_path / "ds" / one.path, tmp_path / "ds" / other.path)
    (tmp_path / "ds" / one.path).write_bytes(b"")
    with raises(InputError, "export-miscounted", num_examples=2):
        quietly(tmp_path / "ds", tmp_path / "out", to="webdataset")


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("to", FORMATS)
def test_compressed_datasets_and_empty_shards_are_exported(to, compression, tmp_path):
    manifest = build_arrays(tmp_path, compression)
    made = quietly(tmp_path / "old", tmp_path / "out", to=to)
    assert made.num_examples == manifest.num_examples
    assert set(made.files) == {
        path.relative_to(tmp_path / "out").as_posix()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file() and ".export" not in path.parts
    }


@pytest.mark.parametrize("to", FORMATS)
def test_a_split_without_examples_is_exported(to, tmp_path):
    schema = Schema((EVERYTHING["image"], EVERYTHING["key"]))
    row = {name: example(1)[name] for name in ("image", "key")}
    write_dataset(tmp_path / "ds", schema, {"train": [[row], []], "val": [[]]})
    assert quietly(tmp_path / "ds", tmp_path / "out", to=to).num_examples == 1


def test_selected_features_are_exported_alone(every, tmp_path):
    import pyarrow.parquet as pq

    quietly(every, tmp_path / "out", to="parquet", select=["boxes", "label"])
    names = pq.read_schema(tmp_path / "out" / "data" / "train-00000-of-00003.parquet").names
    assert names == ["label", "boxes"]
    with raises(InputError, "export-other"):
        quietly(every, tmp_path / "out", to="parquet")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"to": "hdf5"}, "export-format-unknown"),
        ({"directory": "gs://bucket/x"}, "url-not-supported"),
        ({"select": "image"}, "not-strings"),
        ({"select": ["imag"]}, "select-unknown"),
        ({"select": []}, "select-unknown"),
    ],
)
def test_invalid_arguments_are_named(every, tmp_path, given, code):
    with raises(OptionsError, code):
        quietly(every, **{"directory": tmp_path / "out", "to": "webdataset", **given})
    assert not (tmp_path / "out").exists()


def test_a_directory_with_other_files_is_left_alone(every, tmp_path, contents):
    (tmp_path / "mine.txt").write_text("mine")
    with raises(InputError, "export-not-empty"):
        quietly(every, tmp_path, to="webdataset")
    assert contents(tmp_path).keys() >= {"mine.txt"}
    with raises(InputError, "export-not-empty"):
        quietly(every, every, to="webdataset")


def test_an_export_to_another_format_is_not_mixed_with_it(every, tmp_path, monkeypatch):
    monkeypatch.setattr("tfshards.prep.exporting.export.write_part", stopped)
    with pytest.raises(KeyboardInterrupt):
        quietly(every, tmp_path / "out", to="webdataset")
    monkeypatch.undo()
    with raises(InputError, "export-other", get="webdataset", get2="every"):
        quietly(every, tmp_path / "out", to="parquet")


def stopped(*_):
    raise KeyboardInterrupt


def test_two_exports_do_not_write_to_one_directory(every, tmp_path):
    (tmp_path / "out").mkdir()
    descriptor = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with raises(InputError, "export-running"):
        quietly(every, tmp_path / "out", to="webdataset")
    os.close(descriptor)


def stopped_before_the_commit(every, out, monkeypatch):
    """Write all parts of an export without its commit, and return the lines of its journal."""
    with monkeypatch.context() as patched:
        patched.setattr("tfshards.prep.exporting.webdataset.labels_text", stopped)
        with pytest.raises(KeyboardInterrupt):
            quietly(every, out, to="webdataset")
    (head,) = (out / ".export" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    return [head, *(path.read_bytes() for path in sorted(out.glob(".build/*/first/*.done")))]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"[]\n",
        b"null\n",
        b'{"part": 1, "mark"',
        b'{"part": 1, "mark": "x", "files": 3}\n',
        b'{"part": 1, "mark": "x", "files": [["a", "b", "c"]]}\n',
        b'{"part": "x", "mark": "x", "files": []}\n',
        b'{"part": 1, "mark": "x", "files": [["../mine.txt", 4, ""]]}\n',
        b'{"part": 1, "mark": "x", "files": [["/TMP/mine.txt", 4, ""]]}\n',
    ],
)
def test_a_damaged_line_only_means_that_its_part_is_written_again(every, tmp_path, monkeypatch, damage):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    head, *parts = stopped_before_the_commit(every, tmp_path / "out", monkeypatch)
    parts = [part for part in parts if b'"part": 1,' not in part]
    shutil.rmtree(tmp_path / "out" / ".build")
    journal = tmp_path / "out" / ".export" / "journal.jsonl"
    journal.write_bytes(b"".join([head, *parts, damage.replace(b"TMP", os.fsencode(tmp_path)[1:])]))
    made = quietly(every, tmp_path / "out", to="webdataset")
    assert (made.num_kept, mine.read_text()) == (3, "mine")
    # and of a finished export the commit
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:-1], b'{"files": 3}']))
    assert quietly(every, tmp_path / "out", to="webdataset").num_kept == 4
    assert journal.read_bytes() == b"".join(lines)


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"files": 3}'])
def test_a_damaged_head_is_another_export(every, tmp_path, damage):
    quietly(every, tmp_path / "out", to="webdataset")
    (tmp_path / "out" / ".export" / "journal.jsonl").write_bytes(damage)
    with raises(InputError, "export-other"):
        quietly(every, tmp_path / "out", to="webdataset")


def test_the_command_prints_what_was_written(every, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["export", str(every), out, "--to", "webdataset", "--select", "label,key"]) == 0
    assert capsys.readouterr().out == (f"webdataset: 9 examples, 5 files, {sized(Path(out))} in {out}\n")
    assert main(["export", str(every), out, "--to", "webdataset", "--select", "label,key", "--json"]) == 0
    printed, status = capsys.readouterr()
    assert json.loads(printed)["num_kept"] == 4
    assert status == f"{out} holds this export already, and its files are unchanged\n"


def sized(folder):
    """Return the size of the files of an export as the command prints it."""
    return size(sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and ".export" not in p.parts))


def test_large_parts_have_several_row_groups(tmp_path, monkeypatch):
    photos = write_images(tmp_path / "photos", range(40))
    build_quietly(ImageFolder(photos), tmp_path / "ds", shards=1)
    monkeypatch.setattr(parquet, "_GROUP_ROWS", 15)
    (file, _) = quietly(tmp_path / "ds", tmp_path / "rows", to="parquet").files
    assert pq.ParquetFile(tmp_path / "rows" / file).num_row_groups == 3


def test_a_record_that_is_not_what_the_schema_says_ends_the_export(tmp_path):
    manifest = write_dataset(
        tmp_path / "ds", Schema((Feature("x", "int", "int64"),)), {"train": [[{"x": 1}]]}
    )
    other = Schema((Feature("y", "int", "int64"),))
    write_manifest(replace(manifest, schema=other), tmp_path / "ds")
    with pytest.raises(RecordError, match=r"record 0 at byte 0: the feature 'x' is not in the schema"):
        quietly(tmp_path / "ds", tmp_path / "out", to="webdataset")


def test_files_that_are_gone_are_written_again_and_the_dataset_stays_as_it_is(tmp_path, contents):
    write_everything(tmp_path / "ds")
    dataset = contents(tmp_path / "ds")
    made = quietly(tmp_path / "ds", tmp_path / "out", to="webdataset")
    before = contents(tmp_path / "out")
    for name in (next(iter(made.files)), list(made.files)[-1]):
        (tmp_path / "out" / name).unlink()
        quietly(tmp_path / "ds", tmp_path / "out", to="webdataset")
        assert contents(tmp_path / "out") == before
    assert contents(tmp_path / "ds") == dataset
