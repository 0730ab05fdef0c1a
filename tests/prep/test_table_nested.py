"""Tables in the layouts of Hugging Face: nested values, images inside of Parquet, shards, class names."""

import pyarrow as pa
import pytest

from tests.errors import raises
from tests.prep.table_files import IMAGES, encoded, examples, write_jsonl, write_parquet
from tfshards.prep import ColumnRoles, ImageOptions, Options, Table
from tfshards.schemas import InputError

ANY_REJECTS = {"options": Options(max_rejected=1)}


def test_an_integer_inside_of_a_struct_is_not_rounded(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", [{"x": {"n": [[0.5], [2**60 + 1]]}}])
    with raises(InputError, "table-rounded", number=0, name="x", found=str(2**60 + 1)):
        Table(path).stage(tmp_path)


@pytest.mark.parametrize("is_embedded", [True, False])
def test_an_image_that_is_too_large_is_rejected(is_embedded, image_folder, build_table):
    files = {"a.png": encoded(0), "b.jpg": encoded(1, "JPEG")}
    assert len(files["a.png"]) < len(files["b.jpg"])
    images = list(files.values()) if is_embedded else list(files)
    path = write_parquet(image_folder(files) / "rows.parquet", {"image": images})
    manifest = build_table(path, build=ANY_REJECTS, images=ImageOptions(max_bytes=len(files["b.jpg"]) - 1))
    assert manifest.totals.reasons["rejected"] == {"too large": 1}


PATHS = {
    "structs without bytes": (pa.array([{"path": "a.png"}, {"path": "b.png"}], IMAGES), ()),
    "bytes that are paths": (pa.array([b"a.png", b"b.png"]), ("x",)),
}


@pytest.mark.parametrize(("column", "images"), PATHS.values(), ids=PATHS)
def test_columns_without_encoded_images_name_files(column, images, image_folder, build_table, tmp_path):
    root = image_folder({"a.png": 1, "b.png": 2})
    path = write_parquet(root / "rows.parquet", {"x": column})
    assert build_table(path, columns=ColumnRoles(images=images)).schema["x"].kind == "image"
    assert set(examples(tmp_path / "out")) == {"a.png", "b.png"}


CLASSES = {"names": ["cat", "dog", "猫"], "_type": "ClassLabel"}

OBJECTS = [{"category": [2]}, {"category": [0, 2]}]

METADATA = {
    "the usual name": ({"label": [2, 0]}, {"label": CLASSES, "image": {"_type": "Image"}}, "label"),
    "the only one with classes": ({"fine": [2, 0]}, {"fine": CLASSES}, "fine"),
    "objects": (
        {"objects": OBJECTS},
        {"objects": {"feature": {"id": {"dtype": "int64", "_type": "Value"}, "category": CLASSES}}},
        "objects/category",
    ),
    "a Sequence": (
        {"objects": OBJECTS},
        {"objects": {"_type": "Sequence", "feature": {"category": CLASSES}}},
        "objects/category",
    ),
    "a list": (
        {"objects": [[{"category": 2}], [{"category": 0}, {"category": 2}]]},
        {"objects": [{"category": CLASSES}]},
        "objects/category",
    ),
    "one of two": ({"fine": [2, 0], "coarse": [0, 1]}, {"fine": CLASSES, "coarse": CLASSES}, None),
    "no names": ({"fine": [2, 0]}, {"fine": {"_type": "ClassLabel", "num_classes": 3}}, None),
    "a row without a class": ({"label": [2, -1]}, {"label": CLASSES}, "label"),
    "a split without labels": ({"label": [-1, -1]}, {"label": CLASSES}, "label"),
    "other metadata": ({"fine": [2, 0]}, "features", None),
    "no metadata": ({"fine": [2, 0]}, None, None),
}


@pytest.mark.parametrize(("columns", "features", "label"), METADATA.values(), ids=METADATA)
def test_class_names_come_from_the_metadata_of_hugging_face(columns, features, label, tmp_path):
    path = write_parquet(tmp_path / "rows.parquet", {"x": [1, 2], **columns}, features)
    schema = Table(path).stage(tmp_path).schema
    assert [feature.name for feature in schema.features if feature.kind == "label"] == [label] * bool(label)
    assert schema.class_names == (("cat", "dog", "猫") if label else ())


def test_parts_without_rows_are_reported_and_left_out(tmp_path, build_table, log):
    for name, count in (("train-00000-of-00002", 3), ("train-00001-of-00002", 0), ("test-00000-of-00001", 2)):
        write_parquet(tmp_path / f"{name}.parquet", {"a": pa.array(range(count), pa.int64())})
    made = build_table(tmp_path)
    assert {name: split.num_examples for name, split in made.splits.items()} == {"train": 3, "test": 2}
    assert f"warning: {tmp_path / 'train-00001-of-00002.parquet'} has no rows" in log
    for path in tmp_path.glob("*.parquet"):
        write_parquet(path, {"a": pa.array([], pa.int64())})
    with raises(InputError, "table-no-rows"):
        Table(tmp_path).column_names()


@pytest.mark.parametrize("name", ["train-*.parquet", "train-00001-of-00002.parquet"])
def test_named_parts_are_built_without_the_others_with_a_warning(name, build_table, tmp_path, log):
    write_parquet(tmp_path / "train-00001-of-00002.parquet", {"x": [1]})
    assert build_table(tmp_path / name).num_examples == 1
    assert f"warning: 1 of the 2 files {tmp_path / 'train-*-of-00002'} missing" in log
