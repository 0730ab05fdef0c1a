"""Exports are read back by the real package of each format, value for value."""

from __future__ import annotations

import io
import json
import os
from functools import partial

import numpy as np
import pytest
from PIL import Image

from tests.prep.derived import build_quietly, write_images
from tests.prep.exported import CLASSES, EVERYTHING, example, write_dataset, write_everything
from tfshards.prep import ImageFolder
from tfshards.prep.exporting.export import export
from tfshards.prep.exporting.request import array_of
from tfshards.prep.exporting.table import FORMATS
from tfshards.schemas import Feature, FormatError, Schema

export_quietly = partial(export, log=lambda _: None)


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    """A dataset with features of every kind, and the examples of its split train."""
    root = tmp_path_factory.mktemp("every") / "every"
    return root, write_everything(root)


def plain(feature, value):
    """Return a value as readers return it: an array of numbers, bytes, or a list of bytes."""
    if feature.is_encoded or feature.kind == "bytes":
        return value
    return array_of(feature, value)


def same(feature, found, value):
    """Return whether a value that a reader returned has the dtype, shape and bits of the record's."""
    wanted = plain(feature, value)
    if not isinstance(wanted, np.ndarray):
        return found == wanted
    found = np.asarray(found)
    dtype = found.dtype if found.dtype == wanted.dtype else f"{found.dtype} instead of {wanted.dtype}"
    return (dtype, found.shape, found.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())


def test_array_record_holds_the_records_and_tfds_reads_them(every, tmp_path):
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    from tfshards.prep.records.frames import read_records
    from tfshards.schemas import read_manifest

    root, _ = every
    export_quietly(root, tmp_path / "out", to="array_record")
    files = sorted(map(str, (tmp_path / "out").glob("every-train.array_record-*")))
    assert len(files) == 3
    with ArrayRecordDataSource(files) as source:
        found = source.__getitems__(range(len(source)))
    shards = read_manifest(root).splits["train"].shards
    assert found == [data for shard in shards for _, data in read_records(root / shard.path, "none")]


def test_tfds_reads_examples_of_an_array_record_by_number(tmp_path):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow_datasets as tfds

    build_quietly(ImageFolder(write_images(tmp_path / "photos", range(5))), tmp_path / "ds", shards=2)
    export_quietly(tmp_path / "ds", tmp_path / "out", to="array_record")
    builder = tfds.builder_from_directory(tmp_path / "out")
    found = builder.as_data_source("train")
    assert builder.info.features["label"].names == ["cat", "dog"]
    keys = {found[number]["key"] for number in range(len(found))}
    assert keys == {f"{('cat', 'dog')[number % 2]}/{number:03d}.png".encode() for number in range(5)}
    assert found[3]["image"].shape[2] == 3


def test_webdataset_reads_every_value(every, tmp_path):
    import webdataset

    root, examples = every
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


def test_hugging_face_datasets_reads_the_parquet_export(every, tmp_path, hugging_face):
    import datasets

    root, examples = every
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


def test_pyarrow_reads_the_types_of_parquet(every, tmp_path):
    import pyarrow.parquet as pq

    export_quietly(every[0], tmp_path / "out", to="parquet")
    schema = pq.read_schema(tmp_path / "out" / "data" / "train-00000-of-00003.parquet")
    assert {
        name: str(schema.field(name).type) for name in ("grid", "boxes", "half", "big", "none", "key")
    } == {
        "grid": "fixed_size_list<element: fixed_size_list<element: uint16>[3]>[2]",
        "boxes": "list<element: fixed_size_list<element: float>[4]>",
        "half": "fixed_size_list<element: halffloat>[3]",
        "big": "uint64",
        "none": "fixed_size_list<element: list<element: int32>>[2]",
        "key": "string",
    }


def test_a_folder_holds_the_images_as_files_and_everything_else_as_json(every, tmp_path, hugging_face):
    root, examples = every
    export_quietly(root, tmp_path / "out", to="folder")
    lines = (tmp_path / "out" / "train" / "metadata.jsonl").read_text("ascii").splitlines()
    rows = [json.loads(line) for line in lines]
    for row, values in zip(rows, examples, strict=True):
        folder = "no-class" if row["label"] is None else row["label"]
        assert row["file_name"].startswith(f"{folder}/photos/ä ")
        assert (tmp_path / "out" / "train" / row["file_name"]).read_bytes() == values["image"]
        assert (tmp_path / "out" / "train" / row["mask_file_name"]).read_bytes() == values["mask"]
        assert row["key"].encode() == values["key"]
        assert row["label"] == (None if values["label"] < 0 else CLASSES[values["label"]])
        assert (
            np.array(row["boxes"], "f4").tobytes() == array_of(EVERYTHING["boxes"], values["boxes"]).tobytes()
        )
        assert row["big"] == int.from_bytes(values["big"], "little")
    # the suffix is that of the content, where that of the key is another
    assert [row["file_name"].rpartition("/")[2] for row in rows[:3]] == [
        "ä 0.jpeg",
        "ä 1.jpeg.png",
        "ä 2.jpeg.webp",
    ]


def test_hugging_face_datasets_reads_a_folder_with_classes(tmp_path, hugging_face):
    photos = write_images(tmp_path / "photos", range(6))
    build_quietly(ImageFolder(photos), tmp_path / "ds", shards=2)
    export_quietly(tmp_path / "ds", tmp_path / "out", to="folder")
    found = hugging_face("imagefolder", data_dir=str(tmp_path / "out"))["train"]
    assert {(row["key"], row["label"], row["image"].size[0]) for row in found} == {
        (f"{name}/{number:03d}.png", name, 4 + number % 5) for number, name in enumerate(("cat", "dog") * 3)
    }
    # and building it again gives the same images under the same keys
    again = build_quietly(ImageFolder(tmp_path / "out"), tmp_path / "again", shards=1)
    assert again.splits["train"].label_counts == {"cat": 3, "dog": 3}


def test_torchvision_layout(tmp_path):
    build_quietly(ImageFolder(write_images(tmp_path / "photos", range(4))), tmp_path / "ds", shards=1)
    export_quietly(tmp_path / "ds", tmp_path / "out", to="folder")
    found = sorted(
        path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.png")
    )
    assert found == [f"train/{('cat', 'dog')[number % 2]}/{number:03d}.png" for number in (0, 2, 1, 3)]


REFUSED = [
    ("parquet", Feature("x", "raw", "complex64"), "x: is complex64, which Parquet does not have"),
    ("parquet", Feature("x", "float", "bfloat16", (2,)), "x: is bfloat16, which Parquet does not have"),
    ("webdataset", Feature("x", "raw", "bfloat16"), "x: is bfloat16: it has a dtype that NumPy files do not"),
    ("folder", Feature("x", "raw", "complex64"), "x: is complex64, which JSON does not have"),
    ("folder", Feature("file_name", "bytes", "bytes"), "file_name: is a name that metadata.jsonl uses"),
    ("folder", Feature("train", "mask", "uint8", (None, None, 1)), "train: cannot name a folder next to"),
    (
        "webdataset",
        Feature("Small", "int", "int8"),
        "Small: has the same file name as another feature, 'small.npy'",
    ),
]


@pytest.mark.parametrize(("to", "feature", "message"), REFUSED)
def test_a_feature_that_a_format_cannot_hold_is_refused_by_name(to, feature, message, tmp_path):
    image = EVERYTHING["image"]
    others = (Feature("small", "int", "int8"),) if feature.name == "Small" else ()
    write_dataset(tmp_path / "ds", Schema((image, feature, *others)), {"train": [[]]})
    with pytest.raises(FormatError, match=rf"to='{to}' cannot hold all of .*(?s:.)*  {message}"):
        export_quietly(tmp_path / "ds", tmp_path / "out", to=to)
    # what is left can be exported
    made = export_quietly(tmp_path / "ds", tmp_path / "out", to=to, select=["image"])
    assert made.num_examples == 0


@pytest.mark.parametrize("to", ["webdataset", "array_record"])
def test_complex_and_deep_values_are_kept(to, tmp_path):
    schema = Schema(
        (Feature("x", "raw", "complex64", (2,)), Feature("deep", "image", "uint16", (None, None, 1)))
    )
    file = io.BytesIO()
    Image.fromarray(np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000).save(file, "PNG")
    values = {"x": np.array([1 + 2j, 3], "<c8").tobytes(), "deep": file.getvalue()}
    write_dataset(tmp_path / "ds", schema, {"train": [[values]]})
    assert export_quietly(tmp_path / "ds", tmp_path / "out", to=to).num_examples == 1


@pytest.mark.parametrize("to", FORMATS)
def test_byte_strings_that_are_not_utf_8_are_kept(to, tmp_path):
    features = tuple(each for each in EVERYTHING.features if each.name in ("image", "key", "caption"))
    rows = [{name: example(number)[name] for name in ("image", "key", "caption")} for number in range(4)]
    rows[1]["key"], rows[3]["caption"] = b"\xff/x.png", b"\xfe\xfd"
    write_dataset(tmp_path / "ds", Schema(features), {"train": [rows[:2], rows[2:]]})
    lines = []
    export(tmp_path / "ds", tmp_path / "out", to=to, log=lines.append)
    named = {line.split("'")[1] for line in lines if "are not UTF-8" in line}
    # the same command finds the export as it is
    again = export(tmp_path / "ds", tmp_path / "out", to=to, log=lines.append)
    assert again.num_kept == 2
    assert lines[-1].endswith("holds this export already, and its files are unchanged")
    assert named == {
        "array_record": set(),
        "folder": set(),
        "webdataset": {"caption"},
    }.get(to, {"key", "caption"})


@pytest.mark.parametrize("to", ["parquet", "array_record", "webdataset"])
def test_values_that_are_not_finite_are_kept(to, tmp_path):
    schema = Schema((Feature("x", "float", "float32", (3,)), Feature("y", "raw", "float64")))
    values = {"x": [float("nan"), float("inf"), -0.0], "y": np.array(-np.inf, "<f8").tobytes()}
    write_dataset(tmp_path / "ds", schema, {"train": [[values]]})
    assert export_quietly(tmp_path / "ds", tmp_path / "out", to=to).num_examples == 1
