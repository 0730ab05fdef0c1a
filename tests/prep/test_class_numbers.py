"""Numbers of classes with names of their own mean the same class in every file and dataset."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.errors import raises
from tests.prep.test_table_nested import encoded, write_parquet
from tfshards.prep import ColumnRoles, Options, Table, append, merge, plan, verify
from tfshards.prep.planning.plan import label_counts
from tfshards.prep.records.example import decode_example
from tfshards.prep.records.frames import read_records
from tfshards.schemas import InputError, read_manifest


def classes(out: Path, feature: str) -> dict[str, list[str | None]]:
    """Return the class names of each example by the last part of its key; None is no class."""
    manifest, found = read_manifest(out), {}
    for shard in manifest.shards:
        for _, data in read_records(out / shard.path, manifest.compression):
            values = decode_example(data)
            names = manifest.schema.class_names
            found[Path(values["key"][0].decode()).name] = [
                names[number] if number >= 0 else None for number in values[feature]
            ]
    return dict(sorted(found.items()))


def coco(root: Path, categories: dict[int, str], images: dict[str, list[int]]) -> Path:
    root.mkdir(exist_ok=True)
    for number, name in enumerate(images):
        (root / name).write_bytes(encoded(number))
    path = root / "instances.json"
    path.write_text(
        json.dumps(
            {
                "images": [
                    {"id": n, "file_name": name, "width": 8, "height": 6} for n, name in enumerate(images)
                ],
                "annotations": [
                    {"id": 0, "image_id": n, "category_id": each, "bbox": [0, 0, 1, 1]}
                    for n, found in enumerate(images.values())
                    for each in found
                ],
                "categories": [{"id": number, "name": name} for number, name in categories.items()],
            }
        )
    )
    return path


def yolo(root: Path, names: dict[int, str], images: dict[str, list[int]]) -> Path:
    root.mkdir(exist_ok=True)
    (root / "data.yaml").write_text(f"train: .\nnames: {json.dumps([*names.values()])}\n")
    for number, (name, found) in enumerate(images.items()):
        (root / name).write_bytes(encoded(number))
        (root / name).with_suffix(".txt").write_text("".join(f"{each} .5 .5 .5 .5\n" for each in found))
    return root


def of_numbers(names: dict[int, str], shift: int) -> dict[int, str]:
    return {number + shift: name for number, name in enumerate(names.values())}


@pytest.mark.parametrize(("form", "write", "shift"), [("coco", coco, 1), ("yolo", yolo, 0)])
def test_appended_annotations_are_translated_by_name(form, write, shift, quiet_build, tmp_path):
    out = tmp_path / "out"
    cat, dog = shift, shift + 1
    quiet_build(Table(write(tmp_path / "a", {cat: "cat", dog: "dog"}, {"a.png": [cat, dog]}), form=form), out)
    other = write(tmp_path / "b", {shift: "dog", shift + 1: "cat"}, {"b.png": [shift, shift + 1, shift]})
    roots = [str(tmp_path / "b")]
    append([str(other), *roots], out, engine="local", log=lambda _: None)
    assert classes(out, "objects/category") == {"a.png": ["cat", "dog"], "b.png": ["dog", "cat", "dog"]}
    assert read_manifest(out).schema.class_names == ("cat", "dog")

    third = write(
        tmp_path / "c",
        {shift: "cat", shift + 1: "bird", shift + 2: "dog"},
        {"c.png": [shift + 1, shift + 2]},
    )
    with raises(InputError, "classes-new", classes="class 'bird'"):
        append([str(third), str(tmp_path / "c")], out, engine="local", log=lambda _: None)
    append([str(third), str(tmp_path / "c")], out, new_classes=True, engine="local", log=lambda _: None)
    assert read_manifest(out).schema.class_names == ("cat", "dog", "bird")
    assert classes(out, "objects/category")["c.png"] == ["bird", "dog"]
    assert verify(out, deep=True)


CLASSES = {"_type": "ClassLabel", "names": ["a", "b", "c"]}


def test_given_class_names_translate_those_of_the_source(quiet_build, tmp_path):
    path = coco(tmp_path / "coco", {1: "cat", 2: "dog"}, {"a.png": [1], "b.png": [2, 1]})
    manifest = quiet_build(Table(path, form="coco", class_names=["dog", "new", "cat"]), tmp_path / "out")
    assert manifest.schema.class_names == ("dog", "new", "cat")
    assert classes(tmp_path / "out", "objects/category") == {"a.png": ["cat"], "b.png": ["dog", "cat"]}
    rows = write_parquet(tmp_path / "rows.parquet", pa.table({"y": [0, 1, 2, -1]}), {"y": CLASSES})
    quiet_build(Table(rows, class_names=["c", "b", "a"]), tmp_path / "rows")
    assert classes(tmp_path / "rows", "y") == {"0": ["a"], "1": ["b"], "2": ["c"], "3": [None]}
    with raises(InputError, "classes-differ"):
        quiet_build(Table(rows, class_names=["A", "b", "c"]), tmp_path / "wrong")


def test_appended_rows_are_translated_by_the_names_in_their_metadata(quiet_build, tmp_path):
    rows = write_parquet(tmp_path / "rows.parquet", pa.table({"x": [0, 1], "y": [0, 2]}), {"y": CLASSES})
    quiet_build(Table(rows), tmp_path / "out")
    turned = {"_type": "ClassLabel", "names": ["c", "b", "a"]}
    write_parquet(rows, pa.table({"x": [0, 1, 2], "y": [2, 0, 0]}), {"y": turned})
    append(str(rows), tmp_path / "out", engine="local", log=lambda _: None)
    assert classes(tmp_path / "out", "y") == {"0": ["a"], "1": ["c"], "2": ["c"]}


def test_numbers_beyond_the_names_of_the_source_are_refused(quiet_build, tmp_path):
    rows = write_parquet(tmp_path / "rows.parquet", pa.table({"y": [0, 3]}), {"y": CLASSES})
    for names in (None, ["a", "b", "c", "d"]):
        with raises(InputError, "label-column-range", name="y", largest=3):
            quiet_build(Table(rows, class_names=names), tmp_path / "out")


def test_parts_with_other_class_names_are_refused_and_can_be_merged(quiet_build, tmp_path):
    parts = tmp_path / "parts"
    for name, names in (("train", ["cat", "dog"]), ("test", ["dog", "cat"])):
        features = {"y": {"_type": "ClassLabel", "names": names}}
        write_parquet(parts / f"{name}.parquet", pa.table({"y": [0, 1]}), features)
    with raises(InputError, "parts-classes-differ"):
        quiet_build(Table(parts), tmp_path / "out")
    for name in ("train", "test"):
        quiet_build(Table(parts / f"{name}.parquet", class_names=["cat", "dog"]), tmp_path / name)
    merge({"train": tmp_path / "train", "test": tmp_path / "test"}, tmp_path / "out", log=lambda _: None)
    assert classes(tmp_path / "train", "y") == {"0": ["cat"], "1": ["dog"]}
    assert classes(tmp_path / "test", "y") == {"0": ["dog"], "1": ["cat"]}


@pytest.mark.parametrize("missing", [-1, None])
def test_a_split_without_classes_keeps_the_names(missing, quiet_build, tmp_path, log):
    for name, labels in (("train", [0, 1, 2]), ("test", [missing] * 2)):
        table = pa.table({"label": pa.array(labels, pa.int64())})
        write_parquet(tmp_path / "parts" / f"{name}.parquet", table, {"label": CLASSES})
    manifest = quiet_build(Table(tmp_path / "parts"), tmp_path / "out")
    assert manifest.schema.class_names == ("a", "b", "c")
    assert classes(tmp_path / "out", "label") == {
        "0": [None],
        "1": [None],
        "2": ["a"],
        "3": ["b"],
        "4": ["c"],
    }
    assert "warning: column 'label': 2 rows have no class (-1)" in log
    assert verify(tmp_path / "out", deep=True)
    with raises(InputError, "group-by-no-class", by="label", without=2):
        quiet_build(
            Table(tmp_path / "parts" / "test.parquet"),
            tmp_path / "grouped",
            options=Options(splits={"a": "1/2", "b": "1/2"}, group_by="label"),
        )


def test_rows_without_a_class_are_stratified_with_the_others(quiet_build, tmp_path):
    rows = pa.table({"label": [-1, 0, 1] * 8, "g": [number // 2 for number in range(24)]})
    path = write_parquet(tmp_path / "rows.parquet", rows, {"label": CLASSES})
    for number, by in enumerate([None, "g"]):
        options = Options(splits={"a": "1/2", "b": "1/2"}, stratify=True, group_by=by)
        manifest = quiet_build(Table(path), tmp_path / f"{number}", options=options)
        assert sum(split.num_examples for split in manifest.splits.values()) == 24


def test_rows_without_a_class_are_of_no_class_in_a_plan(tmp_path):
    splits = ["train"] * 3 + ["val"] * 2 + ["test"] * 2 + ["more"]
    rows = pa.table({"label": [0, 1, 2, 0, 1, -1, 0, 2], "split": splits})
    path = write_parquet(tmp_path / "rows.parquet", rows, {"label": CLASSES})
    found = plan(Table(path), tmp_path / "out")
    # an example of "test" may have any class
    assert [line for line in found.warnings if "keep their numbers" in line] == [
        "the split 'val' has no examples of 'c'; the classes keep their numbers",
        "the split 'more' has no examples of 'a', 'b'; the classes keep their numbers",
    ]
    assert {split: label_counts(found.listing, layout) for split, layout in found.layouts.items()} == {
        "more": {"a": 0, "b": 0, "c": 1},
        "test": {},
        "train": {"a": 1, "b": 1, "c": 1},
        "val": {"a": 1, "b": 1, "c": 0},
    }


def test_labels_that_are_no_classes_do_not_lose_their_names(quiet_build, tmp_path):
    path = write_parquet(tmp_path / "rows.parquet", pa.table({"label": [0, -2]}), {"label": CLASSES})
    with pytest.raises(InputError, match=r"^column 'label': the label -2 is negative or exceeds int64;"):
        quiet_build(Table(path), tmp_path / "out")


def test_repeated_names_in_metadata_are_refused(quiet_build, tmp_path):
    features = {"y": {"_type": "ClassLabel", "names": ["a", "b", "a"]}}
    path = write_parquet(tmp_path / "rows.parquet", pa.table({"y": [0, 1]}), features)
    with raises(InputError, "table-class-repeated", repeated="a", column="y"):
        quiet_build(Table(path), tmp_path / "out")


def test_lists_of_lists_are_no_classes(quiet_build, tmp_path):
    path = write_parquet(tmp_path / "rows.parquet", pa.table({"label": [[[1, 2]], [[3, 4], [5, 6]]]}))
    assert quiet_build(Table(path), tmp_path / "out").schema["label"].shape == (None, 2)
    with raises(InputError, "label-column-nested", name="label"):
        quiet_build(Table(path, columns=ColumnRoles(label="label")), tmp_path / "named")


PARTS = {
    "one without a split": (
        ["train-00000-of-00001", "extra"],
        "parts-splits",
    ),
    "a missing file": (
        ["train-00000-of-00003", "test-00000-of-00001"],
        "parts-missing",
    ),
}


@pytest.mark.parametrize(("names", "message"), PARTS.values(), ids=PARTS.keys())
def test_parts_that_do_not_fit_are_refused(names, message, quiet_build, tmp_path):
    for name in names:
        write_parquet(tmp_path / "rows" / f"{name}.parquet", pa.table({"x": [1]}))
    with raises(InputError, message):
        quiet_build(Table(tmp_path / "rows"), tmp_path / "out")


@pytest.mark.parametrize("name", ["train-*.parquet", "train-00001-of-00002.parquet"])
def test_named_parts_are_built_without_the_others_with_a_warning(name, quiet_build, tmp_path, log):
    write_parquet(tmp_path / "train-00001-of-00002.parquet", pa.table({"x": [1]}))
    assert quiet_build(Table(tmp_path / name), tmp_path / "out").num_examples == 1
    series = tmp_path / "train-*-of-00002"
    assert f"warning: 1 of the 2 files {series} is missing" in log
