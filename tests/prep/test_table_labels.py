"""Roles of table columns: classes, splits, groups, given or derived from their names."""

import numpy as np
import pyarrow as pa
import pytest

from tests.errors import fault, raises
from tests.prep.table_files import examples, write_parquet, write_text
from tfshards import loader
from tfshards.prep import ColumnRoles, Options, Table, verify
from tfshards.prep.cli.main import main
from tfshards.prep.sources.tables.labels import groups_of
from tfshards.schemas import Feature, InputError, read_manifest

HALVES = {"train": "1/2", "val": "1/2"}
MAP = pa.map_(pa.string(), pa.int64())


@pytest.fixture
def rows(tmp_path):
    """Write a table with these columns."""
    return lambda **columns: write_parquet(tmp_path / "rows.parquet", columns)


def values(out, name: str, split: str = "train") -> list[list[object]]:
    """Return one feature of each example of a split, in the order of the rows."""
    found = examples(out, split)
    return [found[key][name] for key in sorted(found, key=int)]


CLASSES = {
    "text": (["dog", "ant", "dog"], ("ant", "dog"), [[1], [0], [1]]),
    "text that is not UTF-8": (pa.array([b"\xff", b"a", b"a"]), ("a", "\udcff"), [[1], [0], [0]]),
    "a dictionary": (pa.array(["b", "a", "b"]).dictionary_encode(), ("a", "b"), [[1], [0], [1]]),
    "integers": ([2, 0, 2], (), [[2], [0], [2]]),
    "small integers": (pa.array([2, 0, 2], pa.uint8()), (), [[2], [0], [2]]),
    "uint64 within int64": (pa.array([2, 0, 2], pa.uint64()), (), [[2], [0], [2]]),
    "as many integers as allowed": (list(range(10_000)), (), [[number] for number in range(10_000)]),
    "truth values": ([True, False, True], ("false", "true"), [[1], [0], [1]]),
    "several classes of text": ([["b", "a"], [], ["a"]], ("a", "b"), [[1, 0], [], [0]]),
    "several classes, one row of them missing": ([["b"], None, ["a", "b"]], ("a", "b"), [[1], [], [0, 1]]),
    "several integers": ([[3], [], [0, 3]], (), [[3], [], [0, 3]]),
    "two classes in each row": ([["b", "a"], ["a", "b"], ["a", "a"]], ("a", "b"), [[1, 0], [0, 1], [0, 0]]),
}


@pytest.mark.parametrize(("labels", "names", "numbers"), CLASSES.values(), ids=CLASSES)
def test_a_column_of_labels_is_one_of_classes(labels, names, numbers, rows, tmp_path, build_table):
    manifest = build_table(rows(label=labels), build={"shards": 2})
    shape = () if all(len(each) == 1 for each in numbers) else (None,)
    assert manifest.schema["label"] == Feature("label", "label", "int64", shape)
    assert manifest.schema.class_names == names
    assert values(tmp_path / "out", "label") == numbers
    assert verify(tmp_path / "out", deep=True)


def test_class_names_and_several_classes_per_row_reach_the_loader(rows, tmp_path, build_table):
    build_table(rows(tags=[["sea", "sun"], [], ["sun"]]), columns=ColumnRoles(label="tags"))
    read = {"batch_size": 3, "select": ("tags", "key")}
    ((tags, keys),) = loader.load(tmp_path / "out", **read)
    assert dict(zip(keys.numpy(), tags.to_list(), strict=True)) == {b"0": [0, 1], b"1": [], b"2": [1]}


FLOATS, NEGATIVE = "floating-point numbers", "negative numbers"
# the kind of feature as which a column "label" is stored, and the warning
NOT_CLASSES = {
    "a target of a regression": ([0.5, 1.5], "raw", None),
    "lists of targets": ([[1.0], [0.0]], "raw", None),
    "NaN": ([float("nan")] * 2, "raw", None),
    "whole floats": ([1.0, 0.0], "raw", FLOATS),
    "whole floats of 16 bits": (pa.array(np.array([1, 0], np.float16)), "raw", FLOATS),
    "negative": ([-1, 1], "int", NEGATIVE),
    "too many numbers": (list(range(10_001)), "int", None),
}


@pytest.mark.parametrize(("labels", "kind", "warning"), NOT_CLASSES.values(), ids=NOT_CLASSES)
def test_a_column_named_label_is_stored_as_it_is_by_default(labels, kind, warning, rows, tmp_path):
    path = rows(label=labels)
    found = Table(path).stage(tmp_path)
    assert found.schema["label"].kind == kind
    assert len(found.warnings) == (warning is not None)
    assert all(f"'label' holds {warning}, so the values are not classes" in line for line in found.warnings)
    with raises(InputError, "label-column-fault"):
        Table(path, columns=ColumnRoles(label="label")).stage(tmp_path)


WRONG_LABELS = {
    "beyond int64": (pa.array([2**63, 1], pa.uint64()), None, "label-column-fault"),
    "missing in a list": ([["a"], ["a", None]], None, "column-missing-values"),
    "missing among floats": ([1.0, None], None, "column-missing-values"),
    "empty in a list": ([["a"], ["a", ""]], None, "label-column-empty"),
    "a new class": (["a", "b", "c"], ("a", "b"), "classes-differ"),
    "a new class in a list": ([["a", "b"], ["c"]], ("a", "b"), "classes-differ"),
    "a number too large": ([0, 2], ("a", "b"), fault("label-column-range", largest=2, num_names=2)),
    "a number too large in a list": ([[0], [1, 2]], ("a", "b"), "label-column-range"),
    "a map": (pa.array([[("a", 1)]], MAP), None, "column-type"),
}


@pytest.mark.parametrize(("labels", "names", "expected"), WRONG_LABELS.values(), ids=WRONG_LABELS)
def test_labels_that_cannot_be_classes_are_reported(labels, names, expected, rows, tmp_path):
    source = Table(rows(y=labels), columns=ColumnRoles(label="y"), class_names=names)
    with raises(InputError, expected):
        source.stage(tmp_path)


LABEL_MAPS = {
    "by name": (["b", "a"], [[0], [1]]),
    "by name in lists": ([["b", "a"], ["a"]], [[0, 1], [1]]),
    "by number": ([0, 1], [[0], [1]]),
    "by number in lists": ([[1], [0, 1]], [[1], [0, 1]]),
}


@pytest.mark.parametrize(("labels", "expected"), LABEL_MAPS.values(), ids=LABEL_MAPS)
def test_a_label_map_keeps_its_order_and_its_classes_without_rows(labels, expected, rows, tmp_path, capsys):
    names = write_text(tmp_path / "labels.txt", "b", "a", "c")
    out = tmp_path / "out"
    assert main(["build", "table", str(rows(y=labels)), str(out), "--label=y", f"--class-names={names}"]) == 0
    assert read_manifest(out).schema.class_names == ("b", "a", "c")
    assert values(out, "y") == expected
    assert "warning: column 'y': classes without rows: 1 of 3" in capsys.readouterr().err


def test_truth_values_are_looked_up_in_a_label_map_by_their_names(tmp_path, build_table):
    path = write_text(tmp_path / "rows.csv", "label", "true", "false", "true")
    build_table(path, class_names=("true", "false"))
    assert values(tmp_path / "out", "label") == [[0], [1], [0]]


def test_a_label_map_needs_labels(rows, tmp_path):
    with raises(InputError, "table-no-label"):
        Table(rows(x=[1]), class_names=("a",)).stage(tmp_path)


def test_names_of_splits_and_classes_that_look_alike_are_reported(tmp_path):
    path = write_text(tmp_path / "rows.csv", "n,split,label", "0,Train,cat", "1,train,dog", '2,val," cat"')
    assert set(Table(path).stage(tmp_path).warnings) == {
        "'Train' and 'train' look alike, but are two splits",
        "' cat' and 'cat' look alike, but are two classes",
    }


def test_a_column_names_the_splits_training_first(rows, tmp_path, build_table):
    manifest = build_table(rows(x=[0, 1, 2, 3], split=["test", "train", "odd", "validation"]))
    assert manifest.schema.names == ("x", "key")
    found = {split: values(tmp_path / "out", "x", split) for split in manifest.splits}
    assert [*found.items()] == [("train", [[1]]), ("validation", [[3]]), ("test", [[0]]), ("odd", [[2]])]


def test_splits_may_be_numbered_and_in_any_column(rows, build_table):
    manifest = build_table(rows(x=[0, 1, 2], fold=[1, 0, 1]), columns=ColumnRoles(split="fold"))
    assert {name: split.num_examples for name, split in manifest.splits.items()} == {"0": 1, "1": 2}


def test_another_split_column_is_another_build(rows, tmp_path, build_table):
    path = rows(x=[0, 1], a=["train", "val"], b=["val", "train"])
    build_table(path, columns=ColumnRoles(split="a", drop=("b",)))
    other = ColumnRoles(split="b", drop=("a",))
    with raises(InputError, "dataset-differs"):
        build_table(path, columns=other)
    build_table(path, columns=other, build={"overwrite": True})
    assert values(tmp_path / "out", "x", "train") == [[1]]


WRONG_SPLITS = {
    "no name of a split": (["train", "a/b"], fault("split-column-name", row=2)),
    "an empty one": (["train", ""], fault("split-column-name", row=2)),
    "one that is missing": (["train", None], "column-missing-values"),
    "fractions": ([0.5, 1.0], fault("split-column-type", dtype_name="float64")),
    "lists": ([["train"], ["val"]], "split-column-type"),
    "too many": ([f"s{number}" for number in range(101)], fault("split-column-many", num_names=101)),
}


@pytest.mark.parametrize(("splits", "expected"), WRONG_SPLITS.values(), ids=WRONG_SPLITS)
def test_a_column_that_cannot_name_splits_is_reported(splits, expected, rows, tmp_path):
    with raises(InputError, expected):
        Table(rows(x=list(range(len(splits))), split=splits)).stage(tmp_path)


def test_splits_by_ratio_require_dropping_the_split_column(rows, tmp_path, capsys):
    path = rows(x=list(range(10)), split=["train"] * 5 + ["val"] * 5)
    ratios = ["--split", "train=0.8", "--split", "val=0.2"]
    command = ["build", "table", str(path), str(tmp_path / "out"), *ratios]
    assert main(command) == 1
    assert "the source already has the splits train, val; leave out --split" in capsys.readouterr().err
    assert main([*command, "--drop", "split"]) == 0
    assert read_manifest(tmp_path / "out").splits["train"].num_examples == 8


@pytest.mark.parametrize(
    ("labels", "options", "counts"),
    [
        (["a"] * 10 + ["b"] * 20, {"stratify": True}, [(5, 10), (5, 10)]),
        (["a", "b"] * 5, {"group_by": "label"}, [(0, 5), (5, 0)]),
    ],
    ids=["in the same ratios", "by the name of their class"],
)
def test_rows_are_split_by_their_class(labels, options, counts, rows, build_table):
    manifest = build_table(rows(label=labels), build={"options": Options(splits=HALVES, **options)})
    assert sorted(tuple(split.label_counts.values()) for split in manifest.splits.values()) == counts


GROUPS = {
    "text": ["p1", "p2", "p3", "p4"],
    "text in a dictionary": pa.array(["p1", "p2", "p3", "p4"]).dictionary_encode(),
    "bytes": [b"\xff", b"1", b"2", b"3"],
    "integers": [1, 2, 3, 4],
    "fractions": [0.5, 1.5, 2.5, 3.5],
    "dates": pa.array([1, 2, 3, 4], pa.date32()),
    "paths": ["a.png", "b.png", "c.png", "d.png"],
}


@pytest.mark.parametrize("is_dropped", [True, False])
@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_rows_of_one_group_have_equal_values(groups, is_dropped, rows, tmp_path):
    groups = groups if isinstance(groups, pa.Array) else pa.array(groups)
    path = rows(x=list(range(40)), group=pa.concat_arrays([groups] * 10))
    # no files have these names
    columns = ColumnRoles(drop=("group",)) if is_dropped else ColumnRoles(no_images=True)
    reader = Table(path, columns=columns).stage(tmp_path)
    found = reader.groups(reader.listing(), "group")
    assert found == found[:4] * 10
    assert len(set(found)) == 4
    if groups.type == pa.int64():
        # whatever the type of the column
        assert found[:4] == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_zeros_of_either_sign_are_one_group(kind):
    first, second, third = groups_of("g", pa.chunked_array([pa.array(np.array([0.0, -0.0, 1.5], kind))]))
    assert first == second != third


WRONG_GROUPS = {
    "missing text": (["a", None, "b"], fault("group-by-missing", by="g", num_missing=1)),
    "empty text, as in CSV": (["a", "", ""], fault("group-by-missing", by="g", num_missing=2)),
    "a missing number": ([1, None, 2], fault("group-by-missing", by="g", num_missing=1)),
    "NaN": ([0.5, None, float("nan")], fault("group-by-missing", by="g", num_missing=2)),
    "lists": ([["a"], ["b"], []], fault("group-by-lists", name="g")),
    "a map": (pa.array([[("a", 1)]] * 3, MAP), fault("column-type", name="g")),
}


@pytest.mark.parametrize(("groups", "expected"), WRONG_GROUPS.values(), ids=WRONG_GROUPS)
def test_a_column_that_cannot_group_is_reported(groups, expected, rows, tmp_path):
    reader = Table(rows(x=[1, 2, 3], g=groups), columns=ColumnRoles(drop=("g",))).stage(tmp_path)
    with raises(InputError, expected):
        reader.groups(reader.listing(), "g")
    with raises(InputError, "group-by-column", by="h", columns="g, x"):
        reader.groups(reader.listing(), "h")


def test_too_many_texts_for_classes_are_refused(tmp_path, quiet_build):
    path = write_text(tmp_path / "t.csv", "label", *(f"text {number}" for number in range(10_001)))
    with raises(InputError, "label-column-many", name="label", max_classes=10_000):
        quiet_build(Table(path), tmp_path / "out")
    manifest = quiet_build(Table(path, columns=ColumnRoles(label="")), tmp_path / "out")
    assert {feature.name: feature.kind for feature in manifest.schema.features}["label"] == "bytes"
