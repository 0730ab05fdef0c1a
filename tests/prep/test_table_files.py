"""Files of tables: the same rows from each format, values as written, and messages about damage."""

from tests.errors import raises
from tests.prep.table_files import write_jsonl, write_parquet
from tfshards.prep.sources.tables import csv_file, files
from tfshards.prep.sources.tables.files import read_table
from tfshards.schemas import InputError


def table(folder, content: str | bytes, name: str = "rows.csv"):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def column(path, name: str) -> list[object]:
    return read_table(path, ()).table[name].to_pylist()


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
