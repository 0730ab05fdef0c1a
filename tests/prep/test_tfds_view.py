"""The TFDS view, read back by TFDS itself: shards written by TensorFlow, files from the manifest alone."""

import glob
import json
import logging
import os
import re
import shutil
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from PIL import Image

from tests.pictures import image_file
from tfshards.prep.records.shard_file import scan_shard
from tfshards.prep.views.table import foreign_views, refresh_views, view_files, view_problems, with_views
from tfshards.prep.views.tfds import FEATURES_NAME, INFO_NAME, tfds_files, tfds_note, tfds_problems
from tfshards.schemas import Feature, Manifest, Problem, Schema, Shard, Split, Totals
from tfshards.schemas.schema import KINDS

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tensorflow_datasets as tfds

logging.getLogger("absl").setLevel(logging.ERROR)

BUILD_ID = "3f9a2c1b"
DIGEST = "sha256:" + "0" * 64
FLOATS = [1.5, -0.0, float("inf"), float("nan"), 0.1, -3.0]


def shard(path: str) -> Shard:
    """Return a shard of one record without a file."""
    return Shard(path, 1, 100, 100, DIGEST, DIGEST, "0" * 16, "0" * 16)


def dataset(root, schema, splits, name="photos") -> Manifest:
    """Write the shards of ``splits`` with TensorFlow, and the view; return the manifest."""
    made = {}
    for split, shards in splits.items():
        files = []
        for index, examples in enumerate(shards):
            path = f"{name}-{split}-{BUILD_ID}.tfrecord-{index:05d}-of-{len(shards):05d}"
            with tf.io.TFRecordWriter(str(root / path)) as writer:
                for example in examples:
                    writer.write(record(schema, example))
            files.append(scan_shard(root, path, "none")[0])
        made[split] = Split(tuple(files))
    number = sum(split.num_examples for split in made.values())
    manifest = Manifest(name, BUILD_ID, schema, made, Totals(entries=number, accepted=number))
    assert write_view(manifest, root) == []
    return manifest


def write_view(manifest: Manifest, root, *earlier: Manifest) -> list[Problem]:
    """Write the views of a dataset, and return why TFDS cannot read it."""
    refresh_views(with_views(manifest), root, [*map(with_views, earlier)])
    return tfds_problems(manifest)


def record(schema: Schema, example: dict) -> bytes:
    return tf.train.Example(
        features=tf.train.Features(feature={f.name: on_wire(f, example[f.name]) for f in schema.features})
    ).SerializeToString()


def on_wire(feature: Feature, value: object) -> tf.train.Feature:
    if feature.kind == "raw":
        value = np.asarray(value).tobytes()
    if feature.wire == "bytes":
        values = value if isinstance(value, list) else [value]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if feature.wire == "int64":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=np.ravel(value).astype(np.int64)))
    return tf.train.Feature(float_list=tf.train.FloatList(value=np.ravel(value).astype(np.float32)))


def opened(root, split: str = "train") -> list[dict]:
    builder = tfds.builder_from_directory(root)
    return [
        {n: np.asarray(v) for n, v in e.items()} for e in builder.as_dataset(split=split).as_numpy_iterator()
    ]


def values_of(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    number = int(np.prod(shape))
    np_dtype = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    if dtype == "bool":
        values = np.arange(number) % 2 == 0
    elif "int" in dtype:
        limits = np.iinfo(np_dtype)
        values = np.array([limits.max, limits.min, 1, limits.max - 1, 0, 7][:number], dtype=np_dtype)
    else:
        values = np.array(FLOATS[:number]).astype(np_dtype)
    return values.astype(np_dtype).reshape(shape)


NUMERIC = [
    (kind, dtype)
    for kind in ("label", "int", "float", "raw")
    for dtype in sorted(KINDS[kind].dtypes)
    if (kind, dtype) != ("raw", "uint32")
]
SHAPES = {"scalar": (), "vector": (3,), "matrix": (2, 3), "empty": (2, 0)}


def test_every_dtype_of_every_kind_is_read_exactly_in_every_shape(tmp_path):
    features, examples = [], [{}, {}]
    for kind, dtype in NUMERIC:
        for name, shape in SHAPES.items():
            features.append(Feature(f"{kind}_{dtype}_{name}", kind, dtype, shape))
            for example in examples:
                example[features[-1].name] = values_of(dtype, shape)
        if KINDS[kind].lists:
            features.append(Feature(f"{kind}_{dtype}_list", kind, dtype, (None,)))
            for example, length in zip(examples, (0, 6), strict=True):
                example[features[-1].name] = values_of(dtype, (length,))
    dataset(tmp_path, Schema(tuple(features)), {"train": [examples]})
    for found, wanted in zip(opened(tmp_path), examples, strict=True):
        for name, value in wanted.items():
            got = found[name]
            assert (got.dtype, got.shape, got.tobytes()) == (value.dtype, value.shape, value.tobytes()), name


def test_byte_strings_that_are_not_text_are_read_unchanged(tmp_path):
    schema = Schema(
        (
            Feature("key", "bytes", "bytes"),
            Feature("parts", "bytes", "bytes", (2,)),
            Feature("words", "bytes", "bytes", (None,)),
            Feature("tags", "label", "int64", (None,)),
        ),
        ("a", "b"),
    )
    example = {"key": b"caf\xe9/\xff.jpg", "parts": [b"", b"\x80\0"], "words": [b"", b"c"], "tags": [1, 0]}
    dataset(tmp_path, schema, {"train": [[example, {**example, "words": [], "tags": []}]]})
    one, other = opened(tmp_path)
    assert {name: value.tolist() for name, value in one.items()} == example
    assert (other["words"].tolist(), other["tags"].tolist()) == ([], [])
    # with the data sources of TFDS, without TensorFlow
    builder = tfds.builder_from_directory(tmp_path)
    without_tf = builder.info.features.deserialize_example_np(record(schema, example))
    assert without_tf["key"] == example["key"]


@pytest.mark.parametrize(
    ("channels", "encoded"),
    [
        pytest.param(3, [("RGB", "JPEG"), ("L", "JPEG"), ("RGB", "PNG"), ("P", "PNG")], id="color"),
        pytest.param(1, [("L", "JPEG"), ("L", "PNG"), ("RGB", "JPEG")], id="grey"),
        pytest.param(4, [("RGBA", "PNG"), ("RGB", "PNG")], id="alpha"),
        pytest.param(None, [("RGBA", "PNG"), ("RGB", "JPEG"), ("L", "PNG")], id="unknown"),
    ],
)
def test_images_of_either_encoding_have_the_channels_of_the_schema(channels, encoded, tmp_path):
    schema = Schema((Feature("image", "image", "uint8", (None, None, channels)),))
    files = [encode(mode, file_format) for mode, file_format in encoded]
    dataset(tmp_path, schema, {"train": [[{"image": file} for file in files]]})
    for example, file in zip(opened(tmp_path), files, strict=True):
        np.testing.assert_array_equal(example["image"], tf.io.decode_image(file, channels=channels or 0))


def encode(mode: str, file_format: str) -> bytes:
    pixels = np.arange(5 * 7 * 4, dtype=np.uint8).reshape(5, 7, 4)
    return image_file(Image.fromarray(pixels, "RGBA").convert("RGB").convert(mode), file_format)


LABELED = Schema((Feature("image", "raw", "uint8", (2,)), Feature("label", "label", "int64")), ("cat", "dog"))


def labeled(number: int, start: int = 0) -> list[dict]:
    return [{"image": np.uint8([i, i]), "label": i % 2} for i in range(start, start + number)]


def test_splits_and_shards_have_their_examples_lengths_and_sizes(tmp_path):
    splits = {"train": [labeled(3), labeled(0), labeled(2, 3)], "val-2": [labeled(1, 7)]}
    manifest = dataset(tmp_path, LABELED, splits)
    builder = tfds.builder_from_directory(tmp_path)
    assert {name: split.shard_lengths for name, split in builder.info.splits.items()} == {
        "train": [3, 0, 2],
        "val-2": [1],
    }
    for name, split in manifest.splits.items():
        assert builder.info.splits[name].num_bytes == split.num_bytes
        assert builder.info.splits[name].filenames == [shard.path for shard in split.shards]
        found = builder.info.splits[name].get_available_shards()
        assert sorted(path.name for path in found) == [shard.path for shard in split.shards]
    assert sorted(int(e["image"][0]) for e in opened(tmp_path)) == [0, 1, 2, 3, 4]
    assert [int(e["image"][0]) for e in opened(tmp_path, "train[3:]")] == [3, 4]
    assert len(builder.as_dataset(split="train")) == 5
    assert [int(e["image"][0]) for e in opened(tmp_path, "val-2")] == [7]


def test_as_supervised_delivers_the_image_and_its_label(tmp_path):
    schema = Schema((*LABELED.features, Feature("key", "bytes", "bytes")), LABELED.class_names)
    dataset(tmp_path, schema, {"train": [[{**labeled(1, 5)[0], "key": b"5"}]]})
    ((image, label),) = tfds.builder_from_directory(tmp_path).as_dataset(split="train", as_supervised=True)
    assert (image.numpy().tolist(), int(label)) == ([5, 5], 1)
    two = Schema((*LABELED.features, Feature("mask", "raw", "uint8", (1,))), LABELED.class_names)
    assert b"supervisedKeys" not in tfds_files(replace(SOUND, schema=two))[INFO_NAME]


CLASS_NAMES = (
    *("cat", "Straßenbahn", "日本 猫", "#", "0", "", " ", " cat", "cat ", "\u3000cat", "two\nlines", "cat\r"),
    *("\x1c", "\u2028", "\ufeffcat", "a\0b", "ca\udce9", "\\x20cat", "\\empty", "a\\nb", "a\\\nb"),
)


def test_every_class_name_keeps_its_own_line(tmp_path):
    schema = Schema((Feature("label", "label", "uint8"),), CLASS_NAMES)
    dataset(tmp_path, schema, {"train": [[{"label": i} for i in range(len(CLASS_NAMES))]]})
    label = tfds.builder_from_directory(tmp_path).info.features["label"]
    assert label.num_classes == len(label.names) == len(set(label.names)) == len(CLASS_NAMES)
    assert [label.str2int(name) for name in label.names] == [int(e["label"]) for e in opened(tmp_path)]
    assert label.names[:3] == list(CLASS_NAMES[:3])


def test_a_line_of_labels_is_the_name_as_a_python_literal():
    names = tuple(name for name in CLASS_NAMES if name)
    schema = Schema((Feature("label", "label", "uint8"),), names)
    text = tfds_files(replace(SOUND, schema=schema))["label.labels.txt"].decode("utf-8")
    for name, line in zip(names, text.removesuffix("\n").split("\n"), strict=True):
        literal = "".join(c if c.isascii() else c.encode("unicode_escape").decode("ascii") for c in line)
        assert literal.encode("ascii").decode("unicode_escape") == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [("photos", "photos"), ("ImageNet.v2-SMALL", "image_net_v2_small"), ("9lives", "dataset_9lives")],
)
def test_any_valid_name_opens_under_the_nearest_name_that_tfds_allows(name, shown, tmp_path):
    dataset(tmp_path, LABELED, {"train": [labeled(1)]}, name)
    builder = tfds.builder_from_directory(tmp_path)
    assert builder.name == shown
    # TFDS parses names when a dataset is requested by name, not when a directory is opened
    assert tfds.core.naming.is_valid_dataset_name(builder.name)
    assert len(opened(tmp_path)) == 1


@pytest.mark.parametrize("name", ["a/b", "a b", "ä", ".."])
def test_any_name_of_a_feature_is_read_and_has_its_class_names(name, tmp_path):
    schema = Schema((Feature(name, "label", "int64"), Feature("a", "int", "int64")), ("cat", "dog"))
    dataset(tmp_path, schema, {"train": [[{name: 1, "a": 5}]]})
    assert {key: int(value) for key, value in opened(tmp_path)[0].items()} == {name: 1, "a": 5}
    assert tfds.builder_from_directory(tmp_path).info.features[name].names == ["cat", "dog"]


SHARDS = (shard("photos-train-3f9a2c1b.tfrecord-00000-of-00001"),)
SOUND = Manifest("photos", BUILD_ID, LABELED, {"train": Split(SHARDS)}, Totals(1, 1))


def with_feature(feature: Feature) -> Manifest:
    names = ("cat", "dog") if feature.kind == "label" else ()
    return replace(SOUND, schema=Schema((feature,), names))


def with_shards(*paths: str) -> Manifest:
    return replace(SOUND, splits={"train": Split(tuple(shard(path) for path in paths))})


ONE = SOUND.splits["train"]
UNSAYABLE = [
    (with_feature(Feature("x", "raw", "uint32")), r"features\.x: is raw uint32"),
    (with_feature(Feature("x" * 245, "label", "int8")), "longer than 244 bytes"),
    (replace(SOUND, splits={"val.2": ONE}), r"splits\.val\.2: TFDS allows"),
    (replace(SOUND, splits={"all": ONE}), "reserves 'all'"),
    (
        replace(SOUND, splits={"train": Split((replace(SOUND.shards[0], num_examples=0),))}),
        "hold no examples",
    ),
    (with_shards("a.tfrecord"), r"train\.shards: TFDS requires names that differ only in 00000-of-00064"),
    (with_shards("a.tfrecord-00001-of-00002", "a.tfrecord-00000-of-00002"), "shards: TFDS requires"),
    (with_shards("a.tfrecord-00000-of-00002", "b.tfrecord-00001-of-00002"), "shards: TFDS requires"),
    (with_shards("{a}.tfrecord-00000-of-00001"), "shards: TFDS requires"),
    (with_shards("a-00000-of-00001"), "shards: TFDS requires"),
]


@pytest.mark.parametrize(("manifest", "message"), UNSAYABLE)
def test_a_dataset_that_tfds_cannot_read_has_a_reason_and_no_files(manifest, message):
    (problem,) = tfds_problems(manifest)
    assert re.search(message, str(problem))
    assert tfds_files(manifest) == {}


def test_tfds_indeed_cannot_read_raw_uint32(tmp_path):
    # if this fails, TFDS supports it now, and the view can use it
    schema = Schema((Feature("x", "raw", "int32", (1,)),))
    dataset(tmp_path, schema, {"train": [[{"x": np.int32([1])}]]})
    features = tmp_path / FEATURES_NAME
    features.write_text(features.read_text().replace("int32", "uint32"))
    with pytest.raises(TypeError, match="uint32"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("paths", "read"),
    [
        (["part-00000-of-00002.tfrecord", "part-00001-of-00002.tfrecord"], [0, 1]),
        (["train/data.tfrecord-00000-of-00001"], [0]),
        (["00000-of-00001/a.tfrecord-00000-of-00001"], [0]),
    ],
)
def test_shards_named_by_other_tools_open_if_tfds_has_a_template_for_them(paths, read, tmp_path):
    schema = Schema((Feature("x", "int", "int64"),))
    shards = []
    for index, path in enumerate(paths):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        with tf.io.TFRecordWriter(str(tmp_path / path)) as writer:
            writer.write(record(schema, {"x": index}))
        shards.append(scan_shard(tmp_path, path, "none")[0])
    manifest = replace(SOUND, schema=schema, splits={"train": Split(tuple(shards))})
    assert write_view(manifest, tmp_path) == []
    assert sorted(int(example["x"]) for example in opened(tmp_path)) == read


def test_the_files_are_the_same_bytes_each_time_and_written_only_when_they_differ(tmp_path):
    assert write_view(SOUND, tmp_path) == []
    names = {INFO_NAME, FEATURES_NAME, "label.labels.txt", "labels.txt"}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == view_files(SOUND)
    assert tfds_files(SOUND).keys() == names - {"labels.txt"}
    for name in names:
        os.utime(tmp_path / name, ns=(1, 1))
    (tmp_path / FEATURES_NAME).unlink()
    assert write_view(SOUND, tmp_path) == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == view_files(SOUND)
    assert [name for name in sorted(names) if (tmp_path / name).stat().st_mtime_ns != 1] == [FEATURES_NAME]


def test_only_views_of_earlier_generations_are_removed(tmp_path):
    write_view(SOUND, tmp_path)
    (tmp_path / "mine.labels.txt").write_text("cat\n")
    second = with_feature(Feature("class", "label", "int64"))
    write_view(second, tmp_path, SOUND)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {INFO_NAME, FEATURES_NAME, "class.labels.txt", "labels.txt", "mine.labels.txt"}
    write_view(with_feature(Feature("x", "raw", "uint32")), tmp_path, SOUND, second)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.labels.txt"}


def test_what_tfds_adds_to_its_file_makes_it_neither_stale_nor_foreign(tmp_path):
    write_view(SOUND, tmp_path)
    info = json.loads((tmp_path / INFO_NAME).read_text())
    (tmp_path / INFO_NAME).write_text(json.dumps({**info, "alternativeFileFormats": ["parquet"]}))
    made, next_one = with_views(SOUND), with_views(replace(SOUND, build_id="00000002"))
    assert view_problems(made, tmp_path, []) == []
    assert foreign_views(next_one, tmp_path, [made]) == []
    assert "dataset_info.json: does not belong to this generation of the dataset" in [
        str(problem) for problem in view_problems(next_one, tmp_path, [made])
    ]


def test_the_files_of_a_dataset_that_tfds_made_are_not_changed(tmp_path):
    theirs = {INFO_NAME: json.dumps({"name": "mnist"}), FEATURES_NAME: "{}", "old.labels.txt": "a\n"}
    for name, text in theirs.items():
        (tmp_path / name).write_text(text)
    assert sorted(foreign_views(with_views(SOUND), tmp_path, [])) == [INFO_NAME, FEATURES_NAME]
    write_view(SOUND, tmp_path)
    assert {name: (tmp_path / name).read_text() for name in theirs} == theirs


def grow(root, manifest: Manifest, build_id: str, splits: dict[str, list[list[dict]]]) -> Manifest:
    """Write more shards as another build, as append does; return the manifest."""
    (root / "more").mkdir()
    added = dataset(root / "more", manifest.schema, splits)
    grown = dict(manifest.splits)
    for name, split in added.splits.items():
        shards = []
        for found in split.shards:
            path = found.path.replace(BUILD_ID, build_id)
            (root / "more" / found.path).rename(root / path)
            shards.append(replace(found, path=path))
        grown[name] = Split((*manifest.splits[name].shards, *shards))
    shutil.rmtree(root / "more")
    return replace(manifest, splits=grown, build_id=build_id)


def test_a_dataset_of_several_builds_is_opened_by_its_parts(tmp_path):
    old = dataset(tmp_path, LABELED, {"train": [labeled(3), labeled(2, 3)], "val": [labeled(2, 20)]})
    assert tfds_note(old, tmp_path) is None
    made = grow(tmp_path, old, "aaaaaaaa", {"train": [labeled(2, 5)]})
    made = grow(
        tmp_path, made, "bbbbbbbb", {"train": [labeled(2, 7), labeled(1, 9)], "val": [labeled(1, 22)]}
    )
    assert write_view(made, tmp_path, old) == []
    assert not (tmp_path / INFO_NAME).exists()
    assert not (tmp_path / FEATURES_NAME).exists()
    note = tfds_note(made, tmp_path)
    # as the note says
    expression = re.search(r"tfds\.builder_from_directories\(.*\)\)\)", note)[0]
    builder = eval(expression, {"tfds": tfds, "glob": glob})

    def images(split: str) -> list[int]:
        return [int(example["image"][0]) for example in builder.as_dataset(split=split)]

    assert sorted(images("train")) == list(range(10))
    assert sorted(images("val")) == [20, 21, 22]
    assert images("train[3:6]") == [3, 4, 5]
    assert builder.info.splits["train"].num_examples == 10
    assert builder.info.features["label"].names == ["cat", "dog"]
    # the data are not stored twice
    assert len([path for path in tmp_path.rglob("*") if "tfrecord" in path.name]) == len(made.shards)
    # with one build again, the parts are removed
    assert write_view(old, tmp_path, made) == []
    assert not (tmp_path / "tfds").exists()
    assert len(opened(tmp_path)) == 5


def test_a_part_without_examples_is_left_out(tmp_path):
    old = dataset(tmp_path, LABELED, {"train": [labeled(3)], "val": [labeled(1)]})
    made = grow(tmp_path, old, "aaaaaaaa", {"train": [labeled(0)], "val": [labeled(1)]})
    made = replace(made, splits={**made.splits, "val": old.splits["val"]})
    assert write_view(made, tmp_path) == []
    assert len(opened(tmp_path)) == 3


def test_files_of_others_in_the_folder_of_a_part_are_kept(tmp_path):
    (tmp_path / "tfds" / "00000").mkdir(parents=True)
    (tmp_path / "tfds" / "00000" / INFO_NAME).write_text("{}")
    paths = [f"{name}.tfrecord-00000-of-00001" for name in "ab"]
    assert foreign_views(with_views(with_shards(*paths)), tmp_path, []) == ["tfds/00000/dataset_info.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["tfds"]
