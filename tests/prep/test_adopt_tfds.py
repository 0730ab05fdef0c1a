"""A folder of TensorFlow Datasets is adopted with the shapes, dtypes and classes of its ``features.json``."""

import json
import logging
import os
from pathlib import Path

import numpy as np
import pytest

from tfshards.prep import AdoptOptions, FeatureRoles, adopt, verify
from tfshards.schemas import Feature

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tensorflow_datasets as tfds

from tfshards import loader

logging.getLogger("absl").setLevel(logging.ERROR)

BOX = tfds.features.BBox(0.0, 0.25, 0.5, 1.0)


class Street(tfds.core.GeneratorBasedBuilder):
    """A dataset made by TFDS, with features of most kinds."""

    VERSION = tfds.core.Version("1.0.0")
    # the builder is not in a package
    code_path = None

    def _info(self) -> tfds.core.DatasetInfo:
        of = tfds.features
        objects = {
            "bbox": of.BBoxFeature(),
            "crowd": tf.bool,
            "track": of.Tensor(shape=(2, 2), dtype=tf.uint8),
        }
        features = {
            "image": of.Image(shape=(None, None, 3)),
            "depth": of.Image(shape=(4, 5, 1), dtype=tf.uint16, encoding_format="png"),
            "mask": of.LabeledImage(labels=4, shape=(None, None, 1)),
            "species": of.ClassLabel(names=["ant", "bee"]),
            "tags": of.Sequence(of.ClassLabel(names=["p", "q"])),
            "flag": tf.bool,
            "small": tf.uint8,
            "matrix": of.Tensor(shape=(3, 2), dtype=tf.float32),
            "double": of.Tensor(shape=(3,), dtype=tf.float64),
            "packed": of.Tensor(shape=(2, 2), dtype=tf.int16, encoding="bytes"),
            "zipped": of.Tensor(shape=(2, 2), dtype=tf.int16, encoding="zlib"),
            "points": of.Tensor(shape=(None, 3), dtype=tf.float32),
            "objects": of.Sequence(objects),
            "four": of.Sequence(tf.float32, length=4),
            "nested": {"deep": tf.int32},
            "text": of.Text(),
        }
        return self.dataset_info_from_configs(features=of.FeaturesDict(features))

    def _split_generators(self, _: object) -> dict:
        return {"train": self._generate_examples(5), "test": self._generate_examples(3)}

    def _generate_examples(self, number: int):
        for n in range(number):
            track = np.full((2, 2), n, np.uint8)
            yield (
                n,
                {
                    "image": np.full((3, 4 + n % 2, 3), n, np.uint8),
                    "depth": np.full((4, 5, 1), 300 * n, np.uint16),
                    "mask": np.full((3, 4 + n % 2, 1), n % 4, np.uint8),
                    "species": n % 2,
                    "tags": [n % 2] * (n % 3),
                    "flag": n % 2 == 1,
                    "small": 250 + n,
                    "matrix": np.arange(6, dtype=np.float32).reshape(3, 2) + n,
                    "double": np.arange(3) / 4,
                    "packed": np.full((2, 2), -n, np.int16),
                    "zipped": np.full((2, 2), -n, np.int16),
                    "points": np.full((n, 3), n, np.float32),
                    "objects": [{"bbox": BOX, "crowd": n % 2 == 0, "track": track}] * (n % 3),
                    "four": [0.5] * 4,
                    "nested": {"deep": -n},
                    "text": f"text {n}",
                },
            )


def test_shapes_dtypes_and_classes_are_those_of_features_json(tmp_path, contents):
    builder = Street(data_dir=str(tmp_path))
    builder.download_and_prepare()
    root, lines = Path(builder.data_dir), []
    before = contents(root)
    manifest = adopt(root, log=lines.append)
    schema = manifest.schema
    assert {name: split.num_examples for name, split in manifest.splits.items()} == {"train": 5, "test": 3}
    assert (manifest.name, schema.class_names) == ("street", ("ant", "bee"))
    after = contents(root)
    assert before.items() <= after.items()
    new = {name.partition("/")[0] for name in after if name not in before}
    assert new == {"dataset.json", "index", "labels.txt"}
    assert tfds.builder_from_directory(root).info.splits["train"].num_examples == 5
    assert [feature for feature in schema.features if feature.name not in ("text", "zipped")] == [
        Feature("depth", "image", "uint16", (4, 5, 1)),
        Feature("double", "float", "float32", (3,)),
        Feature("flag", "int", "bool"),
        Feature("four", "float", "float32", (4,)),
        Feature("image", "image", "uint8", (3, None, 3)),
        Feature("mask", "mask", "uint8", (3, None, 1)),
        Feature("matrix", "float", "float32", (3, 2)),
        Feature("nested/deep", "int", "int32"),
        Feature("objects/bbox", "float", "float32", (None, 4), "yxyx-normalized"),
        Feature("objects/crowd", "int", "bool", (None,)),
        # a schema has no lists of matrices
        Feature("objects/track", "int", "uint8", (None,)),
        Feature("packed", "raw", "int16", (2, 2)),
        Feature("points", "float", "float32", (None, 3)),
        Feature("small", "int", "uint8"),
        Feature("species", "label", "int64"),
        Feature("tags", "int", "int64", (None,)),
    ]
    assert not any("features.json" in line for line in lines), lines
    assert verify(root, deep=True, decode=True)
    theirs = {example["text"]: example for example in tfds.as_numpy(builder.as_dataset(split="train"))}
    same = ("depth", "flag", "four", "matrix", "double", "packed", "small", "species")
    batches = loader.load(root, "train", batch_size=1, image={"depth": loader.Image(dtype="uint16")})
    for batch in batches:
        wanted = theirs[batch["text"][0].numpy()]
        for name in same:
            assert np.array_equal(batch[name][0], wanted[name]), name
            assert batch[name].dtype == wanted[name].dtype or name == "double"
        assert np.array_equal(batch["points"].to_tensor()[0], wanted["points"])
        assert np.array_equal(batch["objects/bbox"].to_tensor()[0], wanted["objects"]["bbox"])
        assert batch["objects/crowd"][0].numpy().tolist() == wanted["objects"]["crowd"].tolist()
        assert batch["nested/deep"][0] == wanted["nested"]["deep"]


def write(path: Path, **values: list[int] | list[float] | list[bytes]) -> None:
    """Write one record for each element of the values, whose elements are lists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in zip(*values.values(), strict=True):
            features = {}
            for name, value in zip(values, row, strict=True):
                if value and isinstance(value[0], bytes):
                    made = tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
                elif value and isinstance(value[0], float):
                    made = tf.train.Feature(float_list=tf.train.FloatList(value=value))
                else:
                    made = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
                features[name] = made
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def declare(folder: Path, **features: tuple[str, dict]) -> None:
    """Write a features.json with the class and the content of each feature."""
    described = {
        name: {"pythonClassName": f"x.{python_class}", **content}
        for name, (python_class, content) in features.items()
    }
    (folder / "features.json").write_text(json.dumps({"featuresDict": {"features": described}}))


def tensor(dtype: str, *dims: int, encoding: str = "none") -> tuple[str, dict]:
    shape = {"dimensions": [str(dim) for dim in dims]}
    return "Tensor", {"tensor": {"dtype": dtype, "shape": shape, "encoding": encoding}}


CLASS = ("ClassLabel", {"classLabel": {"numClasses": "3"}})


def test_records_that_contradict_features_json_are_adopted_as_they_are_with_a_warning(tmp_path, log):
    picture = tf.io.encode_png(np.zeros((2, 3, 3), np.uint8)).numpy()
    write(
        tmp_path / "train.tfrecord",
        flag=[[0], [2]],
        matrix=[[1.0] * 6, [1.0] * 5],
        rows=[[1.0] * 6, [1.0] * 5],
        packed=[[b"abc"], [b"abcd"]],
        deep=[[1] * 4, [1] * 4],
        open=[[b"ab"], [b"abcd"]],
        image=[[b"no image"], [b"text"]],
        odd=[[b"a"], [b"b"]],
        photo=[[picture], [picture]],
    )
    declare(
        tmp_path,
        flag=tensor("bool"),
        matrix=tensor("float32", 3, 2),
        rows=tensor("float32", -1, 3),
        packed=tensor("int16", 2, encoding="bytes"),
        deep=tensor("complex64", 2, -1),
        open=tensor("int16", -1, encoding="bytes"),
        image=("Image", {"image": {"dtype": "uint8", "shape": {"dimensions": ["2", "2", "3"]}}}),
        gone=CLASS,
        odd=tensor("qint8", 1, encoding="bytes"),
        photo=tensor("string"),
    )
    schema = adopt(tmp_path, log=log.append).schema
    assert schema.features == (
        Feature("deep", "int", "int64", (4,)),
        Feature("flag", "int", "int64"),
        Feature("image", "bytes", "bytes"),
        Feature("matrix", "float", "float32", (None,)),
        Feature("odd", "bytes", "bytes"),
        Feature("open", "bytes", "bytes"),
        Feature("packed", "bytes", "bytes"),
        Feature("photo", "image", "uint8", (2, 3, 3)),
        Feature("rows", "float", "float32", (None,)),
    )
    start, end = "warning: features.json declares ", ", but its records differ; it is adopted as they show"
    assert [line.removeprefix(start).removesuffix(end) for line in log if line.startswith(start)] == [
        "'flag' as bool[]",
        "'matrix' as float32[3, 2]",
        "'packed' as int16[2]",
        "'rows' as float32[None, 3]",
    ]


@pytest.mark.parametrize(
    ("declared", "roles", "label"),
    [
        ({"kind": CLASS}, FeatureRoles(), "kind"),
        ({"kind": CLASS}, FeatureRoles(label="part"), "part"),
        ({"kind": CLASS, "part": CLASS}, FeatureRoles(), None),
        ({"kind": CLASS, "part": CLASS}, FeatureRoles(drop=("part",)), "kind"),
        ({}, FeatureRoles(), None),
    ],
)
def test_the_only_class_of_features_json_is_the_label(declared, roles, label, tmp_path):
    write(tmp_path / "train.tfrecord", kind=[[0], [2]], part=[[1], [1]], tags=[[0, 1], []])
    declare(tmp_path, **declared)
    schema = adopt(tmp_path, AdoptOptions(roles=roles), log=lambda _: None).schema
    assert [f.name for f in schema.features if f.kind == "label"] == ([label] if label else [])


def test_folders_that_declare_a_feature_differently_declare_nothing_of_it(tmp_path):
    for folder, dtype in (("train", "bool"), ("test", "uint8")):
        write(tmp_path / folder / "a.tfrecord", flag=[[0], [1]], small=[[3], [4]])
        declare(tmp_path / folder, flag=tensor(dtype), small=tensor("uint8"))
    schema = adopt(tmp_path, log=lambda _: None).schema
    assert schema.features == (Feature("flag", "int", "int64"), Feature("small", "int", "uint8"))
    (tmp_path / "test" / "features.json").write_text("no JSON")
    (tmp_path / "train" / "features.json").write_text(
        '{"featuresDict": {"features": {"flag": [], "small": {}}}}'
    )
    schema = adopt(tmp_path, overwrite=True, log=lambda _: None).schema
    assert schema.features == (Feature("flag", "int", "int64"), Feature("small", "int", "int64"))
