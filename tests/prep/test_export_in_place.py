"""Descriptions in the dataset itself, read by mlcroissant and by TensorFlow Metadata."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from tests.errors import raises
from tests.prep.derived import build_images
from tests.prep.exported import CLASSES, EVERYTHING, write_dataset, write_everything
from tfshards.prep import export, reshard, verify
from tfshards.prep.cli.main import main
from tfshards.schemas import Feature, InputError, OptionsError, Schema, read_manifest

quietly = partial(export, log=lambda _: None)


@pytest.fixture
def every(tmp_path):
    write_everything(tmp_path / "every")
    return tmp_path / "every"


def described(root):
    """Return the dataset as mlcroissant reads its description, which has no errors."""
    logging.getLogger("absl").setLevel(logging.ERROR)
    import mlcroissant

    found = mlcroissant.Dataset(str(root / "croissant.json"))
    issues = found.metadata.ctx.issues
    assert not issues.errors
    # what nobody but the owner of the data knows
    assert all("is recommended, but does not exist" in warning for warning in issues.warnings)
    return found


def test_croissant_describes_files_features_splits_and_classes(every):
    assert quietly(every, to="croissant").files.keys() == {"croissant.json"}
    found = described(every)
    assert [
        row["classes/name"].decode() if isinstance(row["classes/name"], bytes) else row["classes/name"]
        for row in found.records("classes")
    ] == list(CLASSES)
    assert [row["splits/num_examples"] for row in found.records("splits")] == [7, 2]
    shards = read_manifest(every).shards
    files = {each.content_url: each.sha256 for each in found.metadata.file_objects}
    assert files == {shard.path: shard.digest.removeprefix("sha256:") for shard in shards}
    (examples,) = (each for each in found.metadata.record_sets if each.id == "examples")
    fields = {field.name: field for field in examples.fields}
    assert list(fields) == list(EVERYTHING.names)
    types = {name: str(field.data_types[0]).rpartition("/")[2] for name, field in fields.items()}
    assert types["image"] == types["mask"] == "ImageObject"
    assert (types["half"], types["big"], types["flag"]) == ("Float16", "UInt64", "Boolean")
    assert (fields["boxes"].array_shape, fields["grid"].array_shape) == ("-1,4", "2,3")
    assert fields["label"].references.uuid == "classes/label"


def test_tensorflow_metadata_parses_the_schema(every):
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    quietly(every, to="tfmd")
    schema = text_format.Parse((every / "schema.pbtxt").read_text(), schema_pb2.Schema())
    features = {feature.name: feature for feature in schema.feature}
    assert list(features) == list(EVERYTHING.names)
    wires = {"bytes": schema_pb2.BYTES, "int64": schema_pb2.INT, "float": schema_pb2.FLOAT}
    assert all(features[each.name].type == wires[each.wire] for each in EVERYTHING.features)
    assert [dim.size for dim in features["half"].shape.dim] == [3]
    assert features["image"].image_domain.minimum_supported_image_fraction == 1
    label = features["label"]
    assert (label.int_domain.min, label.int_domain.max, label.int_domain.is_categorical) == (-1, 1, True)
    assert list(label.annotation.tag) == [f"0={CLASSES[0]}", f"1={CLASSES[1]}"]
    tensors = schema.tensor_representation_group[""].tensor_representation
    kinds = {name: tensor.WhichOneof("kind") for name, tensor in tensors.items()}
    assert {name for name, kind in kinds.items() if kind == "ragged_tensor"} == {"words", "boxes", "tags"}
    assert tensors["boxes"].ragged_tensor.partition[0].uniform_row_length == 4
    assert features["boxes"].presence.min_fraction == 0


@pytest.mark.parametrize("to", ["croissant", "tfmd"])
def test_names_of_any_characters_are_described(to, tmp_path):
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    schema = Schema(
        (
            Feature('a "b" \\ /é', "label", "int64"),
            Feature("empty", "int", "int64", (2, 0)),
            Feature("x y", "int", "int64"),
            Feature("x_y", "int", "int64"),
        ),
        ('"', "\\", "ä\udcff"),
    )
    write_dataset(tmp_path / "ds", schema, {"train": [[]]})
    quietly(tmp_path / "ds", to=to)
    if to == "croissant":
        assert described(tmp_path / "ds").metadata.name == "every"
        return
    found = text_format.Parse((tmp_path / "ds" / "schema.pbtxt").read_text(), schema_pb2.Schema())
    assert [feature.name for feature in found.feature] == ['a "b" \\ /é', "empty", "x y", "x_y"]


def test_descriptions_follow_the_dataset_and_do_not_hurt_it(tmp_path):
    build_images(tmp_path)
    root = tmp_path / "old"
    before = quietly(root, to="croissant")
    quietly(root, to="tfmd")
    assert verify(root, deep=True)
    text = (root / "croissant.json").read_text()
    assert quietly(root, to="croissant") == before
    reshard(root, root, shards=1, overwrite=True, log=lambda _: None)
    assert (root / "croissant.json").read_text() != text
    assert len(described(root).metadata.file_objects) == 3
    assert read_manifest(root).build_id in (root / "schema.pbtxt").read_text()


def test_a_file_of_another_tool_is_kept(every):
    (every / "croissant.json").write_text("{}")
    with raises(InputError, "foreign-file"):
        quietly(every, to="croissant")
    assert (every / "croissant.json").read_text() == "{}"


@pytest.mark.parametrize("given", [{"directory": "out"}, {"select": ["image"]}])
def test_what_describes_the_whole_dataset_in_place_takes_no_directory(every, given):
    with pytest.raises(
        OptionsError, match=r"to='tfmd' is written into the dataset; leave out (directory|select)="
    ):
        quietly(every, to="tfmd", **given)


def test_the_command_names_the_file(every, capsys):
    assert main(["export", str(every), "--to", "croissant"]) == 0
    assert capsys.readouterr().out == f"croissant: croissant.json in {every}\n"
