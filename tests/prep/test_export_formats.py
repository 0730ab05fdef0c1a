"""Exports are read back by the real package of each format, value for value."""

import io
import json
from functools import partial

import numpy as np
import pytest
from PIL import Image

from tests.errors import raises
from tests.prep.derived import build_quietly, write_images
from tests.prep.exported import CLASSES, EVERYTHING, example, write_dataset, write_everything
from tfshards.prep import ImageFolder
from tfshards.prep.exporting.export import export
from tfshards.prep.exporting.format import suffix_of
from tfshards.prep.exporting.request import array_of
from tfshards.prep.exporting.table import FORMATS
from tfshards.prep.records.frames import read_records
from tfshards.schemas import Feature, FormatError, InputError, Schema, read_manifest

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


def test_array_record_holds_the_records_and_tfds_reads_examples_by_number(every, tmp_path):
    import tensorflow_datasets as tfds
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    root, _ = every
    export_quietly(root, tmp_path / "out", to="array_record")
    files = sorted(map(str, (tmp_path / "out").glob("every-train.array_record-*")))
    assert len(files) == 3
    with ArrayRecordDataSource(files) as source:
        found = source.__getitems__(range(len(source)))
    shards = read_manifest(root).splits["train"].shards
    assert found == [data for shard in shards for _, data in read_records(root / shard.path, "none")]
    build_quietly(ImageFolder(write_images(tmp_path / "photos", range(5))), tmp_path / "ds", shards=2)
    export_quietly(tmp_path / "ds", tmp_path / "chosen", to="array_record", select=["image", "key"])
    source = tfds.builder_from_directory(tmp_path / "chosen").as_data_source("train")
    keys = {source[number]["key"] for number in range(len(source))}
    assert keys == {f"{('cat', 'dog')[number % 2]}/{number:03d}.png".encode() for number in range(5)}
    assert source[3]["image"].shape[2] == 3


def test_a_format_without_its_package_is_refused_before_anything_is_written(every, tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS, "array_record", FORMATS["array_record"]._replace(package="no_such_package"))
    with raises(InputError, "export-extra-missing", to="array_record", package="no_such_package"):
        export_quietly(every[0], tmp_path / "out", to="array_record")
    assert not (tmp_path / "out").exists()


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


IMAGE, KEY = EVERYTHING["image"], EVERYTHING["key"]
REFUSED = [
    ("parquet", Feature("x", "raw", "complex64"), "x: is complex64, which Parquet does not have"),
    ("webdataset", Feature("x", "raw", "bfloat16"), "x: is bfloat16: it has a dtype that NumPy files do not"),
    ("folder", Feature("x", "raw", "complex64"), "x: is complex64, which JSON does not have"),
    ("folder", Feature("file_name", "bytes", "bytes"), "file_name: is a name that metadata.jsonl uses"),
    ("folder", Feature("train", "mask", "uint8", (None, None, 1)), "train: cannot name a folder next to"),
    ("folder", Feature("w", "bytes", "bytes", (2, 2)), "w: is an array of byte strings"),
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


def test_classes_that_cannot_name_folders_and_datasets_without_images_are_refused(tmp_path):
    for number, (schema, message) in enumerate(
        (
            (Schema((Feature("x", "int", "int64"),)), "features: hold no image"),
            (
                Schema((IMAGE, EVERYTHING["label"]), ("a/b", "..", "no-class", "", "metadata.jsonl")),
                r"class_names\.a/b: cannot name a folder\n  class_names\.\.\.: cannot",
            ),
        )
    ):
        write_dataset(tmp_path / f"{number}", schema, {"train": [[]]})
        with pytest.raises(FormatError, match=message):
            export_quietly(tmp_path / f"{number}", tmp_path / "out", to="folder")


def test_splits_whose_names_datasets_cannot_tell_apart_are_refused(tmp_path):
    write_dataset(tmp_path / "ds", Schema((KEY,)), {"a-b": [[]], "a_b": [[]], "c-d": [[]]})
    message = r"2 problems\n  splits\.a-b: and another split are both 'a_b' for data"
    with pytest.raises(FormatError, match=message):
        export_quietly(tmp_path / "ds", tmp_path / "out", to="parquet")


def test_keys_that_are_no_safe_paths_become_numbers(tmp_path):
    unsafe = [b"../../x.png", b"/etc/x.png", b"a//b", b"", b".hidden", b"metadata.jsonl/x.png", b"x" * 300]
    rows = [{"image": example(1)["image"], "key": key} for key in (*unsafe, b"fine/\xff.png")]
    write_dataset(tmp_path / "ds", Schema((IMAGE, KEY)), {"train": [rows]})
    made = export_quietly(tmp_path / "ds", tmp_path / "out", to="folder")
    numbered = [f"train/{number:09d}.png" for number in range(len(unsafe))]
    assert sorted(made.files) == sorted([*numbered, "train/fine/\udcff.png", "train/metadata.jsonl"])


@pytest.mark.parametrize("shards", [1, 2])
def test_two_keys_with_one_path_are_refused(tmp_path, shards):
    rows = [{"image": example(1)["image"], "key": key} for key in (b"train/x.png", b"x.png")]
    parts = [rows] if shards == 1 else [[row] for row in rows]
    write_dataset(tmp_path / "ds", Schema((IMAGE, KEY)), {"train": parts})
    with raises(InputError, "export-same-path", path="train/x.png"):
        export_quietly(tmp_path / "ds", tmp_path / "out", to="folder")


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
    features = (
        Feature("x", "float", "float32", (3,)),
        Feature("y", "raw", "float64"),
        Feature("deep", "image", "uint16", (None, None, 1)),
        Feature("words", "bytes", "bytes", (2, 2)),
    )
    if to != "parquet":
        features = (*features, Feature("z", "raw", "complex64", (2,)))
        values["z"] = np.array([1 + 2j, 3], "<c8").tobytes()
    write_dataset(tmp_path / "ds", Schema(features), {"train": [[values]]})
    assert export_quietly(tmp_path / "ds", tmp_path / "out", to=to).num_examples == 1


def test_values_that_json_lacks_are_refused_by_example_and_name(tmp_path):
    schema = Schema((IMAGE, Feature("x", "float", "float32")))
    write_dataset(tmp_path / "ds", schema, {"train": [[{"image": example(1)["image"], "x": float("nan")}]]})
    with raises(InputError, "export-not-finite", number=0, feature="x"):
        export_quietly(tmp_path / "ds", tmp_path / "out", to="folder")


@pytest.mark.parametrize("to", FORMATS)
def test_byte_strings_that_are_not_utf_8_are_kept(to, tmp_path):
    features = (IMAGE, KEY, EVERYTHING["caption"])
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
    expected = {
        "array_record": set(),
        "folder": set(),
        "webdataset": {"caption"},
        "parquet": {"key", "caption"},
    }
    assert named == expected[to]


def test_lists_of_byte_strings_that_are_not_utf_8_are_refused(tmp_path):
    schema = Schema((Feature("x", "bytes", "bytes", (None,)),))
    write_dataset(tmp_path / "ds", schema, {"train": [[{"x": [b"a", b"\xff"]}]]})
    with pytest.raises(FormatError, match="x: is a list of byte strings, of which some are not UTF-8"):
        export_quietly(tmp_path / "ds", tmp_path / "out", to="webdataset")
    assert export_quietly(tmp_path / "ds", tmp_path / "parquet", to="parquet").num_examples == 1


@pytest.mark.parametrize(
    ("head", "suffix"),
    [(b"\xff\xd8\xff\xe0", "jpg"), (b"II*\0", "tif"), (b"BM\0\0", "bmp"), (b"what", "bin")],
)
def test_the_suffix_of_an_image_follows_from_its_content(head, suffix):
    assert suffix_of(head) == suffix
