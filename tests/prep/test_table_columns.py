"""Columns of a table: the loader returns the values of each type, or it is refused with a reason."""

import datetime
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.errors import fault, raises
from tests.prep.table_files import write_parquet
from tfshards import loader
from tfshards.prep import ColumnRoles, Table, verify
from tfshards.prep.building.build import build
from tfshards.schemas import Feature, InputError

BERLIN = datetime.timezone(datetime.timedelta(hours=2))


def read_back(out) -> list[dict[str, object]]:
    """Return the rows in the order of their keys, as read by the loader."""
    (batch,) = loader.load(out, "train", batch_size=100, remainder="keep")
    columns = {n: v.to_list() if hasattr(v, "to_list") else v.numpy().tolist() for n, v in batch.items()}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return sorted(rows, key=lambda row: int(row.pop("key")))


def rows_of(values: list[object], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.list_(kind))


TEXT, MANY = ("bytes", "bytes", ()), (None,)
# by type: the values of two rows, the feature, and the values read back if they differ
TYPES = {
    "int8": (pa.array([-128, 127], pa.int8()), ("int", "int8", ()), None),
    "int64": (pa.array([-(2**63), 2**63 - 1]), ("int", "int64", ()), None),
    "uint32": (pa.array([0, 2**32 - 1], pa.uint32()), ("int", "uint32", ()), None),
    "uint64 which no int64 list holds": (pa.array([0, 2**64 - 1], pa.uint64()), ("raw", "uint64", ()), None),
    "bool": (pa.array([True, False]), ("int", "bool", ()), None),
    "float16": (pa.array(np.array([1.5, -2], np.float16)), ("raw", "float16", ()), None),
    "float32": (pa.array([0.5, math.inf], pa.float32()), ("raw", "float32", ()), None),
    "float64": (pa.array([0.1, -1e300]), ("raw", "float64", ()), None),
    "text": (pa.array(["", "Käse\n猫"]), TEXT, [b"", "Käse\n猫".encode()]),
    "bytes": (pa.array([b"\xff\x00", b""]), TEXT, None),
    "bytes of one length": (pa.array([b"ab", b"cd"], pa.binary(2)), TEXT, None),
    "text in the newer layout": (pa.array(["a", "b"], pa.string_view()), TEXT, [b"a", b"b"]),
    "a dictionary of text": (pa.array(["a", "b"]).dictionary_encode(), TEXT, [b"a", b"b"]),
    "decimals as text": (pa.array([Decimal("1.50"), Decimal("-3.00")]), TEXT, [b"1.50", b"-3.00"]),
    "dates as text": (
        pa.array([datetime.date(2020, 2, 29), datetime.date(1, 1, 1)]),
        TEXT,
        [b"2020-02-29", b"0001-01-01"],
    ),
    "times with their zone as text": (
        pa.array([datetime.datetime(2020, 7, 1, 12, tzinfo=BERLIN)] * 2, pa.timestamp("s", "Europe/Berlin")),
        TEXT,
        [b"2020-07-01 12:00:00.000+0200"] * 2,
    ),
    "lists of one length": (pa.array([[1, 2], [3, 4]]), ("int", "int64", (2,)), None),
    "lists that differ": (pa.array([[1], [2**40, 3]]), ("int", "int64", MANY), None),
    "lists with none": (pa.array([[1], []]), ("int", "int64", MANY), None),
    "lists of which one is missing": (pa.array([None, [1, 2]]), ("int", "int64", MANY), [[], [1, 2]]),
    "only empty lists": (rows_of([[], []], pa.int32()), ("int", "int32", MANY), None),
    "fixed lists": (pa.array([[0.1, 2], [3, 4]], pa.list_(pa.float64(), 2)), ("raw", "float64", (2,)), None),
    "large lists of text": (
        pa.array([["a"], ["", "é"]], pa.large_list(pa.string())),
        ("bytes", "bytes", MANY),
        [[b"a"], [b"", "é".encode()]],
    ),
    "lists of booleans": (pa.array([[True], [False, True]]), ("int", "bool", MANY), None),
    "lists of float32": (rows_of([[1.5], [2.5, 3]], pa.float32()), ("float", "float32", MANY), None),
    "lists that differ as float32": (pa.array([[0.5], [2, 3.5]]), ("float", "float32", MANY), None),
    "lists of a dictionary": (
        rows_of([["a"], ["b", "a"]], pa.dictionary(pa.int8(), pa.string())),
        ("bytes", "bytes", MANY),
        [[b"a"], [b"b", b"a"]],
    ),
    "rows": (rows_of([[[1, 2]], None], pa.list_(pa.int64())), ("int", "int64", (None, 2)), [[[1, 2]], []]),
    "fixed rows": (rows_of([[[True, False]], []], pa.list_(pa.bool_(), 2)), ("int", "bool", (None, 2)), None),
    "empty rows": (rows_of([[], None], pa.list_(pa.float32(), 2)), ("float", "float32", (None, 2)), [[], []]),
    "rows as float32": (pa.array([[[0.5, 2]], [[3, 4]] * 2]), ("float", "float32", (None, 2)), None),
}


def test_each_column_type_is_read_back_as_its_feature(tmp_path, build_table, log):
    # columns may have the names of those of the staged file
    columns = {"split/": [2, 3], "value/x": [3, 4], "path/image": [5, 6]}
    path = write_parquet(tmp_path / "t.parquet", {**columns, **{name: row[0] for name, row in TYPES.items()}})
    manifest = build_table(path, build={"shards": 2})
    rows = read_back(tmp_path / "out")
    for name, (values, (kind, dtype, shape), expected) in TYPES.items():
        assert manifest.schema[name] == Feature(name, kind, dtype, shape)
        assert [row[name] for row in rows] == (expected or values.to_pylist()), name
        is_changed = any(line.startswith(f"warning: column {name!r}: lists of lists, or of") for line in log)
        assert is_changed == name.endswith("as float32")
    assert {name: [row[name] for row in rows] for name in columns} == columns
    assert verify(tmp_path / "out", deep=True)


def test_missing_floating_point_numbers_that_are_declared_are_nan(tmp_path, build_table):
    rows = rows_of([[[0.5], [None]], []], pa.list_(pa.float32()))
    columns = {"x": [0.5, None], "y": [[1.0, None], [2.0, 3.0]], "z": [[0.1], [math.inf, None]], "rows": rows}
    path = write_parquet(tmp_path / "t.parquet", columns)
    roles = ColumnRoles(missing=dict.fromkeys(columns, "nan"))
    build_table(path, columns=roles)
    first, second = read_back(tmp_path / "out")
    assert (first["x"], second["y"], first["z"]) == (0.5, [2, 3], [float(np.float32(0.1))])
    assert second["z"][0] == math.inf
    missing = (second["x"], first["y"][1], second["z"][1], first["rows"][1][0])
    assert all(map(math.isnan, missing))


def missing(number: int, where: str = "in its lists"):
    return fault("column-missing-values", name="x", null_count=number, where=where)


REFUSED = {
    "a missing integer": (pa.array([1, None, None]), missing(2, "the first in data row 2")),
    "missing text": (pa.array([None, "a", "b"]), missing(1, "the first in data row 1")),
    "a missing truth value": (pa.array([True, None, True]), missing(1, "the first in data row 2")),
    "a missing integer in a list": (pa.array([[1], [None], [2]]), missing(1)),
    "missing text in a list": (pa.array([["a"], [None], ["b"]]), missing(1)),
    "a missing integer in rows": (pa.array([[[1], [None]], [], []]), missing(1)),
    "nothing at all": (pa.nulls(3), fault("column-all-missing", name="x")),
    "nothing in lists": (pa.array([[], [], []]), fault("column-all-missing", name="x")),
    "a map": (pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())), fault("column-type", name="x")),
    "lists of uint64 that differ": (rows_of([[1], [1, 2], []], pa.uint64()), "column-uint64-lists"),
    "rows of uint64": (rows_of([[[1]], [], []], pa.list_(pa.uint64())), "column-uint64-lists"),
    "rows of text": (pa.array([[["a"]], [], []]), "column-type"),
    "three levels": (pa.array([[[[1]]], [], []]), "column-type"),
    "what float32 cannot hold": (pa.array([[1.0], [1e300, 2.0], []]), fault("column-float32", as_py=1e300)),
    "rows that float32 cannot hold": (pa.array([[[1e300]], [], []]), fault("column-float32", as_py=1e300)),
    "polygons": (pa.array([[[1, 2, 3]], [[1, 2]], []]), fault("column-inner-lengths", found="3, 2")),
    "empty rows": (rows_of([[[]], [], []], pa.list_(pa.int64())), fault("column-inner-lengths", found="0")),
    "no rows": (rows_of([[], [], []], pa.list_(pa.int64())), fault("column-inner-lengths", found="unknown")),
    "a missing row": (pa.array([[[1], None], [], []]), fault("column-inner-lengths", found="1, missing")),
}


@pytest.mark.parametrize(("values", "expected"), REFUSED.values(), ids=REFUSED)
def test_a_column_that_cannot_be_stored_exactly_is_reported(values, expected, tmp_path, build_table):
    path = write_parquet(tmp_path / "t.parquet", {"x": values, "y": [1, 2, 3]})
    (tmp_path / "stage").mkdir()
    with raises(InputError, expected):
        Table(path).stage(tmp_path / "stage")
    dropped = Table(path, columns=ColumnRoles(drop=("x",))).stage(tmp_path / "stage")
    assert dropped.schema.names == ("y", "key")


def test_a_table_of_one_row_is_a_dataset(tmp_path, build_table):
    build_table(write_parquet(tmp_path / "t.parquet", {"x": [[1, 2]]}))
    assert read_back(tmp_path / "out") == [{"x": [1, 2]}]


VALUES = {
    "int": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "float": (st.floats(), pa.float64()),
    "text": (st.text(max_size=8), pa.string()),
    "bool": (st.booleans(), pa.bool_()),
    "ints": (st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3), pa.list_(pa.int64())),
    "texts": (st.lists(st.text(max_size=3), max_size=3), pa.list_(pa.string())),
    "floats": (st.lists(st.floats(width=32), max_size=3), pa.list_(pa.float32())),
}


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    num_rows = draw(st.integers(1, 12))
    columns = {}
    for number, kind in enumerate(kinds):
        values, arrow = VALUES[kind]
        rows = draw(st.lists(values, min_size=num_rows, max_size=num_rows))
        columns[f"{number}{kind}"] = pa.array(rows, arrow)
    return pa.table(columns), draw(st.integers(1, num_rows))


def as_text(row: dict[str, object]) -> str:
    """Return the values as text, in which NaN equals NaN but 0.0 differs from -0.0."""
    return repr({name: encoded_text(value) for name, value in row.items()})


def encoded_text(value: object) -> object:
    if isinstance(value, list):
        return list(map(encoded_text, value))
    return value.encode() if isinstance(value, str) else value


@settings(max_examples=5)
@given(tables())
def test_every_row_is_read_back_once_with_its_values(tmp_path_factory, made):
    table, num_shards = made
    folder = tmp_path_factory.mktemp("table")
    source = Table(write_parquet(folder / "rows.parquet", table))
    manifest = build(source, folder / "out", shards=num_shards, log=lambda _: None)
    sizes = [shard.num_examples for shard in manifest.splits["train"].shards]
    assert max(sizes) - min(sizes) <= 1
    assert list(map(as_text, read_back(folder / "out"))) == list(map(as_text, table.to_pylist()))
    assert verify(folder / "out", deep=True)
