"""Roles of table columns: classes, splits, groups, given or derived from their names."""

import numpy as np
import pyarrow as pa
import pytest

from tests.errors import fault, raises
from tests.prep.table_files import examples, write_parquet
from tfshards.prep import ColumnRoles, Table
from tfshards.prep.cli.main import main
from tfshards.prep.sources.tables.labels import groups_of
from tfshards.schemas import InputError, read_manifest

MAP = pa.map_(pa.string(), pa.int64())


@pytest.fixture
def rows(tmp_path):
    """Write a table with these columns."""
    return lambda **columns: write_parquet(tmp_path / "rows.parquet", columns)


def values(out, name: str, split: str = "train") -> list[list[object]]:
    """Return one feature of each example of a split, in the order of the rows."""
    found = examples(out, split)
    return [found[key][name] for key in sorted(found, key=int)]


FLOATS, NEGATIVE = "floating-point numbers", "negative numbers"


def test_another_split_column_is_another_build(rows, tmp_path, build_table):
    path = rows(x=[0, 1], a=["train", "val"], b=["val", "train"])
    build_table(path, columns=ColumnRoles(split="a", drop=("b",)))
    other = ColumnRoles(split="b", drop=("a",))
    with raises(InputError, "dataset-differs"):
        build_table(path, columns=other)
    build_table(path, columns=other, build={"overwrite": True})
    assert values(tmp_path / "out", "x", "train") == [[1]]


def test_splits_by_ratio_require_dropping_the_split_column(rows, tmp_path, capsys):
    path = rows(x=list(range(10)), split=["train"] * 5 + ["val"] * 5)
    ratios = ["--split", "train=0.8", "--split", "val=0.2"]
    command = ["build", "table", str(path), str(tmp_path / "out"), *ratios]
    assert main(command) == 1
    assert "the source already has the splits train, val; leave out --split" in capsys.readouterr().err
    assert main([*command, "--drop", "split"]) == 0
    assert read_manifest(tmp_path / "out").splits["train"].num_examples == 8


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
