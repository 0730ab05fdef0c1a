"""Roles of table columns: classes, splits, groups, given or derived from their names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.errors import fault, raises
from tfshards import loader
from tfshards.prep import ColumnRoles, Options, Table, verify
from tfshards.prep.cli.main import main
from tfshards.prep.planning.splits import parse_ratios
from tfshards.prep.records.example import decode_example
from tfshards.prep.records.frames import read_records
from tfshards.prep.sources.tables.labels import groups_of
from tfshards.schemas import Feature, InputError, read_manifest


def parquet(folder: Path, **columns: object) -> Path:
    path = folder / "rows.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    return path


def values(out: Path, name: str, split: str = "train") -> list[list[object]]:
    """Return one feature of each example of a split, in the order of the rows."""
    shards = read_manifest(out).splits[split].shards
    found = [decode_example(data) for shard in shards for _, data in read_records(out / shard.path, "none")]
    return [row[name] for row in sorted(found, key=lambda row: int(row["key"][0]))]


CLASSES = {
    "text": (["dog", "ant", "dog"], ("ant", "dog"), [[1], [0], [1]]),
    "text that is not UTF-8": (pa.array([b"\xff", b"a", b"a"]), ("a", "\udcff"), [[1], [0], [0]]),
    "a dictionary": (pa.array(["b", "a", "b"]).dictionary_encode(), ("a", "b"), [[1], [0], [1]]),
    "integers": ([2, 0, 2], (), [[2], [0], [2]]),
    "small integers": (pa.array([2, 0, 2], pa.uint8()), (), [[2], [0], [2]]),
    "uint64 within int64": (pa.array([2, 0, 2], pa.uint64()), (), [[2], [0], [2]]),
    "truth values": ([True, False, True], ("false", "true"), [[1], [0], [1]]),
    "several classes of text": ([["b", "a"], [], ["a"]], ("a", "b"), [[1, 0], [], [0]]),
    "several classes, one row of them missing": ([["b"], None, ["a", "b"]], ("a", "b"), [[1], [], [0, 1]]),
    "several integers": ([[3], [], [0, 3]], (), [[3], [], [0, 3]]),
    "two classes in each row": ([["b", "a"], ["a", "b"], ["a", "a"]], ("a", "b"), [[1, 0], [0, 1], [0, 0]]),
}


@pytest.mark.parametrize(("labels", "names", "numbers"), CLASSES.values(), ids=CLASSES.keys())
def test_a_column_of_labels_is_one_of_classes(labels, names, numbers, tmp_path, quiet_build):
    manifest = quiet_build(Table(parquet(tmp_path, label=labels)), tmp_path / "out", shards=2)
    shape = () if all(len(each) == 1 for each in numbers) else (None,)
    assert manifest.schema["label"] == Feature("label", "label", "int64", shape)
    assert manifest.schema.class_names == names
    assert values(tmp_path / "out", "label") == numbers
    assert verify(tmp_path / "out", deep=True)


def test_class_names_and_several_classes_per_row_reach_the_loader(tmp_path, quiet_build):
    path = parquet(tmp_path, tags=[["sea", "sun"], [], ["sun"]])
    quiet_build(Table(path, columns=ColumnRoles(label="tags")), tmp_path / "out")
    read = {"batch_size": 3, "select": ("tags", "key"), "class_names": ["sea", "sun"]}
    ((tags, keys),) = loader.load(tmp_path / "out", **read)
    assert dict(zip(keys.numpy(), tags.to_list(), strict=True)) == {b"0": [0, 1], b"1": [], b"2": [1]}


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ([0.5, 1.5], "raw"),  # a target of a regression
        ([-1, 1], "int"),
        (list(range(10_001)), "int"),
        ([str(number) for number in range(10_001)], "bytes"),  # captions
        ([[0.5], [1.0]], "raw"),
    ],
)
def test_a_column_named_label_is_stored_as_it_is_by_default(labels, kind, tmp_path, quiet_build):
    path = parquet(tmp_path, label=labels)
    manifest = quiet_build(Table(path), tmp_path / "out")
    assert manifest.schema["label"].kind == kind
    with pytest.raises(
        InputError, match=r"^column 'label': .* name another column with label=, or rename this one$"
    ):
        quiet_build(Table(path, columns=ColumnRoles(label="label")), tmp_path / "other")


def test_ten_thousand_labels_are_classes(tmp_path, quiet_build):
    manifest = quiet_build(Table(parquet(tmp_path, label=list(range(10_000)))), tmp_path / "out")
    assert manifest.schema["label"].kind == "label"


WRONG_LABELS = {
    "fractions": (
        [0.5, 1.0],
        None,
        r"^column 'y': labels must be text or integers, not float64; name anot",
    ),
    "negative": (
        [-1, 1],
        None,
        r"^column 'y': the label -1 is negative or exceeds int64; name another",
    ),
    "beyond int64": (
        pa.array([2**63, 1], pa.uint64()),
        None,
        r"the label 9223372036854775808 is negative or exceeds int64",
    ),
    "too many": (
        list(range(10_001)),
        None,
        r"has more than 10000 different labels, which is too many for classes; name",
    ),
    "missing": (
        ["a", None],
        None,
        r"^column 'y': 1 value is missing, the first in data row 2; fill it in",
    ),
    "empty": (
        ["a", ""],
        None,
        r"^column 'y', data row 2, holds an empty string, which is not a class name; write",
    ),
    "empty in a list": (
        [["a"], ["a", ""]],
        None,
        r"^column 'y' holds an empty string, which is not a class name; write the class",
    ),
    "a new class": (
        ["a", "b", "c"],
        ("a", "b"),
        r"'c' is not among them; add new classes at their end",
    ),
    "a new class in a list": ([["a", "b"], ["c"]], ("a", "b"), r"'c' is not among them"),
    "a number too large": (
        [0, 2],
        ("a", "b"),
        r"^column 'y': the label 2 is not one of the 2 class names, which are numbered from 0 to 1$",
    ),
    "a number too large in a list": (
        [[0], [1, 2]],
        ("a", "b"),
        r"the label 2 is not one of the 2 class names",
    ),
    "a map": (
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        None,
        r"^column 'y': its type map<string, int64.*> cannot be stored",
    ),
}


@pytest.mark.parametrize(("labels", "names", "message"), WRONG_LABELS.values(), ids=WRONG_LABELS.keys())
def test_labels_that_cannot_be_classes_are_reported(labels, names, message, tmp_path, quiet_build):
    source = Table(parquet(tmp_path, y=labels), columns=ColumnRoles(label="y"), class_names=names)
    with pytest.raises(InputError, match=message):
        quiet_build(source, tmp_path / "out")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["b", "a"], [[0], [1]]),  # by name
        ([["b", "a"], ["a"]], [[0, 1], [1]]),
        ([0, 1], [[0], [1]]),  # by number
        ([[1], [0, 1]], [[1], [0, 1]]),
    ],
)
def test_a_label_map_from_a_file_keeps_its_order(labels, expected, tmp_path, capsys):
    (tmp_path / "labels.txt").write_text("b\na\n")
    path, out = parquet(tmp_path, y=labels), tmp_path / "out"
    assert (
        main(["build", "table", str(path), str(out), "--label=y", f"--class-names={tmp_path / 'labels.txt'}"])
        == 0
    )
    assert read_manifest(out).schema.class_names == ("b", "a")
    assert values(out, "y") == expected


@pytest.mark.parametrize("labels", [["a", "a"], [0, 0], [["a"], []]])
def test_a_class_of_the_label_map_may_have_no_row(labels, tmp_path, quiet_build, log):
    path = parquet(tmp_path, label=labels)
    manifest = quiet_build(Table(path, class_names=("a", "b", "c")), tmp_path / "out")
    assert manifest.schema.class_names == ("a", "b", "c")
    assert log[0] == "warning: column 'label': 2 of the 3 classes have no row"


def test_truth_values_are_looked_up_in_a_label_map_by_their_names(tmp_path, quiet_build):
    (tmp_path / "rows.csv").write_text("label\ntrue\nfalse\ntrue\n")
    quiet_build(Table(tmp_path / "rows.csv", class_names=("true", "false")), tmp_path / "out")
    assert values(tmp_path / "out", "label") == [[0], [1], [0]]


def test_a_label_map_needs_labels(tmp_path, quiet_build):
    with raises(InputError, "table-no-label"):
        quiet_build(Table(parquet(tmp_path, x=[1]), class_names=("a",)), tmp_path / "out")


def test_class_names_that_look_the_same_are_reported(tmp_path, quiet_build, log):
    quiet_build(Table(parquet(tmp_path, label=["Dog", "dog"])), tmp_path / "out")
    assert log[0] == "warning: 'Dog' and 'dog' look alike, but are two classes"


def test_a_column_names_the_splits_training_first(tmp_path, quiet_build):
    path = parquet(tmp_path, x=[0, 1, 2, 3], split=["test", "train", "odd", "validation"])
    manifest = quiet_build(Table(path), tmp_path / "out")
    assert list(manifest.splits) == ["train", "validation", "test", "odd"]
    assert manifest.schema.names == ("x", "key")
    assert {split: values(tmp_path / "out", "x", split) for split in manifest.splits} == {
        "train": [[1]],
        "validation": [[3]],
        "test": [[0]],
        "odd": [[2]],
    }


def test_splits_may_be_numbered_and_in_any_column(tmp_path, quiet_build):
    path = parquet(tmp_path, x=[0, 1, 2], fold=[1, 0, 1])
    manifest = quiet_build(Table(path, columns=ColumnRoles(split="fold")), tmp_path / "out")
    assert {split: manifest.splits[split].num_examples for split in manifest.splits} == {"0": 1, "1": 2}


NOT_CLASSES = {
    "whole floats": ([1.0, 0.0], "floating-point", "as integers or text"),
    "whole floats, one missing": ([1.0, None], "floating-point", "as integers or text"),
    "negative": ([-1, 1], "negative", "as integers from 0, or as text"),
    "fractions": ([0.5, 1.0], None, ""),
    "lists": ([[1.0], [0.0]], None, ""),
    "NaN": ([float("nan")] * 2, None, ""),
}


@pytest.mark.parametrize(("labels", "kind", "remedy"), NOT_CLASSES.values(), ids=NOT_CLASSES.keys())
def test_numbers_that_look_like_classes_but_are_not_are_reported(labels, kind, remedy, tmp_path):
    (tmp_path / "stage").mkdir()
    found = Table(parquet(tmp_path, label=labels, x=[1, 2])).stage(tmp_path / "stage")
    assert found.schema["label"].kind != "label"
    line = f"the column 'label' holds {kind} numbers, so the values are not classes; if they are, save them"
    assert found.warnings == ((f"{line} {remedy}",) if kind else ())


def test_another_split_column_is_another_build(tmp_path, quiet_build):
    path = parquet(tmp_path, x=[0, 1], a=["train", "val"], b=["val", "train"])
    quiet_build(Table(path, columns=ColumnRoles(split="a", drop=("b",))), tmp_path / "out")
    other = Table(path, columns=ColumnRoles(split="b", drop=("a",)))
    with raises(InputError, "dataset-differs"):
        quiet_build(other, tmp_path / "out")
    quiet_build(other, tmp_path / "out", overwrite=True)
    assert values(tmp_path / "out", "x", "train") == [[1]]


WRONG_SPLITS = {
    "no name of a split": (
        ["train", "a/b"],
        r"^column 'split', data row 2: the split name .*a/b.* must be letters, digi",
    ),
    "an empty one": (["train", ""], r"^column 'split', data row 2: the split name "),
    "one that is missing": (["train", None], r"^column 'split': 1 value is missing, the first in data row 2"),
    "fractions": (
        [0.5, 1.0],
        r"^column 'split': names of splits must be text or integers, not float64$",
    ),
    "lists": ([["train"], ["val"]], r"names of splits must be text or integers, not list<"),
    "too many": (
        [f"s{number}" for number in range(101)],
        r"^column 'split': names 101 splits, more than 100; if it does not hold splits, leave it out w",
    ),
}


@pytest.mark.parametrize(("splits", "message"), WRONG_SPLITS.values(), ids=WRONG_SPLITS.keys())
def test_a_column_that_cannot_name_splits_is_reported(splits, message, tmp_path, quiet_build):
    path = parquet(tmp_path, x=list(range(len(splits))), split=splits)
    with pytest.raises(InputError, match=message):
        quiet_build(Table(path), tmp_path / "out")


def test_splits_by_ratio_require_dropping_the_split_column(tmp_path, capsys):
    path = parquet(tmp_path, x=list(range(10)), split=["train"] * 5 + ["val"] * 5)
    command = [
        "build",
        "table",
        str(path),
        str(tmp_path / "out"),
        "--split",
        "train=0.8",
        "--split",
        "val=0.2",
    ]
    assert main(command) == 1
    assert "the source already has the splits train, val; leave out --split" in capsys.readouterr().err
    assert main([*command, "--drop", "split"]) == 0
    assert read_manifest(tmp_path / "out").splits["train"].num_examples == 8


def test_classes_are_split_in_the_same_ratios(tmp_path, quiet_build):
    path = parquet(tmp_path, label=["a"] * 10 + ["b"] * 20)
    options = Options(splits=parse_ratios(["train=0.8", "val=0.2"]), stratify=True)
    manifest = quiet_build(Table(path), tmp_path / "out", options=options)
    assert manifest.splits["val"].label_counts == {"a": 2, "b": 4}


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
@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS.keys())
def test_rows_of_one_group_stay_in_one_split(groups, is_dropped, tmp_path, quiet_build):
    groups = groups if isinstance(groups, pa.Array) else pa.array(groups)
    path = parquet(tmp_path, x=list(range(40)), group=pa.concat_arrays([groups] * 10))
    options = Options(splits=parse_ratios(["train=0.5", "val=0.5"]), group_by="group")
    # no files have these names
    columns = ColumnRoles(drop=("group",)) if is_dropped else ColumnRoles(no_images=True)
    quiet_build(Table(path, columns=columns), tmp_path / "out", options=options)
    val = {number for (number,) in values(tmp_path / "out", "x", "val")}
    assert len(val) == 20
    assert {number % 4 for number in val} == {number % 4 for number in val if number < 4}


def test_a_group_does_not_depend_on_the_type_of_its_column(tmp_path, quiet_build):
    options = Options(splits=parse_ratios(["train=0.5", "val=0.5"]), group_by="g")
    found = []
    for place, groups in enumerate(([10, 20, 30, 40], ["10", "20", "30", "40"])):
        out = tmp_path / str(place)
        quiet_build(Table(parquet(tmp_path, x=[0, 1, 2, 3], g=groups)), out, options=options)
        found.append(values(out, "x", "val"))
    assert found[0] == found[1]


def test_rows_are_grouped_by_the_name_of_their_class(tmp_path, quiet_build):
    options = Options(splits=parse_ratios(["train=0.5", "val=0.5"]), group_by="label")
    manifest = quiet_build(Table(parquet(tmp_path, label=["a", "b"] * 5)), tmp_path / "out", options=options)
    assert sorted(tuple(split.label_counts.values()) for split in manifest.splits.values()) == [
        (0, 5),
        (5, 0),
    ]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_zeros_of_either_sign_are_one_group(kind):
    column = pa.chunked_array([pa.array(np.array([0.0, -0.0, 1.5], kind))])
    first, second, third = groups_of("g", column)
    assert first == second != third


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            ["a", None, "b"],
            fault("group-by-missing", by="g", rows="1 row has"),
        ),
        (["a", "", ""], fault("group-by-missing", by="g", rows="2 rows have")),  # empty, as in CSV
        ([1, None, 2], fault("group-by-missing", by="g", rows="1 row has")),
        ([0.5, None, float("nan")], fault("group-by-missing", by="g", rows="2 rows have")),
        ([["a"], ["b"], []], fault("group-by-lists", name="g")),
        (
            pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
            fault("column-type", name="g"),
        ),
    ],
)
def test_a_column_that_cannot_group_is_reported(groups, message, tmp_path, quiet_build):
    source = Table(parquet(tmp_path, x=[1, 2, 3], g=groups), columns=ColumnRoles(drop=("g",)))
    options = Options(splits=parse_ratios(["train=0.5", "val=0.5"]), group_by="g")
    with raises(InputError, message):
        quiet_build(source, tmp_path / "out", options=options)


def test_an_unknown_group_column_is_reported_with_the_existing_ones(tmp_path, quiet_build):
    options = Options(splits=parse_ratios(["train=0.5", "val=0.5"]), group_by="h")
    source = Table(parquet(tmp_path, x=[1, 2], g=[1, 2]), columns=ColumnRoles(drop=("g",)))
    with raises(InputError, "group-by-column", by="h", columns="g, x"):
        quiet_build(source, tmp_path / "out", options=options)
