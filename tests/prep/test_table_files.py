"""Files of tables: the same rows from each format, values as written, and messages about damage."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.errors import raises
from tfshards.prep import Table
from tfshards.prep.cli.main import main
from tfshards.prep.records.example import decode_example
from tfshards.prep.records.frames import read_records
from tfshards.prep.sources.tables import files as table_csv
from tfshards.prep.sources.tables.files import read_table, table_path
from tfshards.schemas import InputError, OptionsError, read_manifest

ROWS = [
    {"n": 1, "x": 0.1, "s": "plain", "ok": True, "split": "train"},
    {"n": -5, "x": math.inf, "s": 'with "quotes", commas\nand lines', "ok": False, "split": "val"},
    {"n": 2**63 - 1, "x": 1e-300, "s": "", "ok": True, "split": "train"},
    {"n": 0, "x": 2.0, "s": "Käse 猫\t", "ok": True, "split": "train"},
]


def delimited(rows: list[dict[str, object]], delimiter: str, end: str = "\n") -> str:
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    quoted = [
        ['"' + value.replace('"', '""') + '"' if isinstance(value, str) else str(value) for value in line]
        for line in lines
    ]
    return "".join(delimiter.join(line) + end for line in quoted)


def written(folder: Path, form: str) -> Path:
    path = folder / f"rows.{form}"
    if form == "parquet":
        pa.parquet.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=3)
    elif form in ("csv", "tsv"):
        path.write_text(delimited(ROWS, "," if form == "csv" else "\t"), encoding="utf-8")
    else:
        # infinity is not valid JSON, but Python writes it
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def records(out: Path) -> list[dict[str, list[object]]]:
    """Return all examples in the order of the shards, without TensorFlow."""
    shards = read_manifest(out).shards
    return [decode_example(data) for shard in shards for _, data in read_records(out / shard.path, "none")]


def column(path: Path, name: str) -> list[object]:
    return read_table(path, ()).table[name].to_pylist()


def csv(folder: Path, content: str | bytes, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_the_same_content_gives_the_same_records_from_each_format(tmp_path, capsys):
    found = {}
    for form in ("csv", "tsv", "jsonl", "ndjson", "parquet"):
        out = tmp_path / form
        status = main(
            ["build", "table", str(written(tmp_path, form)), str(out), "--name", "t", "--shards", "1"]
        )
        assert status == 0, capsys.readouterr().err
        found[form] = (records(out), read_manifest(out).schema)
    assert all(each == found["csv"] for each in found.values())
    assert [row["n"] for row in found["csv"][0] if row["key"] == [b"1"]] == [[-5]]
    assert sorted(row["s"][0].decode() for row in found["csv"][0]) == sorted(row["s"] for row in ROWS)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xef\xbb\xbfa,b\r\nx,1\r\n\r\ny,2\r\n", ["x", "y"]),  # byte order mark, line ends of Windows
        (b"a,b\nx,1\ny,2", ["x", "y"]),  # no newline at the end
        (b'a,b\n"x\r\n",1\n"",2\n', ["x\r\n", ""]),  # a newline inside a value
        (b'a,b\n"x\n""",1\n', ['x\n"']),  # and a quote after it
        (b'b,a\n1,"x\ny"', ["x\ny"]),  # and at the very end
        (b"a,b\n\xff,1\n\xc3\xa4,2\n", [b"\xff", b"\xc3\xa4"]),  # not UTF-8
        (b"a,b\nNA,1\nnull,2\nx,3\n", ["NA", "null", "x"]),  # words that mean a missing value elsewhere
        (b"a,b\n2020-01-01,1\n2021-12-31,2\n", ["2020-01-01", "2021-12-31"]),  # dates stay text
        (b"a,b\n12:30,1\n", ["12:30"]),
        (b"a,b\n007,1\n8,2\n", ["007", "8"]),  # strings that Arrow reads as numbers
        (b"a,b\n0x10,1\n", ["0x10"]),
        (b"a,b\n0.5,1\n01,1\n", ["0.5", "01"]),
        (b"a,b\n18446744073709551615,1\n1,1\n", ["18446744073709551615", "1"]),  # beyond int64
        (b"a,b\n9007199254740993,1\n0.5,1\n", ["9007199254740993", "0.5"]),  # among fractions
        (b"a,b\n-9223372036854775808,1\n0,1\n", [-(2**63), 0]),
        (b"a,b\n10000000000000000000000,1\n0.5,1\n", [1e22, 0.5]),  # exact in float64
        (b"a,b\n1e3,1\n-inf,2\n", [1000.0, -math.inf]),
    ],
)
def test_csv_values_are_read_as_written(content, expected, tmp_path):
    assert column(csv(tmp_path, content), "a") == expected


def test_a_column_of_numbers_that_stays_text_is_reported(tmp_path, quiet_build, log):
    quiet_build(Table(csv(tmp_path, "id,x\n 007,1\n8,2\n")), tmp_path / "out")
    assert log[0] == (
        "warning: column 'id' is stored as text: the number 007 could not be restored as it is written"
    )
    assert sorted(row["id"][0] for row in records(tmp_path / "out")) == [b" 007", b"8"]


def test_a_column_of_paths_need_not_be_utf8(tmp_path):
    content = b"file_name,x\n\xff,1\n\xc3\xa4,2\n"
    assert column(csv(tmp_path, content), "file_name") == [b"\xff", b"\xc3\xa4"]


LATIN = {
    "classes": ("rows.csv", "n,label\n1,the\n2,café\n", "column 'label', data row 2,"),
    "tabs": ("rows.tsv", "n\tlabel\n1\tcafé\n", "column 'label', data row 1,"),
    "text": ("rows.csv", "n,note\n1,café\n", "column 'note', data row 1,"),
    "splits": ("rows.csv", "n,split\n1,café\n", "column 'split', data row 1,"),
    "text of JSON": ("rows.jsonl", '{"n": 1, "note": "thé"}\n', "column 'note', data row 1,"),
    "classes of JSON": ("rows.jsonl", '{"n": 1, "label": "thé"}\n', "column 'label', data row 1,"),
    "a list of JSON": (
        "rows.jsonl",
        '{"n": 1, "tags": []}\n{"n": 2, "tags": ["a", "thé"]}\n',
        "column 'tags', data row 2,",
    ),
}


@pytest.mark.parametrize(("name", "content", "where"), LATIN.values(), ids=LATIN.keys())
def test_text_that_is_not_utf8_is_refused(name, content, where, tmp_path):
    path = csv(tmp_path, content.encode("latin-1"), name)
    (tmp_path / "stage").mkdir()
    with pytest.raises(InputError, match=rf"^{path}: {where} is not UTF-8; save the table as UTF-8, which"):
        Table(path).stage(tmp_path / "stage")


BAD_FILES = {
    "empty": ("rows.csv", b"", r"rows\.csv: cannot be read: Empty CSV file$"),
    "empty lines of JSON": ("rows.jsonl", b"", r"rows\.jsonl: cannot be read: Empty JSON file$"),
    "a header only": ("rows.csv", b"a,b\n", r"rows\.csv has no rows; there is nothing to build$"),
    "a row too long": (
        "rows.csv",
        b"a,b\n1,2,3\n",
        r"cannot be read: CSV parse error: Expected 2 columns, got 3",
    ),
    "a row too short": ("rows.csv", b"a,b\n1\n", r"CSV parse error: Expected 2 columns, got 1: 1$"),
    "a column twice": (
        "rows.csv",
        b"a,a\n1,2\n",
        r"rows\.csv: the column 'a' is repeated; rename one of them",
    ),
    "a key twice": ("rows.jsonl", b'{"a":1,"a":2}\n', r"Column\(/a\) was specified twice in row 0$"),
    "an open quote": (
        "rows.csv",
        b'a,b\n1,"x\n2,y\n3,z\n',
        r"cannot be read: a quote is not closed: the last value extends over several lines$",
    ),
    "a header that is not text": (
        "rows.csv",
        b"\xff\xfea\x00\n",
        # the second is of Python 3.10
        r"(is not UTF-8; save it as UTF-8|cannot be read: line contains NUL)$",
    ),
    "a list of JSON": ("rows.jsonl", b'[{"a": 1}]', r"changed from object to array in row 0$"),
    "two types": (
        "rows.jsonl",
        b'{"a":1}\n{"a":"x"}\n',
        r"Column\(/a\) changed from number to string in row 1$",
    ),
    "half a line": ("rows.jsonl", b'{"a":1}\n{"a":', r"cannot be read: JSON parse error"),
    "no Parquet": (
        "rows.parquet",
        b"PAR1 this is no table",
        r"rows\.parquet: cannot be read: Parquet magic bytes",
    ),
    "a large integer": (
        "rows.jsonl",
        b'{"a":[1]}\n{"a":[18446744073709551615]}\n',
        r"rows\.jsonl, row 1: column 'a': 18446744073709551615 would be rounded: it exceeds int64, or",
    ),
    "an integer of thousands of digits": (
        "rows.jsonl",
        b'{"a":[' + b"9" * 5000 + b"]}",
        r"rows\.jsonl, row 0: column 'a': 9{30} would be rounded",
    ),
    "lists that lie deep": (
        "rows.jsonl",
        b'{"a":' + b"[" * 500 + b"]" * 500 + b"}",
        r"^column 'a': its type list<.{55}\.\.\. cannot be stored",
    ),
    "a large integer among fractions": (
        "rows.ndjson",
        b'{"a":0.5}\n\n{"a":9007199254740993}\n',
        r"rows\.ndjson, row 1: column 'a': 9007199254740993 would be rounded: .*; write it as a string$",
    ),
}


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_file_that_is_not_a_table_is_reported(name, content, message, tmp_path, quiet_build):
    with pytest.raises(InputError, match=message):
        quiet_build(Table(csv(tmp_path, content, name)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_large_fractional_numbers_of_json_are_accepted(tmp_path):
    assert column(csv(tmp_path, '{"a":1e300}\n{"a":9007199254740992}\n{}\n', "r.jsonl"), "a") == [
        1e300,
        2**53,
        None,
    ]


def test_a_row_longer_than_a_block_is_reported(tmp_path, monkeypatch):
    path = csv(tmp_path, b"a,b\n" + b"x" * (3 << 20) + b",1\n")
    assert len(column(path, "a")[0]) == 3 << 20
    monkeypatch.setattr(table_csv, "BLOCK_BYTES", 1 << 20)
    with raises(InputError, "table-unreadable", reason="a row is longer than 16 MiB"):
        read_table(path, ())


def test_columns_of_json_keep_their_order_even_if_one_looks_like_a_date(tmp_path):
    path = csv(tmp_path, '{"a":1,"b":"2020-01-01","c":["2020-01-01"]}\n', "rows.jsonl")
    table = read_table(path, ()).table
    assert table.column_names == ["a", "b", "c"]
    assert table.to_pylist() == [{"a": 1, "b": "2020-01-01", "c": ["2020-01-01"]}]


def test_a_folder_named_like_a_value_adds_no_column_to_parquet(tmp_path):
    (tmp_path / "year=2020").mkdir()
    path = written(tmp_path / "year=2020", "parquet")
    assert read_table(path, ()).table.column_names == list(ROWS[0])


def test_a_table_that_changes_while_it_is_read_is_reported(tmp_path, monkeypatch):
    path = csv(tmp_path, "a\n1\n")
    digest = "tfshards.prep.sources.tables.files.file_digest"
    monkeypatch.setattr(digest, lambda path: path.write_text("a\n1\n2\n") and "")
    with raises(InputError, "changed-while-read"):
        read_table(path, ())


def test_a_table_is_found_in_its_folder_or_by_its_suffix(tmp_path):
    with raises(InputError, "table-folder"):
        table_path(tmp_path)
    (tmp_path / "metadata.csv").write_text("a\n1\n")
    assert table_path(tmp_path) == tmp_path / "metadata.csv"
    (tmp_path / "metadata.jsonl").write_text("{}")
    with raises(InputError, "table-folder"):
        table_path(tmp_path)
    assert table_path(csv(tmp_path, b"", "ROWS.CSV")).name == "ROWS.CSV"
    with raises(OptionsError, "table-suffix"):
        table_path(csv(tmp_path, b"", "rows.xlsx"))
    for name in ("none.csv", "none.txt"):
        with pytest.raises(InputError, match=rf"{name} does not exist$"):
            table_path(tmp_path / name)


def test_another_table_is_another_build(tmp_path, quiet_build):
    path = csv(tmp_path, "a\n1\n")
    quiet_build(Table(path), tmp_path / "out")
    csv(tmp_path, "a\n2\n")
    with raises(InputError, "dataset-differs"):
        quiet_build(Table(path), tmp_path / "out")
    quiet_build(Table(path), tmp_path / "out", overwrite=True)
    assert records(tmp_path / "out")[0]["a"] == [2]


def test_a_part_without_rows_is_reported_and_left_out(tmp_path, quiet_build):
    for name, count in (("train-00000-of-00002", 3), ("train-00001-of-00002", 0), ("test-00000-of-00001", 2)):
        pa.parquet.write_table(
            pa.table({"a": pa.array(range(count), pa.int64())}), tmp_path / f"{name}.parquet"
        )
    logged: list[str] = []
    made = quiet_build(Table(tmp_path), tmp_path / "out", log=logged.append)
    assert {name: split.num_examples for name, split in made.splits.items()} == {"train": 3, "test": 2}
    (warning,) = [line for line in logged if "no rows" in line]
    assert warning == f"warning: {tmp_path / 'train-00001-of-00002.parquet'} has no rows"
    for path in tmp_path.glob("*.parquet"):
        pa.parquet.write_table(pa.table({"a": pa.array([], pa.int64())}), path)
    with raises(InputError, "parts-no-rows"):
        quiet_build(Table(tmp_path), tmp_path / "none")
