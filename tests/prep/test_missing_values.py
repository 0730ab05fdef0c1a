"""Missing values are declared: a value, no class, or that their rows are rejected."""

import datetime
import json
import math

import numpy as np
import pyarrow as pa
import pytest

from tests.errors import fault, raises
from tests.prep.table_files import encoded, examples, write_parquet, write_text
from tfshards.prep import Arrays, ColumnRoles, Options, Table, append, build, merge
from tfshards.prep.cli.main import main
from tfshards.schemas import InputError, OptionsError, read_manifest

LISTS = pa.list_(pa.float32())


def column(out, name="x"):
    """Return a feature of the examples, in the order of the rows."""
    found = examples(out)
    return [found[key][name] for key in sorted(found, key=int)]


def raw(*numbers, dtype="<f8"):
    return [[np.array(number, dtype).tobytes()] for number in numbers]


FILLED = {
    "integers": (pa.array([1, None]), "-5", [[1], [-5]]),
    "integers that become floats": (pa.array([1, None]), "nan", raw(1, math.nan)),
    "declared, but none is missing": (pa.array([1, 2]), "nan", raw(1, 2)),
    "floats": (pa.array([0.5, None]), "nan", raw(0.5, math.nan)),
    "floats of 16 bits": (pa.array([np.float16(0.5), None]), "2", raw(0.5, 2, dtype="<f2")),
    "truth": (pa.array([True, None]), "false", [[1], [0]]),
    "text": (pa.array(["a", None]), "none", [[b"a"], [b"none"]]),
    "empty text": (pa.array(["a", ""]), "none", [[b"a"], [b"none"]]),
    "a dictionary": (pa.array(["a", None]).dictionary_encode(), "none", [[b"a"], [b"none"]]),
    "dates": (pa.array([datetime.date(2020, 1, 2), None]), "1970-01-01", [[b"2020-01-02"], [b"1970-01-01"]]),
    "in lists": (pa.array([[1], [None, 2], None]), "7", [[1], [7, 2], []]),
}


@pytest.mark.parametrize(("values", "value", "expected"), FILLED.values(), ids=FILLED)
def test_missing_values_are_filled_with_a_declared_value(values, value, expected, tmp_path):
    path, out = write_parquet(tmp_path / "t.parquet", {"x": values}), tmp_path / "out"
    assert main(["build", "table", str(path), str(out), "--missing", f"x={value}", "--quiet"]) == 0
    assert column(out) == expected
    assert read_manifest(out).options["missing"] == {"x": value}


UNDECLARED = {
    "integers": ([1, None, None], fault("column-missing-values", name="x", null_count=2, fill="reject")),
    "floats": ([0.5, None], fault("column-missing-values", name="x", null_count=1, fill="nan")),
    "text": (["a", None], fault("column-missing-values", fill="reject")),
}


@pytest.mark.parametrize(("values", "expected"), UNDECLARED.values(), ids=UNDECLARED)
def test_missing_values_without_a_declaration_are_an_error(values, expected, tmp_path):
    with raises(InputError, expected):
        Table(write_parquet(tmp_path / "t.parquet", {"x": values})).stage(tmp_path)


def test_the_error_shows_the_flags(tmp_path, capsys):
    path = write_text(tmp_path / "t.csv", "x,y", "0.5,1", ",2")
    assert main(["build", "table", str(path), str(tmp_path / "out")]) == 1
    assert "--missing x=nan" in capsys.readouterr().err


def test_nan_in_a_file_is_a_value(tmp_path, build_table):
    build_table(write_parquet(tmp_path / "t.parquet", {"x": pa.array([0.5, math.nan])}))
    assert column(tmp_path / "out") == raw(0.5, math.nan)


def test_rows_without_a_value_are_rejected(tmp_path):
    path = write_text(
        tmp_path / "t.csv", "file_name,label,age", "0.png,a,1", "1.png,,2", "2.png,b,", "3.png,b,3"
    )
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(encoded(number))
    out, flags = tmp_path / "out", ["--missing", "age=reject", "--missing", "label=reject", "--quiet"]
    assert main(["build", "table", str(path), str(out), *flags, "--max-rejected", "50%"]) == 0
    assert {key: each["label"] for key, each in examples(out).items()} == {"0.png": [0], "3.png": [1]}
    manifest = read_manifest(out)
    assert manifest.schema.class_names == ("a", "b")
    assert manifest.totals.reasons["rejected"] == {"missing": 2}
    rejects = [json.loads(line) for line in next(out.glob("rejected-*")).read_text().splitlines()]
    assert {each["key"]: each["detail"] for each in rejects} == {
        "1.png": "the column 'label' has no value",
        "2.png": "the column 'age' has no value",
    }


NO_CLASS = {
    "text": (pa.array(["b", "", "a", None]), [[1], [-1], [0], [-1]]),
    "text in a dictionary": (pa.array(["b", None]).dictionary_encode(), [[0], [-1]]),
    "truth": (pa.array([True, None, False]), [[1], [-1], [0]]),
    "integers": (pa.array([3, None, -1]), [[3], [-1], [-1]]),
    "small integers": (pa.array([3, None], pa.uint8()), [[3], [-1]]),
    "whole floats, as pandas makes of integers": (pa.array([3.0, None]), [[3], [-1]]),
    "lists": (pa.array([["a"], None]), [[0], []]),
}


@pytest.mark.parametrize(("values", "expected"), NO_CLASS.values(), ids=NO_CLASS)
def test_rows_without_a_class_are_declared(values, expected, tmp_path, build_table):
    path = write_parquet(tmp_path / "t.parquet", {"label": values})
    manifest = build_table(path, columns=ColumnRoles(missing={"label": "-1"}))
    assert column(tmp_path / "out", "label") == expected
    assert manifest.schema["label"].kind == "label"
    if expected[1] != []:
        append(path, tmp_path / "out", log=lambda _: None)
        assert sorted(each["label"] for each in examples(tmp_path / "out").values()) == sorted(expected)


def test_floats_that_are_no_classes_stay_values(tmp_path):
    path = write_parquet(tmp_path / "t.parquet", {"label": [0.5, None]})
    schema = Table(path, columns=ColumnRoles(missing={"label": "-1"})).stage(tmp_path).schema
    assert schema["label"].kind == "raw"


WRONG = {
    "no number": ({"x": pa.array([1, None])}, {"x": "many"}, fault("missing-value", name="x", found="many")),
    "no such column": ({"x": [1]}, {"y": "1"}, fault("column-unknown", name="y")),
    "an image": ({"file_name": ["a.png"]}, {"file_name": "reject"}, "missing-image"),
    "nothing to keep": ({"x": pa.array([None, None], pa.int64())}, {"x": "reject"}, "column-all-missing"),
    "no type": ({"x": [None, None], "y": [1, 2]}, {"x": "nan"}, "missing-value"),
}


@pytest.mark.parametrize(("columns", "missing", "expected"), WRONG.values(), ids=WRONG)
def test_declarations_that_do_not_fit_are_refused(columns, missing, expected, tmp_path):
    with raises(InputError, expected):
        Table(write_parquet(tmp_path / "t.parquet", columns), columns=ColumnRoles(missing=missing)).stage(
            tmp_path
        )


@pytest.mark.parametrize("missing", [["x"], {"x": 1}, {1: "x"}])
def test_declarations_have_columns_and_texts(missing):
    with raises(OptionsError, "missing-form"):
        ColumnRoles(missing=missing)


def test_arrays_with_a_label_that_is_named_may_have_no_class(tmp_path):
    x, y = np.arange(6, dtype=np.uint8), np.array([1, -1, 0, -1, 1, 0])
    reader = Arrays({"x": x, "y": y}).stage(tmp_path)
    assert any("label='y'" in line for line in reader.listing().warnings)
    manifest = build(Arrays({"x": x, "y": y}, label="y", class_names=("a", "b")), tmp_path / "out")
    assert column(tmp_path / "out", "y") == [[number] for number in y]
    assert manifest.splits["train"].label_counts == {}
    build(
        Arrays({"x": x, "y": y}, label="y"),
        tmp_path / "numbers",
        options=Options(splits={"a": "1/2", "b": "1/2"}),
    )
    assert column(tmp_path / "numbers", "y") == [[number] for number in y]


@pytest.mark.parametrize("columns", [{"x": [1, 2]}, {"x": [1, 2], "label": [None, None]}], ids=["no", "none"])
def test_tables_without_labels_merge_with_labeled_ones(columns, tmp_path, build_table):
    test = write_parquet(tmp_path / "test.parquet", {**columns, "split": ["test"] * 2})
    train = write_parquet(tmp_path / "train.parquet", {"x": [3, 4], "label": ["b", "a"]})
    build_table(train, "labeled")
    roles = ColumnRoles(missing={"label": "-1"}, drop=("split",))
    manifest = build_table(test, "unlabeled", columns=roles, class_names=("a", "b"))
    assert manifest.schema == read_manifest(tmp_path / "labeled").schema
    origins = {"train": tmp_path / "labeled", "test": tmp_path / "unlabeled"}
    merge(origins, tmp_path / "merged", log=lambda _: None)
    found = {split: examples(tmp_path / "merged", split).values() for split in origins}
    assert {(each["x"][0], each["label"][0]) for each in found["train"]} == {(3, 1), (4, 0)}
    assert {(each["x"][0], each["label"][0]) for each in found["test"]} == {(1, -1), (2, -1)}
