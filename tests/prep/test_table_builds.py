"""Builds of tables: the staged copy, the same bytes everywhere, resuming after a kill, and small readers."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import raises
from tests.prep.table_files import write_parquet
from tfshards.prep import ColumnRoles, Options, Table, verify
from tfshards.prep.building.output_state import up_to_date
from tfshards.prep.sources.tables.staging import ArrowKeys, mapped_table, stage_table
from tfshards.prep.writing.area import AREA_NAME
from tfshards.schemas import BuildError


def mixed(folder, num_rows: int):
    """A table with an image, a list, a class and a column that is dropped, in another order than the keys."""
    names = [f"{number:03d}.png" for number in range(num_rows)]
    columns = {
        "file_name": names,
        "label": [("b", "a")[number % 2] for number in range(num_rows)],
        "boxes": [list(range(number % 3)) for number in range(num_rows)],
        "score": np.arange(num_rows) / 3,
        "unused": names,
    }
    return write_parquet(
        folder / "t.parquet", pa.table(columns).take(np.random.default_rng(0).permutation(num_rows))
    )


def source(path) -> Table:
    return Table(path, columns=ColumnRoles(drop=("unused",)))


@pytest.fixture
def table(image_folder):
    return mixed(image_folder({f"{number:03d}.png": number for number in range(20)}), 20)


def test_the_staged_copy_is_in_the_output_and_is_removed(table, tmp_path, quiet_build, monkeypatch):
    folders = []
    stage = Table.stage

    def noting(self, folder, *, preview=False):
        reader = stage(self, folder, preview=preview)
        folders.append((folder, sorted(path.name for path in folder.iterdir())))
        return reader

    monkeypatch.setattr(Table, "stage", noting)
    quiet_build(source(table), tmp_path / "out", shards=2)
    ((folder, names),) = folders
    assert folder.parent == tmp_path / "out" / AREA_NAME
    assert names == ["build.json", "rows.arrow"]
    assert not folder.parent.exists()


def test_workers_of_any_kind_write_the_same_bytes(table, tmp_path, quiet_build, contents):
    beam_args = ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]
    quiet_build(source(table), tmp_path / "one" / "out", shards=4)
    quiet_build(source(table), tmp_path / "two" / "out", shards=4, beam_args=beam_args)
    assert contents(tmp_path / "two" / "out") == contents(tmp_path / "one" / "out")
    assert verify(tmp_path / "two" / "out", deep=True)


def test_a_build_that_ended_before_its_commit_is_resumed(table, tmp_path, quiet_build, contents, log):
    out, given = tmp_path / "out", {"shards": 4, "options": Options(max_rejected=1)}
    (table.parent / "000.png").write_bytes(b"no image")
    with raises(BuildError, "too-many-rejected"):
        quiet_build(source(table), out, shards=4, options=Options(max_rejected=0))
    assert list(out.glob(f"{AREA_NAME}/*/first/*.done"))
    quiet_build(source(table), out, **given)
    assert "resuming the build: 4 of 4 shards finished" in log
    quiet_build(source(table), tmp_path / "whole" / "out", **given)
    assert contents(out) == contents(tmp_path / "whole" / "out")
    assert not (out / AREA_NAME).exists()
    quiet_build(source(table), out, **given)
    assert log[-1] == up_to_date(out, is_compared=False)


@pytest.mark.parametrize("columns", [{"file_name": "{}.png", "x": "{}"}, {"x": "{}"}], ids=["images", "none"])
def test_the_size_of_a_pickled_reader_does_not_depend_on_its_rows(columns, tmp_path):
    sizes = []
    for num_rows in (10, 10_000):
        rows = {name: [form.format(number) for number in range(num_rows)] for name, form in columns.items()}
        (tmp_path / "0.png").touch()
        (tmp_path / str(num_rows)).mkdir()
        reader = Table(write_parquet(tmp_path / "t.parquet", rows)).stage(tmp_path / str(num_rows))
        assert reader.listing().num_examples == num_rows
        sizes.append(len(pickle.dumps(reader)))
    assert sizes[1] <= sizes[0] + 20
    assert sizes[1] < 4_000


@given(st.sets(st.binary(max_size=4), min_size=1, max_size=20), st.binary(max_size=4), st.integers(0, 3))
def test_keys_of_table_rows_are_found(keys, other, skipped):
    # as in a file: after other rows
    column = pa.array([b"\xff" * 9] * skipped + sorted(keys), pa.large_binary())[skipped:]
    found = ArrowKeys(pa.chunked_array([column]))
    assert list(found) == sorted(keys)
    assert [found[place] for place in range(-len(found), len(found))] == sorted(keys) * 2
    assert found[1:] == sorted(keys)[1:]
    assert {found.find(key) for key in keys} == set(range(len(keys)))
    if other not in keys:
        with pytest.raises(KeyError, match=r"^b['\"]"):
            found.find(other)
    with pytest.raises(IndexError):
        found[len(keys)]


def test_a_staged_table_is_mapped_whole(tmp_path):
    table = pa.concat_tables([pa.table({"a": [1, 2]}), pa.table({"a": [3]})])
    stage_table(table, tmp_path / "t.arrow")
    assert mapped_table(tmp_path / "t.arrow").equals(table)
