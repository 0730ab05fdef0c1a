"""Missing values: no class in a column of labels, and an error in any other."""

import numpy as np
import pyarrow as pa
import pytest

from tests.prep.table_files import examples, write_parquet, write_text
from tfshards.prep import Arrays, ColumnRoles, Options, append, build, merge
from tfshards.prep.cli.main import main
from tfshards.schemas import read_manifest


def column(out, name="x"):
    """Return a feature of the examples, in the order of the rows."""
    found = examples(out)
    return [found[key][name] for key in sorted(found, key=int)]


def test_the_error_names_the_column_the_row_and_pandas(tmp_path, capsys):
    path = write_text(tmp_path / "t.csv", "x,y", "0.5,1", ",2")
    assert main(["build", "table", str(path), str(tmp_path / "out")]) == 1
    message = capsys.readouterr().err
    assert "column 'x' lacks 1 value, the first in data row 2; before the build, fill them" in message
    assert "frame.dropna(subset=['x'])" in message
    assert "--drop x" in message


NO_CLASS = {
    "text": (pa.array(["b", "", "a", None]), [[1], [-1], [0], [-1]]),
    "nothing": (pa.nulls(2), [[-1], [-1]]),
    "text in a dictionary": (pa.array(["b", None]).dictionary_encode(), [[0], [-1]]),
    "truth": (pa.array([True, None, False]), [[1], [-1], [0]]),
    "integers": (pa.array([3, None, 0]), [[3], [-1], [0]]),
    "small integers": (pa.array([3, None], pa.uint8()), [[3], [-1]]),
    "lists": (pa.array([["a"], None]), [[0], []]),
}


@pytest.mark.parametrize(("values", "expected"), NO_CLASS.values(), ids=NO_CLASS)
def test_a_null_label_is_no_class(values, expected, tmp_path, build_table, log):
    path = write_parquet(tmp_path / "t.parquet", {"label": values})
    manifest = build_table(path)
    assert any("without a class (-1)" in line for line in log) == ([-1] in expected)
    assert column(tmp_path / "out", "label") == expected
    assert manifest.schema["label"].kind == "label"
    if expected[1] != []:
        append(path, tmp_path / "out", log=lambda _: None)
        assert sorted(each["label"] for each in examples(tmp_path / "out").values()) == sorted(expected)


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


def test_tables_without_labels_merge_with_labeled_ones(tmp_path, build_table):
    columns = {"x": [1, 2], "label": [None, None], "split": ["test"] * 2}
    test = write_parquet(tmp_path / "test.parquet", columns)
    train = write_parquet(tmp_path / "train.parquet", {"x": [3, 4], "label": ["b", "a"]})
    build_table(train, "labeled")
    roles = ColumnRoles(drop=("split",))
    manifest = build_table(test, "unlabeled", columns=roles, class_names=("a", "b"))
    assert manifest.schema == read_manifest(tmp_path / "labeled").schema
    origins = {"train": tmp_path / "labeled", "test": tmp_path / "unlabeled"}
    merge(origins, tmp_path / "merged", log=lambda _: None)
    found = {split: examples(tmp_path / "merged", split).values() for split in origins}
    assert {(each["x"][0], each["label"][0]) for each in found["train"]} == {(3, 1), (4, 0)}
    assert {(each["x"][0], each["label"][0]) for each in found["test"]} == {(1, -1), (2, -1)}
