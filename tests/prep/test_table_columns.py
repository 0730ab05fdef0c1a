"""Columns of a table: the loader returns the values of each type, or it is refused with a reason."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.prep.table_files import write_parquet
from tfshards import loader
from tfshards.prep import Table, verify
from tfshards.prep.building.build import build


def read_back(out) -> list[dict[str, object]]:
    """Return the rows in the order of their keys, as read by the loader."""
    (batch,) = loader.load(out, "train", batch_size=100, remainder="keep")
    columns = {n: v.to_list() if hasattr(v, "to_list") else v.numpy().tolist() for n, v in batch.items()}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return sorted(rows, key=lambda row: int(row.pop("key")))


TEXT, MANY = ("bytes", "bytes", ()), (None,)


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
