"""Columns of a table: the loader returns the values of each type, or it is refused with a reason."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.errors import fault, raises
from tfshards import loader
from tfshards.prep import ColumnRoles, Options, Table, verify
from tfshards.prep.building.build import build
from tfshards.schemas import Feature, InputError

BERLIN = datetime.timezone(datetime.timedelta(hours=2))


def parquet(folder: Path, **columns: object) -> Path:
    path = folder / "rows.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    return path


def read_back(out: Path) -> list[dict[str, object]]:
    """Return the rows in the order of their keys, as read by the loader."""
    (batch,) = loader.load(out, "train", batch_size=100, remainder="keep")
    columns = {
        name: value.to_list() if hasattr(value, "to_list") else value.numpy().tolist()
        for name, value in batch.items()
    }
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return sorted(rows, key=lambda row: int(row.pop("key")))


# by type: the values of two rows, the feature, and the values read back if they differ
TYPES = {
    "int8": (pa.array([-128, 127], pa.int8()), ("int", "int8", ()), None),
    "int64": (pa.array([-(2**63), 2**63 - 1]), ("int", "int64", ()), None),
    "uint32": (pa.array([0, 2**32 - 1], pa.uint32()), ("int", "uint32", ()), None),
    "uint64, which no int64 list holds": (
        pa.array([0, 2**64 - 1], pa.uint64()),
        ("raw", "uint64", ()),
        None,
    ),
    "bool": (pa.array([True, False]), ("int", "bool", ()), None),
    "float16": (pa.array(np.array([1.5, -2], np.float16)), ("raw", "float16", ()), None),
    "float32": (
        pa.array([0.1, math.inf], pa.float32()),
        ("raw", "float32", ()),
        [float(np.float32(0.1)), math.inf],
    ),
    "float64": (pa.array([0.1, -1e300]), ("raw", "float64", ()), None),
    "text": (pa.array(["", "Käse\n猫"]), ("bytes", "bytes", ()), [b"", "Käse\n猫".encode()]),
    "bytes": (pa.array([b"\xff\x00", b""]), ("bytes", "bytes", ()), None),
    "bytes of one length": (pa.array([b"ab", b"cd"], pa.binary(2)), ("bytes", "bytes", ()), None),
    "text in the newer layout": (
        pa.array(["a", "b"], pa.string_view()),
        ("bytes", "bytes", ()),
        [b"a", b"b"],
    ),
    "a dictionary of text": (
        pa.array(["a", "b"]).dictionary_encode(),
        ("bytes", "bytes", ()),
        [b"a", b"b"],
    ),
    "decimals as text": (
        pa.array([Decimal("1.50"), Decimal("-3.00")]),
        ("bytes", "bytes", ()),
        [b"1.50", b"-3.00"],
    ),
    "dates as text": (
        pa.array([datetime.date(2020, 2, 29), datetime.date(1, 1, 1)]),
        ("bytes", "bytes", ()),
        [b"2020-02-29", b"0001-01-01"],
    ),
    "times with their zone as text": (
        pa.array([datetime.datetime(2020, 7, 1, 12, tzinfo=BERLIN)] * 2, pa.timestamp("s", "Europe/Berlin")),
        ("bytes", "bytes", ()),
        [b"2020-07-01 12:00:00.000+0200"] * 2,
    ),
    "lists of one length": (pa.array([[1, 2], [3, 4]]), ("int", "int64", (2,)), None),
    "lists that differ": (pa.array([[1], [2**40, 3]]), ("int", "int64", (None,)), None),
    "lists with none": (pa.array([[1], []]), ("int", "int64", (None,)), None),
    "lists of which one is missing": (pa.array([None, [1, 2]]), ("int", "int64", (None,)), [[], [1, 2]]),
    "only empty lists": (pa.array([[], []], pa.list_(pa.int32())), ("int", "int32", (None,)), None),
    "lists of a fixed size": (
        pa.array([[0.1, 2], [3, 4]], pa.list_(pa.float64(), 2)),
        ("raw", "float64", (2,)),
        None,
    ),
    "large lists of text": (
        pa.array([["a"], ["", "é"]], pa.large_list(pa.string())),
        ("bytes", "bytes", (None,)),
        [[b"a"], [b"", "é".encode()]],
    ),
    "lists of booleans": (pa.array([[True], [False, True]]), ("int", "bool", (None,)), None),
    "lists of float32": (
        pa.array([[1.5], [2.5, 3]], pa.list_(pa.float32())),
        ("float", "float32", (None,)),
        None,
    ),
    "lists of float64 that differ, as float32": (
        pa.array([[0.5], [2, 3.5]]),
        ("float", "float32", (None,)),
        None,
    ),
    "lists of a dictionary": (
        pa.array([["a"], ["b", "a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        ("bytes", "bytes", (None,)),
        [[b"a"], [b"b", b"a"]],
    ),
}


def test_each_column_type_is_read_back_as_its_feature(tmp_path, quiet_build):
    columns = {name.replace(",", ""): values for name, (values, _, _) in TYPES.items()}
    manifest = quiet_build(Table(parquet(tmp_path, **columns)), tmp_path / "out", shards=2)
    rows = read_back(tmp_path / "out")
    for name, (values, (kind, dtype, shape), expected) in TYPES.items():
        name = name.replace(",", "")
        assert manifest.schema[name] == Feature(name, kind, dtype, shape)
        assert [row[name] for row in rows] == (expected or values.to_pylist()), name
    assert verify(tmp_path / "out", deep=True)


def test_missing_floating_point_numbers_are_nan(tmp_path, quiet_build):
    path = parquet(tmp_path, x=[0.5, None], y=[[1.0, None], [2.0, 3.0]], z=[[None], [2.0, 3.0]])
    quiet_build(Table(path), tmp_path / "out")
    first, second = read_back(tmp_path / "out")
    assert (first["x"], second["y"], second["z"]) == (0.5, [2, 3], [2, 3])
    assert all(map(math.isnan, (second["x"], first["y"][1], first["z"][0])))


def test_lists_of_float64_that_differ_in_length_are_stored_as_float32_with_a_warning(
    tmp_path, quiet_build, log
):
    quiet_build(Table(parquet(tmp_path, x=[[0.1], [math.inf, math.nan]])), tmp_path / "out")
    assert log[0] == "warning: column 'x': its lists differ in length and are stored as float32"
    first, second = read_back(tmp_path / "out")
    assert first["x"] == [float(np.float32(0.1))]
    assert second["x"][0] == math.inf
    assert math.isnan(second["x"][1])


REFUSED = {
    "a missing integer": (
        pa.array([1, None, None]),
        fault("column-missing-values", name="x", null_count=2),
    ),
    "missing text": (
        pa.array([None, "a", "b"]),
        fault("column-missing-values", null_count=1, missing="value is"),
    ),
    "a missing truth value": (
        pa.array([True, None, True]),
        fault("column-missing-values", null_count=1, missing="value is"),
    ),
    "a missing integer in a list": (
        pa.array([[1], [None], [2]]),
        fault("column-missing-values", null_count=1, missing="value is"),
    ),
    "missing text in a list": (
        pa.array([["a"], [None], ["b"]]),
        fault("column-missing-values", null_count=1, missing="value is"),
    ),
    "nothing at all": (
        pa.nulls(3),
        fault("column-all-missing", name="x"),
    ),
    "nothing in lists": (
        pa.array([[], [], []]),
        fault("column-empty-lists", name="x"),
    ),
    "a map": (
        pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
        fault("column-type", name="x"),
    ),
    "lists of uint64 that differ": (
        pa.array([[1], [1, 2], []], pa.list_(pa.uint64())),
        "column-uint64-lists",
    ),
    "a list with what float32 has not": (
        pa.array([[1.0], [1e300, 2.0], []]),
        fault("column-float32", as_py=1e300),
    ),
}


@pytest.mark.parametrize(("values", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_column_that_cannot_be_stored_exactly_is_reported(values, message, tmp_path, quiet_build):
    path = parquet(tmp_path, x=values, y=[1, 2, 3])
    with raises(InputError, message):
        quiet_build(Table(path), tmp_path / "out")
    manifest = quiet_build(Table(path, columns=ColumnRoles(drop=("x",))), tmp_path / "out")
    assert manifest.schema.names == ("y", "key")


def test_a_table_of_one_row_is_a_dataset(tmp_path, quiet_build):
    quiet_build(Table(parquet(tmp_path, x=[[1, 2]])), tmp_path / "out")
    assert read_back(tmp_path / "out") == [{"x": [1, 2]}]


def test_columns_may_be_named_like_those_of_the_staged_file(tmp_path, quiet_build):
    path = parquet(tmp_path, **{"bytes": [1], "split/": [2], "value/x": [3], "x": [4], "path/image": [5]})
    quiet_build(Table(path), tmp_path / "out")
    assert read_back(tmp_path / "out") == [{"bytes": 1, "split/": 2, "value/x": 3, "x": 4, "path/image": 5}]


def test_shards_of_columns_of_bytes_are_balanced(tmp_path, quiet_build):
    path = parquet(tmp_path, x=[b"a" * 1000, *[b"a"] * 10], y=[[1] * number for number in range(11)])
    manifest = quiet_build(Table(path), tmp_path / "out", shards=2, options=Options(balance="bytes"))
    assert sorted(shard.num_examples for shard in manifest.splits["train"].shards) == [1, 10]


VALUES = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(),
    "text": st.text(max_size=8),
    "bool": st.booleans(),
    "ints": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    "texts": st.lists(st.text(max_size=3), max_size=3),
    "floats": st.lists(st.floats(width=32), max_size=3),
}
ARROW = {
    "int": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
    "bool": pa.bool_(),
    "ints": pa.list_(pa.int64()),
    "texts": pa.list_(pa.string()),
    "floats": pa.list_(pa.float32()),
}


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    num_rows = draw(st.integers(1, 12))
    columns = {
        f"{place}{kind}": pa.array(
            draw(st.lists(VALUES[kind], min_size=num_rows, max_size=num_rows)), ARROW[kind]
        )
        for place, kind in enumerate(kinds)
    }
    return pa.table(columns), draw(st.integers(1, num_rows))


def as_text(row: dict[str, object]) -> str:
    """Return the values as text, in which NaN equals NaN but 0.0 differs from -0.0."""
    return repr({name: value.encode() if isinstance(value, str) else value for name, value in row.items()})


@settings(max_examples=5)
@given(tables())
def test_every_row_is_read_back_once_with_its_values(tmp_path_factory, made):
    table, num_shards = made
    folder = tmp_path_factory.mktemp("table")
    pa.parquet.write_table(table, folder / "rows.parquet")
    manifest = build(Table(folder / "rows.parquet"), folder / "out", shards=num_shards, log=lambda line: None)
    sizes = [shard.num_examples for shard in manifest.splits["train"].shards]
    assert max(sizes) - min(sizes) <= 1
    expected = [
        {
            name: [one.encode() for one in value] if name.endswith("texts") else value
            for name, value in row.items()
        }
        for row in table.to_pylist()
    ]
    assert list(map(as_text, read_back(folder / "out"))) == list(map(as_text, expected))
    assert verify(folder / "out", deep=True)


def test_json_gives_the_rows_of_its_lines(tmp_path, quiet_build):
    rows = [{"a": 1, "b": [0.5, 1.0], "c": "2020-01-01"}, {"a": 2, "b": [1.0, 2.0], "c": "x"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    quiet_build(Table(tmp_path / "rows.jsonl"), tmp_path / "out")
    assert read_back(tmp_path / "out") == [{**row, "c": row["c"].encode()} for row in rows]
