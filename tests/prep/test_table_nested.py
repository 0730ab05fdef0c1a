"""Tables in the layouts of Hugging Face: nested values, images inside of Parquet, shards, class names."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from tests.errors import raises
from tests.prep.test_table_images import records
from tfshards import loader
from tfshards.prep import ColumnRoles, ImageOptions, Options, Table
from tfshards.prep.cli.main import main
from tfshards.schemas import Feature, InputError

BOXES = {
    "a.png": ([[302.0, 109.0, 73.0, 52.0], [810.0, 100.5, 57.0, 28.0]], [0, 1]),
    "b.png": ([], []),
    "c.png": ([[160.0, 31.0, 248.0, 616.0]], [1]),
}


def encoded(number: int, kind: str = "PNG", mode: str = "RGB") -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (6, 8, 4), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind)
    return file.getvalue()


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_parquet(path: Path, table: pa.Table, features: object = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if features is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pa.parquet.write_table(table, path)
    return path


@pytest.fixture
def quick(quiet_build, tmp_path):
    """Build a table, and return the manifest."""

    def run(source, name="out", options=None, columns=None, **given):
        roles = columns or ColumnRoles()
        return quiet_build(
            Table(source, columns=roles, **given), tmp_path / name, options=options or Options()
        )

    return run


@pytest.mark.parametrize("form", ["struct of lists", "list of structs"])
def test_metadata_jsonl_with_objects_gives_rows_of_boxes(form, image_folder, quick, tmp_path):
    root = image_folder({name: number for number, name in enumerate(BOXES)})
    rows = []
    for name, (boxes, classes) in BOXES.items():
        objects = {"bbox": boxes, "categories": classes}
        if form == "list of structs":
            objects = [{"bbox": box, "categories": each} for box, each in zip(boxes, classes, strict=True)]
        rows.append({"file_name": name, "objects": objects})
    write_jsonl(root / "metadata.jsonl", rows)
    manifest = quick(root)
    assert manifest.schema["objects/bbox"] == Feature("objects/bbox", "float", "float32", (None, 4))
    assert manifest.schema["objects/categories"] == Feature("objects/categories", "int", "int64", (None,))
    (batch,) = loader.load(tmp_path / "out", batch_size=3)
    assert batch["objects/bbox"].shape.as_list() == [3, None, 4]
    by_key = dict(zip(batch["key"].numpy(), range(3), strict=True))
    for name, (boxes, classes) in BOXES.items():
        row = by_key[name.encode()]
        assert batch["objects/bbox"][row].numpy().tolist() == boxes
        assert batch["objects/categories"][row].numpy().tolist() == classes


def test_the_fields_of_a_struct_are_columns(quick, tmp_path):
    rows = [{"x": 1, "meta": {"date": "2020-01-02", "place": {"lat": 0.5}}, "n": [2, 3]}] * 2
    manifest = quick(write_jsonl(tmp_path / "rows.jsonl", rows), "out")
    assert manifest.schema.names == ("x", "meta/date", "meta/place/lat", "n", "key")
    values = records(tmp_path / "out")["0"]
    assert values["meta/date"] == [b"2020-01-02"]
    assert np.frombuffer(values["meta/place/lat"][0], "<f8").tolist() == [0.5]
    dropped = quick(tmp_path / "rows.jsonl", "dropped", columns=ColumnRoles(drop=("meta",)))
    assert dropped.schema.names == ("x", "n", "key")
    assert main(["verify", str(tmp_path / "dropped"), "--deep"]) == 0


TYPES = [
    (
        pa.list_(pa.list_(pa.int64())),
        [[[1, 2]], [], None],
        ("int", "int64"),
        [[[1, 2]], [], []],
        "missing is empty",
    ),
    (
        pa.list_(pa.list_(pa.bool_(), 2)),
        [[[True, False]], []],
        ("int", "bool"),
        [[[1, 0]], []],
        "a fixed length",
    ),
    (
        pa.large_list(pa.list_(pa.float32())),
        [[[0.5], [None]]],
        ("float", "float32"),
        [[[0.5], [np.nan]]],
        "NaN",
    ),
    (
        pa.list_(pa.list_(pa.float32(), 2)),
        [[], None],
        ("float", "float32"),
        [[], []],
        "all empty, of a declared length",
    ),
    (pa.list_(pa.list_(pa.float64())), [[[0.1, 2]], [[3, 4]] * 2], ("float", "float32"), None, "rounded"),
]


@pytest.mark.parametrize(
    ("kind", "values", "stored", "wanted", "reason"), TYPES, ids=[row[-1] for row in TYPES]
)
def test_lists_of_lists_are_rows(kind, values, stored, wanted, reason, quick, tmp_path, log):
    path = write_parquet(tmp_path / "rows.parquet", pa.table({"x": pa.array(values, kind)}))
    feature = quick(path).schema["x"]
    length = next((len(row) for rows in values for row in rows or ()), 2)
    assert feature == Feature("x", *stored, (None, length)), reason
    (batch,) = loader.load(tmp_path / "out", batch_size=len(values))
    if wanted is None:
        wanted = [np.array(rows, np.float32).tolist() for rows in values]
    assert any("lists of lists are stored as float32" in line for line in log) == (reason == "rounded")
    by_key = sorted(zip(batch["key"].numpy(), batch["x"].to_list(), strict=True))
    assert repr([rows for _, rows in by_key]) == repr(
        [
            [[type(each)(each) if stored[1] != "bool" else bool(each) for each in row] for row in rows]
            for rows in wanted
        ]
    )


REFUSED = {
    "polygons": (
        pa.array([[[1.0, 2.0, 3.0]], [[1.0, 2.0]]]),
        r"^column 'x': its inner lists differ in length, such as 3 and 2; leave out",
    ),
    "empty rows": (
        pa.array([[[]]], pa.list_(pa.list_(pa.int64()))),
        r"^column 'x': its inner lists are all em",
    ),
    "no rows": (
        pa.array([[]], pa.list_(pa.list_(pa.int64()))),
        r"^column 'x': its inner lists have no known length, since all lists are empty; give them a fixed",
    ),
    "a missing row": (pa.array([[[1], None]]), r"^column 'x': 1 of its inner lists are missing; leave out"),
    "a missing number": (
        pa.array([[[1], [None]]]),
        r"^column 'x': 1 value is missing, the first in data row 2;",
    ),
    "text": (
        pa.array([[["a"]]]),
        r"^column 'x': its type list<\w+: list<\w+: string>> cannot be stored; lea",
    ),
    "uint64": (
        pa.array([[[1]]], pa.list_(pa.list_(pa.uint64()))),
        r"^column 'x': its type .* cannot be stor",
    ),
    "three levels": (
        pa.array([[[[1]]]]),
        r"^column 'x': its type .* cannot be stored; leave out",
    ),
    "too large for float32": (
        pa.array([[[1e300]]]),
        r"^column 'x': its lists of lists are stored as float32, which cannot hold 1e\+300; scale the values",
    ),
}


@pytest.mark.parametrize(("values", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_lists_of_lists_that_are_no_rows_are_refused(values, message, tmp_path):
    path = write_parquet(tmp_path / "rows.parquet", pa.table({"x": values}))
    (tmp_path / "stage").mkdir()
    with pytest.raises(InputError, match=message):
        Table(path).stage(tmp_path / "stage")


def test_an_integer_inside_of_a_struct_is_not_rounded(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", [{"x": {"n": [[0.5], [2**60 + 1]]}}])
    with pytest.raises(InputError, match=r"row 0: column 'x': 1152921504606846977 would be rounded"):
        Table(path).stage(tmp_path)


IMAGES = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@pytest.mark.parametrize("layout", ["struct", "struct without paths", "bytes", "bytes by name"])
def test_images_inside_of_parquet_are_treated_as_files_are(layout, image_folder, quick, tmp_path, log):
    files = {
        "a.png": encoded(0),
        "b.jpg": encoded(1, "JPEG"),
        "c.png": encoded(2, "PNG", "RGBA"),
        "d.bmp": encoded(3, "BMP"),
        "e.png": encoded(4)[:-30],
    }
    folder = image_folder(files)
    with_paths = layout == "struct"
    values = list(files.values())
    if layout.startswith("struct"):
        paths = [name if with_paths else None for name in files]
        rows = [{"bytes": data, "path": path} for data, path in zip(values, paths, strict=True)]
        column = pa.array([*rows, {"bytes": None, "path": "f.png"} if with_paths else None], IMAGES)
    else:
        column = pa.array([*values, None], pa.binary())
    path = write_parquet(tmp_path / "rows.parquet", pa.table({"picture": column, "n": range(6)}))
    columns = ColumnRoles(images=("picture",)) if layout == "bytes by name" else None
    options = Options(max_rejected=1)
    manifest = quick(path, options=options, columns=columns, images=ImageOptions(format="png"))
    assert manifest.schema["picture"].kind == "image"
    assert sorted(manifest.totals.reasons["rejected"]) == ["damaged", "missing"]
    found = records(tmp_path / "out")
    assert set(found) == (set(list(files)[:4]) if with_paths else {"0", "1", "2", "3"})
    wanted = write_jsonl(folder / "metadata.jsonl", [{"file_name": name} for name in files])
    quick(wanted, "wanted", options=options, images=ImageOptions(format="png"))
    of_files = records(tmp_path / "wanted")
    for number, name in enumerate(list(files)[:4]):
        values = found[name if with_paths else str(number)]
        assert values["picture"] == of_files[name]["image"], name
        assert values["n"] == [number]
    is_told = any("column 'picture' holds images, as with images='picture'" in line for line in log)
    assert is_told == (layout == "bytes")
    # what is rejected, and what is repaired, is the same again
    shard = tmp_path / "out" / manifest.shards[0].path
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert main(["verify", str(tmp_path / "out"), "--repair", str(path)]) == 0
    assert shard.read_bytes() == whole


def test_an_image_in_a_table_that_is_too_large_is_rejected(quick, tmp_path):
    table = pa.table({"image": pa.array([encoded(0), encoded(1, "JPEG")])})
    path = write_parquet(tmp_path / "rows.parquet", table)
    limit = len(encoded(1, "JPEG"))
    assert len(encoded(0)) < limit
    manifest = quick(path, options=Options(max_rejected=1), images=ImageOptions(max_bytes=limit - 1))
    assert manifest.totals.reasons["rejected"] == {"too large": 1}


def test_structs_whose_bytes_are_all_missing_name_files(image_folder, quick, tmp_path):
    root = image_folder({"a.png": 1, "b.png": 2})
    rows = pa.array([{"bytes": None, "path": name} for name in ("a.png", "b.png")], IMAGES)
    path = write_parquet(root / "rows.parquet", pa.table({"image": rows}))
    assert quick(path).schema["image"].kind == "image"
    assert set(records(tmp_path / "out")) == {"a.png", "b.png"}


def test_paths_as_bytes_are_paths(image_folder, quick, tmp_path):
    root = image_folder({"a.png": 1, "b.png": 2})
    path = write_parquet(root / "rows.parquet", pa.table({"left": pa.array([b"a.png", b"b.png"])}))
    quick(path, columns=ColumnRoles(images=("left",)))
    assert set(records(tmp_path / "out")) == {"a.png", "b.png"}


CLASSES = {"names": ["cat", "dog", "猫"], "_type": "ClassLabel"}


@pytest.mark.parametrize(
    ("columns", "features", "label", "reason"),
    [
        ({"label": [2, 0]}, {"label": CLASSES, "image": {"_type": "Image"}}, "label", "the usual name"),
        ({"fine": [2, 0]}, {"fine": CLASSES}, "fine", "the only one with classes"),
        (
            {"objects": [{"id": [1], "category": [2]}, {"id": [2, 3], "category": [0, 2]}]},
            {"objects": {"feature": {"id": {"dtype": "int64", "_type": "Value"}, "category": CLASSES}}},
            "objects/category",
            "objects",
        ),
        (
            {"objects": [{"category": [2]}, {"category": [0, 2]}]},
            {"objects": {"_type": "Sequence", "feature": {"category": CLASSES}}},
            "objects/category",
            "a Sequence",
        ),
        (
            {"objects": [[{"category": 2}], [{"category": 0}, {"category": 2}]]},
            {"objects": [{"category": CLASSES}]},
            "objects/category",
            "a list",
        ),
        (
            {"fine": [2, 0], "coarse": [0, 1]},
            {"fine": CLASSES, "coarse": CLASSES},
            None,
            "which one is not said",
        ),
        ({"fine": [2, 0]}, {"fine": {"_type": "ClassLabel", "num_classes": 3}}, None, "no names"),
        ({"label": [2, -1]}, {"label": CLASSES}, "label", "a row without a class"),
        ({"label": [-1, -1]}, {"label": CLASSES}, "label", "a split without labels"),
        ({"fine": [2, 0]}, "features", None, "other metadata"),
        ({"fine": [2, 0]}, None, None, "no metadata"),
    ],
)
def test_class_names_come_from_the_metadata_of_hugging_face(
    columns, features, label, reason, quick, tmp_path
):
    path = write_parquet(tmp_path / "rows.parquet", pa.table({"x": [1, 2], **columns}), features)
    schema = quick(path).schema
    assert [feature.name for feature in schema.features if feature.kind == "label"] == [label] * bool(label)
    assert schema.class_names == (("cat", "dog", "猫") if label else ()), reason


def test_shards_of_hugging_face_become_splits(quick, tmp_path):
    features = {"image": {"_type": "Image"}, "label": CLASSES}
    names = [f"train-0000{part}-of-00002" for part in range(2)] + ["test-00000-of-00001-0123456789abcdef"]
    for number, name in enumerate(names):
        rows = [{"bytes": encoded(10 * number + row), "path": None} for row in range(3)]
        table = pa.table({"image": pa.array(rows, IMAGES), "label": [0, 1, 2]})
        write_parquet(tmp_path / "repo" / "data" / f"{name}.parquet", table, features)
    (tmp_path / "repo" / "README.md").write_text("# a card")
    manifest = quick(tmp_path / "repo")
    assert {name: split.num_examples for name, split in manifest.splits.items()} == {"train": 6, "test": 3}
    assert manifest.schema.class_names == ("cat", "dog", "猫")
    assert manifest.schema.names == ("image", "label", "key")
    pixels = {
        int(key): image.tobytes()
        for split in manifest.splits
        for batch in loader.load(tmp_path / "out", split, batch_size=3, image=loader.Image(size=(6, 8)))
        for key, image in zip(batch["key"].numpy(), batch["image"].numpy(), strict=True)
    }
    # the files come in sorted order, test first
    order = [(2, row) for row in range(3)] + [(part, row) for part in range(2) for row in range(3)]
    for row, (number, part) in enumerate(order):
        wanted = Image.open(io.BytesIO(encoded(10 * number + part))).convert("RGB")
        assert pixels[row] == wanted.tobytes()
    shard = tmp_path / "out" / manifest.shards[0].path
    whole = shard.read_bytes()
    shard.unlink()
    assert main(["verify", str(tmp_path / "out"), "--repair", str(tmp_path / "repo")]) == 0
    assert shard.read_bytes() == whole


@pytest.mark.parametrize(
    ("names", "source", "splits"),
    [
        (["train/0000.parquet", "validation/0000.parquet"], "", ["train", "validation"]),
        (["train.parquet", "test.parquet"], "*.parquet", ["train", "test"]),
        (["part-0.parquet", "part-1.parquet"], "part-*.parquet", ["train"]),
        (["train.parquet", ".hidden/test.parquet"], "", ["train"]),
    ],
)
def test_the_names_of_several_files_are_splits_if_all_of_them_are(names, source, splits, quick, tmp_path):
    for number, name in enumerate(names):
        write_parquet(tmp_path / "rows" / name, pa.table({"x": [number]}))
    manifest = quick(tmp_path / "rows" / source)
    assert list(manifest.splits) == splits
    assert manifest.schema.names == ("x", "key")


def test_a_column_of_splits_goes_before_the_names_of_files(quick, tmp_path):
    for name in ("train", "test"):
        write_parquet(tmp_path / f"{name}.parquet", pa.table({"x": [1], "split": ["val"]}))
    assert list(quick(tmp_path / "*.parquet").splits) == ["val"]


def test_files_that_are_no_table_together_are_refused(tmp_path):
    write_parquet(tmp_path / "a.parquet", pa.table({"x": [1]}))
    write_parquet(tmp_path / "b.parquet", pa.table({"y": [1]}))
    with raises(InputError, "parts-columns-differ"):
        Table(tmp_path).stage(tmp_path)
    with raises(InputError, "table-no-match"):
        Table(tmp_path / "c-*.parquet").stage(tmp_path)


def test_tensorflow_datasets_reads_rows(image_folder, quick, tmp_path):
    tfds = pytest.importorskip("tensorflow_datasets")
    root = image_folder({name: number for number, name in enumerate(BOXES)})
    rows = [
        {"file_name": name, "objects": {"bbox": boxes, "categories": classes}}
        for name, (boxes, classes) in BOXES.items()
    ]
    write_jsonl(root / "metadata.jsonl", rows)
    quick(root)
    builder = tfds.builder_from_directory(tmp_path / "out")
    for example in builder.as_dataset(split="train"):
        boxes, classes = BOXES[example["key"].numpy().decode()]
        assert example["objects/bbox"].numpy().tolist() == boxes
        assert example["objects/categories"].numpy().tolist() == classes
