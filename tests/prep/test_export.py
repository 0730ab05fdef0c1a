"""Exports: read back by the packages of their formats, resumed after a stop, and refused by name."""

import fcntl
import io
import itertools
import json
import os
import shutil
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.prep.exported import (
    CLASSES,
    EVERYTHING,
    example,
    record,
    write_dataset,
    write_everything,
    write_records,
)
from tfshards.prep import export
from tfshards.prep.exporting import export as module
from tfshards.schemas import (
    Feature,
    FormatError,
    InputError,
    Schema,
    TfshardsError,
    read_manifest,
)

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
        if len(written) >= 2:
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


def test_selected_features_are_exported_alone(every, tmp_path):
    quietly(every, tmp_path / "out", to="parquet", select=["boxes", "label"])
    names = pq.read_schema(tmp_path / "out" / "data" / "train-00000-of-00003.parquet").names
    assert names == ["label", "boxes"]
    with pytest.raises(InputError, match="does not hold this export"):
        quietly(every, tmp_path / "out", to="parquet")


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


# Exports are read back by the real package of each format, value for value


export_quietly = partial(export)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A dataset with features of every kind, and the examples of its split train."""
    root = tmp_path_factory.mktemp("every") / "every"
    return root, write_everything(root)


def array_of(feature, value):
    """Return numbers as an array of the schema's dtype and shape."""
    dtype = np.dtype(feature.dtype)
    if feature.kind == "raw":
        return np.frombuffer(value, dtype).reshape(feature.shape)
    return np.array(value, dtype).reshape([-1 if size is None else size for size in feature.shape])


def same(feature, found, value):
    """Return whether a value that a reader returned has the dtype, shape and bits of the record's."""
    wanted, found = array_of(feature, value), np.asarray(found)
    return (found.dtype, found.shape, found.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())


def test_webdataset_reads_every_value(everything, tmp_path):
    import webdataset

    root, examples = everything
    export_quietly(root, tmp_path / "out", to="webdataset")
    urls = str(tmp_path / "out" / "every-train-{000000..000002}.tar")
    found = list(webdataset.WebDataset(urls, shardshuffle=False).decode())
    raw = list(webdataset.WebDataset(urls, shardshuffle=False))
    assert len(found) == len(examples)
    suffixes = ("jpg", "png", "webp")
    for number, (sample, undecoded, values) in enumerate(zip(found, raw, examples, strict=True)):
        assert sample["__key__"] == f"{number:09d}"
        assert undecoded[suffixes[number % 3]] == values["image"]
        assert undecoded["mask.png"] == values["mask"]
        assert (sample["cls"], sample["key"]) == (values["label"], values["key"])
        assert sample["caption.txt"].encode() == values["caption"]
        assert [word.encode() for word in sample["words.json"]] == values["words"]
        numeric = [each for each in EVERYTHING.features if f"{each.name}.npy" in sample]
        assert len(numeric) == 10
        assert all(same(each, sample[f"{each.name}.npy"], values[each.name]) for each in numeric)
    assert (tmp_path / "out" / "labels.txt").read_text("utf-8").splitlines() == list(CLASSES)


@pytest.fixture
def hugging_face(tmp_path, monkeypatch):
    """``datasets`` without a network, and with a cache of its own."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    datasets.disable_progress_bars()
    return partial(datasets.load_dataset, cache_dir=str(tmp_path / "cache"))


def test_hugging_face_datasets_reads_the_parquet_export(everything, tmp_path, hugging_face):
    import datasets

    root, examples = everything
    export_quietly(root, tmp_path / "out", to="parquet")
    found = hugging_face(str(tmp_path / "out"))
    assert {name: len(split) for name, split in found.items()} == {"train": 7, "val": 2}
    features = found["train"].features
    assert features["label"].names == list(CLASSES)
    assert isinstance(features["mask"], datasets.Image)
    undecoded = found["train"]
    for name in ("image", "mask"):
        undecoded = undecoded.cast_column(name, datasets.Image(decode=False))
    for row, decoded, values in zip(undecoded, found["train"], examples, strict=True):
        assert decoded["image"].size == Image.open(io.BytesIO(values["image"])).size
        assert (row["image"]["bytes"], row["mask"]["bytes"]) == (values["image"], values["mask"])
        assert (row["key"], row["caption"]) == (values["key"].decode(), values["caption"].decode())
        assert [word.encode() for word in row["words"]] == values["words"]
        for feature in EVERYTHING.features:
            if not feature.is_encoded and feature.kind != "bytes":
                wanted = array_of(feature, values[feature.name])
                array = np.array(row[feature.name], wanted.dtype).reshape(wanted.shape)
                assert array.tobytes() == wanted.tobytes(), feature.name


IMAGE, KEY = EVERYTHING["image"], EVERYTHING["key"]


REFUSED = [
    ("parquet", Feature("x", "raw", "complex64"), "x: is complex64, which Parquet does not have"),
    ("webdataset", Feature("x", "raw", "bfloat16"), "x: is bfloat16: it has a dtype that NumPy files do not"),
    ("webdataset", Feature("Small", "int", "int8"), "Small: has the same file name as another feature"),
]


@pytest.mark.parametrize(("to", "feature", "message"), REFUSED)
def test_a_feature_that_a_format_cannot_hold_is_refused_by_name(to, feature, message, tmp_path):
    others = (Feature("small", "int", "int8"),) if feature.name == "Small" else ()
    write_dataset(tmp_path / "ds", Schema((IMAGE, feature, *others)), {"train": [[]]})
    with pytest.raises(FormatError, match=rf"to='{to}' cannot hold all of .*(?s:.)*  {message}"):
        export_quietly(tmp_path / "ds", tmp_path / "out", to=to)
    # what is left can be exported
    made = export_quietly(tmp_path / "ds", tmp_path / "out", to=to, select=["image"])
    assert made.num_examples == 0


def read(directory, to):
    """Return the examples of an export as pyarrow, or WebDataset without decoding, reads them."""
    if to == "parquet":
        paths = sorted((directory / "data").glob("*.parquet"))
        return [row for path in paths for row in pq.read_table(path).to_pylist()]
    import webdataset

    paths = sorted(map(str, directory.glob("*.tar")))
    return list(webdataset.WebDataset(paths, shardshuffle=False))


@pytest.mark.parametrize("to", ["webdataset", "parquet"])
def test_values_that_are_not_finite_and_arrays_of_any_kind_are_kept(to, tmp_path):
    deep = io.BytesIO()
    Image.fromarray(np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000).save(deep, "PNG")
    values = {
        "x": [float("nan"), float("inf"), -0.0],
        "y": np.array(-np.inf, "<f8").tobytes(),
        "deep": deep.getvalue(),
        "words": [b"a", b"", b"\xc3\xa9", b"d"],
    }
    features = (Feature("x", "float", "float32", (3,)), Feature("y", "raw", "float64"))
    deep_feature = Feature("deep", "image", "uint16", (None, None, 1))
    features += (deep_feature, Feature("words", "bytes", "bytes", (2, 2)))
    if to != "parquet":
        features = (*features, Feature("z", "raw", "complex64", (2,)))
        values["z"] = np.array([1 + 2j, 3], "<c8").tobytes()
    write_dataset(tmp_path / "ds", Schema(features), {"train": [[values]]})
    assert export_quietly(tmp_path / "ds", tmp_path / "out", to=to).num_examples == 1
    (row,) = read(tmp_path / "out", to)
    for feature in features:
        value = values[feature.name]
        if feature.is_encoded:
            assert (row["deep"]["bytes"] if to == "parquet" else row["png"]) == value
        elif feature.kind == "bytes":
            words = json.loads(row["words.json"]) if to == "webdataset" else [*itertools.chain(*row["words"])]
            assert [word.encode() for word in words] == value
        elif to == "webdataset":
            assert same(feature, np.load(io.BytesIO(row[f"{feature.name}.npy"])), value)
        else:
            assert same(feature, np.array(row[feature.name], feature.dtype), value)


@pytest.mark.parametrize("to", ["webdataset", "parquet"])
def test_byte_strings_that_are_not_utf_8_are_refused(to, tmp_path):
    features = (IMAGE, KEY, EVERYTHING["caption"])
    rows = [{name: example(number)[name] for name in ("image", "key", "caption")} for number in range(4)]
    rows[1]["key"], rows[3]["caption"] = b"\xff/x.png", b"\xfe\xfd"
    write_dataset(tmp_path / "ds", Schema(features), {"train": [rows]})
    with pytest.raises(InputError, match="'key' of record 1 is not UTF-8"):
        export_quietly(tmp_path / "ds", tmp_path / "out", to=to)
    export_quietly(tmp_path / "ds", tmp_path / "given", to=to, select=["image"])
