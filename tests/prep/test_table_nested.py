"""Tables in the layouts of Hugging Face: nested values, images inside of Parquet, shards, class names."""

import io

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from tests.errors import raises
from tests.prep.table_files import IMAGES, check_repair, encoded, examples, write_jsonl, write_parquet
from tfshards.prep import ColumnRoles, ImageOptions, Options, Table
from tfshards.schemas import Feature, InputError

ANY_REJECTS = {"options": Options(max_rejected=1)}
BOXES = {
    "a.png": ([[302.0, 109.0, 73.0, 52.0], [810.0, 100.5, 57.0, 28.0]], [0, 1]),
    "b.png": ([], []),
    "c.png": ([[160.0, 31.0, 248.0, 616.0]], [1]),
}


@pytest.mark.parametrize("form", ["struct of lists", "list of structs"])
def test_metadata_jsonl_with_objects_gives_rows_of_boxes(form, image_folder, build_table, tmp_path):
    root = image_folder({name: number for number, name in enumerate(BOXES)})
    rows = []
    for name, (boxes, classes) in BOXES.items():
        objects = {"bbox": boxes, "categories": classes}
        if form == "list of structs":
            objects = [{"bbox": box, "categories": each} for box, each in zip(boxes, classes, strict=True)]
        rows.append({"file_name": name, "objects": objects})
    write_jsonl(root / "metadata.jsonl", rows)
    manifest = build_table(root)
    assert manifest.schema["objects/bbox"] == Feature("objects/bbox", "float", "float32", (None, 4))
    assert manifest.schema["objects/categories"] == Feature("objects/categories", "int", "int64", (None,))
    for key, values in examples(tmp_path / "out").items():
        assert np.reshape(values["objects/bbox"], (-1, 4)).tolist() == BOXES[key][0]
        assert values["objects/categories"] == BOXES[key][1]


def test_the_fields_of_a_struct_are_columns(build_table, tmp_path):
    rows = [{"x": 1, "meta": {"date": "2020-01-02", "place": {"lat": 0.5}}, "n": [2, 3]}] * 2
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    assert build_table(path).schema.names == ("x", "meta/date", "meta/place/lat", "n", "key")
    values = examples(tmp_path / "out")["0"]
    assert values["meta/date"] == [b"2020-01-02"]
    assert np.frombuffer(values["meta/place/lat"][0], "<f8").tolist() == [0.5]
    dropped = build_table(path, "dropped", columns=ColumnRoles(drop=("meta",)))
    assert dropped.schema.names == ("x", "n", "key")


def test_an_integer_inside_of_a_struct_is_not_rounded(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", [{"x": {"n": [[0.5], [2**60 + 1]]}}])
    with raises(InputError, "table-rounded", number=0, name="x", found=str(2**60 + 1)):
        Table(path).stage(tmp_path)


@pytest.mark.parametrize("layout", ["struct", "struct without paths", "bytes"])
def test_images_inside_of_parquet_are_treated_as_files_are(layout, image_folder, build_table, tmp_path):
    files = {"a.png": encoded(0), "b.jpg": encoded(1, "JPEG"), "c.png": encoded(2, "PNG", "RGBA")}
    files |= {"d.bmp": encoded(3, "BMP"), "e.png": encoded(4)[:-30]}
    with_paths, values = layout == "struct", list(files.values())
    if layout.startswith("struct"):
        rows = [{"bytes": data, "path": name if with_paths else None} for name, data in files.items()]
        column = pa.array([*rows, {"bytes": None, "path": "f.png"} if with_paths else None], IMAGES)
    else:
        column = pa.array([*values, None], pa.binary())
    path = write_parquet(tmp_path / "rows.parquet", {"picture": column, "n": range(6)})
    columns = ColumnRoles(images=("picture",) if layout == "bytes" else ())
    given = {"build": ANY_REJECTS, "images": ImageOptions(format="png")}
    manifest = build_table(path, columns=columns, **given)
    assert manifest.schema["picture"].kind == "image"
    assert sorted(manifest.totals.reasons["rejected"]) == ["damaged", "missing"]
    found = examples(tmp_path / "out")
    assert set(found) == (set(list(files)[:4]) if with_paths else {"0", "1", "2", "3"})
    folder = image_folder(files)
    build_table(write_jsonl(folder / "metadata.jsonl", [{"file_name": n} for n in files]), "wanted", **given)
    of_files = examples(tmp_path / "wanted")
    for number, name in enumerate(list(files)[:4]):
        values = found[name if with_paths else str(number)]
        assert values["picture"] == of_files[name]["image"], name
        assert values["n"] == [number]
    # what is rejected, and what is repaired, is the same again
    check_repair(tmp_path / "out", path)


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


def test_shards_of_hugging_face_become_splits(build_table, tmp_path):
    features = {"image": {"_type": "Image"}, "label": CLASSES}
    names = [f"train-0000{part}-of-00002" for part in range(2)] + ["test-00000-of-00001-0123456789abcdef"]
    for number, name in enumerate(names):
        rows = [{"bytes": encoded(10 * number + row), "path": None} for row in range(3)]
        columns = {"image": pa.array(rows, IMAGES), "label": [0, 1, 2]}
        write_parquet(tmp_path / "repo" / "data" / f"{name}.parquet", columns, features)
    (tmp_path / "repo" / "README.md").write_text("# a card")
    manifest = build_table(tmp_path / "repo")
    assert {name: split.num_examples for name, split in manifest.splits.items()} == {"train": 6, "test": 3}
    assert manifest.schema.class_names == ("cat", "dog", "猫")
    assert manifest.schema.names == ("image", "label", "key")
    # the files come in sorted order, test first
    order = [20, 21, 22, 0, 1, 2, 10, 11, 12]
    for key, values in examples(tmp_path / "out").items():
        both = [np.asarray(Image.open(io.BytesIO(d))) for d in (values["image"][0], encoded(order[int(key)]))]
        assert np.array_equal(*both)


@pytest.mark.parametrize(
    ("names", "source", "splits"),
    [
        (["train/0000.parquet", "validation/0000.parquet"], "", ["train", "validation"]),
        (["train.parquet", "test.parquet"], "*.parquet", ["train", "test"]),
        (["part-0.parquet", "part-1.parquet"], "part-*.parquet", ["train"]),
        (["train.parquet", ".hidden/test.parquet"], "", ["train"]),
    ],
)
def test_the_names_of_several_files_are_splits_if_all_are(names, source, splits, build_table, tmp_path):
    for number, name in enumerate(names):
        write_parquet(tmp_path / "rows" / name, {"x": [number]})
    manifest = build_table(tmp_path / "rows" / source)
    assert list(manifest.splits) == splits
    assert manifest.schema.names == ("x", "key")


def test_a_column_of_splits_goes_before_the_names_of_files(build_table, tmp_path):
    for name in ("train", "test"):
        write_parquet(tmp_path / f"{name}.parquet", {"x": [1], "split": ["val"]})
    assert list(build_table(tmp_path / "*.parquet").splits) == ["val"]


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


PARTS = {
    "other columns": (["a", "b"], "", "parts-columns-differ"),
    "no match": (["a"], "c-*.parquet", "table-no-match"),
    "one without a split": (["train-00000-of-00001", "extra"], "", "parts-splits"),
    "a missing file": (["train-00000-of-00003", "test-00000-of-00001"], "", "parts-missing"),
}


@pytest.mark.parametrize(("names", "source", "code"), PARTS.values(), ids=PARTS)
def test_files_that_are_not_a_table_together_are_refused(names, source, code, tmp_path):
    for name in names:
        write_parquet(tmp_path / f"{name}.parquet", {"x" if len(name) > 1 else name: [1]})
    with raises(InputError, code):
        Table(tmp_path / source).column_names()


@pytest.mark.parametrize("name", ["train-*.parquet", "train-00001-of-00002.parquet"])
def test_named_parts_are_built_without_the_others_with_a_warning(name, build_table, tmp_path, log):
    write_parquet(tmp_path / "train-00001-of-00002.parquet", {"x": [1]})
    assert build_table(tmp_path / name).num_examples == 1
    assert f"warning: 1 of the 2 files {tmp_path / 'train-*-of-00002'} missing" in log
