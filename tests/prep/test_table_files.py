"""Files of tables: the same rows from each format, values as written, and messages about damage."""

import re

import pandas as pd
import pytest

from tests.errors import raises
from tests.prep.table_files import write_jsonl, write_parquet
from tfshards.prep import Table
from tfshards.prep.sources.tables import csv_file, files
from tfshards.prep.sources.tables.files import read_table
from tfshards.schemas import InputError


def table(folder, content: str | bytes, name: str = "rows.csv"):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def column(path, name: str) -> list[object]:
    return read_table(path, ()).table[name].to_pylist()


SEPARATED = {
    "semicolons": ("rows.csv", "file_name;caption\na.png;a cat\n", ";"),
    "semicolons, with commas in the rows": ("rows.csv", "file_name;caption\na.png;a cat, a dog\n", ";"),
    "semicolons, with commas in the header": ("rows.csv", "x;y, z\n1;a, b, c\n", ";"),
    "commas for decimals": ("rows.csv", "width;height\n1,5;2,5\n", ";"),
    "bars": ("rows.csv", "a|b\n1|2\n", "|"),
    "tabs in .csv": ("rows.csv", "a\tb\n1\t2\n", "\t"),
    "semicolons in .tsv": ("rows.tsv", "a;b\n1;2\n", ";"),
}


@pytest.mark.parametrize(("name", "content", "mark"), SEPARATED.values(), ids=SEPARATED)
def test_other_separators_are_refused_with_the_line_that_converts_them(
    name, content, mark, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = table(tmp_path, content, name)
    with raises(InputError, "table-separators", path=str(path), mark=mark) as raised:
        Table(path).stage(tmp_path)
    eval(re.search(r"pd\.read_csv.*", str(raised.value))[0], {"pd": pd})
    assert len(Table("commas.csv").column_names()) == 2


def test_names_may_have_a_separator_of_others(tmp_path):
    path = table(tmp_path, "a;b,c\n1;2,3\n")
    assert read_table(path, ()).table.column_names == ["a;b", "c"]


@pytest.mark.parametrize("first", ["a.png,0", "0,./a.PNG"])
def test_a_table_without_a_header_is_refused(first, tmp_path):
    with raises(InputError, "table-no-header"):
        Table(table(tmp_path, f"{first}\nb.png,b.png\n")).stage(tmp_path)


def test_a_row_longer_than_a_block_is_reported(tmp_path, monkeypatch):
    path = table(tmp_path, b"a,b\n" + b"x" * (3 << 20) + b",1\n")
    assert len(column(path, "a")[0]) == 3 << 20
    monkeypatch.setattr(csv_file, "BLOCK_BYTES", 1 << 20)
    with raises(InputError, "table-unreadable", reason="a row is longer than 16 MiB"):
        read_table(path, ())


def test_columns_of_json_keep_their_order_even_if_one_looks_like_a_date(tmp_path):
    row = {"a": 1, "b": "2020-01-01", "c": ["2020-01-01"]}
    found = read_table(write_jsonl(tmp_path / "rows.jsonl", [row]), ()).table
    assert found.column_names == ["a", "b", "c"]
    assert found.to_pylist() == [row]


def test_a_folder_named_like_a_value_adds_no_column_to_parquet(tmp_path):
    path = write_parquet(tmp_path / "year=2020" / "rows.parquet", {"x": [1]})
    assert read_table(path, ()).table.column_names == ["x"]


def test_a_table_that_changes_while_it_is_read_is_reported(tmp_path, monkeypatch):
    path = table(tmp_path, "a\n1\n")
    monkeypatch.setattr(files, "file_digest", lambda path: path.write_text("a\n1\n2\n") and "")
    with raises(InputError, "changed-while-read"):
        read_table(path, ())
