"""Files of tables: the same rows from each format, values as written, and messages about damage."""

import math
import re

import pandas as pd
import pytest

from tests.errors import fault, raises
from tests.prep.table_files import examples, write_jsonl, write_parquet, write_text
from tfshards.prep import Table
from tfshards.prep.cli.main import main
from tfshards.prep.sources.tables import csv_file, files
from tfshards.prep.sources.tables.files import read_table, table_path
from tfshards.schemas import InputError, OptionsError, read_manifest

ROWS = [
    {"n": 1, "x": 0.1, "s": "plain", "ok": True, "split": "train"},
    {"n": -5, "x": math.inf, "s": 'with "quotes", commas\nand lines', "ok": False, "split": "val"},
    {"n": 2**63 - 1, "x": 1e-300, "s": "", "ok": True, "split": "train"},
    {"n": 0, "x": 2.0, "s": "Käse 猫\t", "ok": True, "split": "train"},
]


def written(folder, form: str):
    path = folder / f"rows.{form}"
    if form == "parquet":
        return write_parquet(path, {name: [row[name] for row in ROWS] for name in ROWS[0]})
    if form in ("jsonl", "ndjson"):
        # infinity is not valid JSON, but Python writes it
        return write_jsonl(path, ROWS)
    quoted = [
        ['"' + value.replace('"', '""') + '"' if isinstance(value, str) else str(value) for value in line]
        for line in ([*ROWS[0]], *(row.values() for row in ROWS))
    ]
    return write_text(path, *(("," if form == "csv" else "\t").join(line) for line in quoted))


def table(folder, content: str | bytes, name: str = "rows.csv"):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def column(path, name: str) -> list[object]:
    return read_table(path, ()).table[name].to_pylist()


def test_the_same_content_gives_the_same_records_from_each_format(tmp_path):
    found = {}
    for form in ("csv", "tsv", "jsonl", "ndjson", "parquet"):
        out = tmp_path / form
        assert main(["build", "table", str(written(tmp_path, form)), str(out), "--name", "t"]) == 0
        found[form] = (examples(out), read_manifest(out).schema)
    assert all(each == found["csv"] for each in found.values())
    assert [(row["n"], row["s"]) for row in found["csv"][0].values()] == [
        ([row["n"]], [row["s"].encode()]) for row in ROWS
    ]


VALUES = {
    "byte order mark, line ends of Windows": (b"\xef\xbb\xbfa,b\r\nx,1\r\n\r\ny,2\r\n", ["x", "y"]),
    "no newline at the end": (b"a,b\nx,1\ny,2", ["x", "y"]),
    "a newline inside a value": (b'a,b\n"x\r\n",1\n"",2\n', ["x\r\n", ""]),
    "and a quote after it": (b'a,b\n"x\n""",1\n', ['x\n"']),
    "and at the very end": (b'b,a\n1,"x\ny"', ["x\ny"]),
    "not UTF-8": (b"a,b\n\xff,1\n\xc3\xa4,2\n", [b"\xff", b"\xc3\xa4"]),
    "words that mean a missing value elsewhere": (b"a,b\nNA,1\nnull,2\nx,3\n", ["NA", "null", "x"]),
    "dates": (b"a,b\n2020-01-01,1\n2021-12-31,2\n", ["2020-01-01", "2021-12-31"]),
    "times": (b"a,b\n12:30,1\n", ["12:30"]),
    "text that Arrow reads as numbers": (b"a,b\n007,1\n8,2\n", ["007", "8"]),
    "hexadecimal numbers": (b"a,b\n0x10,1\n", ["0x10"]),
    "zeros before fractions": (b"a,b\n0.5,1\n01,1\n", ["0.5", "01"]),
    "beyond int64": (b"a,b\n18446744073709551615,1\n1,1\n", ["18446744073709551615", "1"]),
    "among fractions": (b"a,b\n9007199254740993,1\n0.5,1\n", ["9007199254740993", "0.5"]),
    "the smallest int64": (b"a,b\n-9223372036854775808,1\n0,1\n", [-(2**63), 0]),
    "exact in float64": (b"a,b\n10000000000000000000000,1\n0.5,1\n", [1e22, 0.5]),
    "exponents": (b"a,b\n1e3,1\n-inf,2\n", [1000.0, -math.inf]),
}


@pytest.mark.parametrize(("content", "expected"), VALUES.values(), ids=VALUES)
def test_csv_values_are_read_as_written(content, expected, tmp_path):
    assert column(table(tmp_path, content), "a") == expected


def test_a_column_of_numbers_that_stays_text_is_reported(tmp_path):
    found = read_table(table(tmp_path, "id,x\n 007,1\n8,2\n"), ())
    assert found.warnings == ("column 'id' is stored as text: the number 007 could not be restored",)
    assert found.table["id"].to_pylist() == [" 007", "8"]


def test_a_column_of_paths_need_not_be_utf8(tmp_path):
    content = b"file_name,x\n\xff,1\n\xc3\xa4,2\n"
    assert column(table(tmp_path, content), "file_name") == [b"\xff", b"\xc3\xa4"]


LATIN = {
    "classes": ("rows.csv", "n,label\n1,the\n2,café\n", "label"),
    "tabs": ("rows.tsv", "n\tlabel\n1\tcafé\n", "label"),
    "text": ("rows.csv", "n,note\n1,café\n", "note"),
    "splits": ("rows.csv", "n,split\n1,café\n", "split"),
    "text of JSON": ("rows.jsonl", '{"n": 1, "note": "thé"}\n', "note"),
    "a list of JSON": ("rows.jsonl", '{"n": 1, "tags": []}\n{"n": 2, "tags": ["a", "thé"]}\n', "tags"),
}


@pytest.mark.parametrize(("name", "content", "where"), LATIN.values(), ids=LATIN)
def test_text_that_is_not_utf8_is_refused(name, content, where, tmp_path):
    with raises(InputError, "column-not-utf8", name=where):
        Table(table(tmp_path, content.encode("latin-1"), name)).stage(tmp_path)


UNREADABLE = {
    "empty": ("rows.csv", b"", "Empty CSV file"),
    "empty JSON": ("rows.jsonl", b"", "Empty JSON file"),
    "a row too long": ("rows.csv", b"a,b\n1,2,3\n", "Expected 2 columns, got 3"),
    "a key twice": ("rows.jsonl", b'{"a":1,"a":2}\n', "specified twice in row 0"),
    "an open quote": ("rows.csv", b'a,b\n1,"x\n2,y\n3,z\n', "a quote is not closed"),
    # the second is of Python 3.10
    "a header that is not text": ("rows.csv", b"\xff\xfea\x00\n", "(invalid start byte|line contains NUL)"),
    "a list of JSON": ("rows.jsonl", b'[{"a": 1}]', "changed from object to array in row 0"),
    "two types": ("rows.jsonl", b'{"a":1}\n{"a":"x"}\n', "changed from number to string in row 1"),
    "half a line": ("rows.jsonl", b'{"a":1}\n{"a":', "JSON parse error"),
    "not Parquet": ("rows.parquet", b"PAR1 this is not a table", "Parquet magic bytes"),
}


@pytest.mark.parametrize(("name", "content", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_is_not_a_table_is_reported(name, content, reason, tmp_path):
    path = table(tmp_path, content, name)
    with pytest.raises(InputError, match=rf"^{path}: cannot be read: .*{reason}") as raised:
        read_table(path, ())
    assert raised.value.code == "table-unreadable"


WRONG = {
    "a header only": ("rows.csv", b"a,b\n", "table-no-rows"),
    "a column twice": ("rows.csv", b"a,a\n1,2\n", fault("column-repeated", twice="a")),
    "a large integer": (
        "rows.jsonl",
        b'{"a":[1]}\n{"a":[18446744073709551615]}\n',
        fault("table-rounded", number=1, name="a", found="18446744073709551615"),
    ),
    "an integer of thousands of digits": (
        "rows.jsonl",
        b'{"a":[' + b"9" * 5000 + b"]}",
        fault("table-rounded", number=0, found="9" * 30),
    ),
    "a large integer among fractions": (
        "rows.ndjson",
        b'{"a":0.5}\n\n{"a":9007199254740993}\n',
        fault("table-rounded", number=1, found="9007199254740993"),
    ),
    "lists that are nested deeply": ("rows.jsonl", b'{"a":' + b"[" * 500 + b"]" * 500 + b"}", "column-type"),
}


@pytest.mark.parametrize(("name", "content", "expected"), WRONG.values(), ids=WRONG)
def test_content_that_cannot_be_stored_is_reported(name, content, expected, tmp_path):
    with raises(InputError, expected):
        Table(table(tmp_path, content, name)).stage(tmp_path)


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


def test_large_fractional_numbers_of_json_are_accepted(tmp_path):
    path = table(tmp_path, '{"a":1e300}\n{"a":9007199254740992}\n{}\n', "r.jsonl")
    assert column(path, "a") == [1e300, 2**53, None]


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


def test_a_table_is_found_in_its_folder_or_by_its_suffix(tmp_path):
    with raises(InputError, "table-folder"):
        table_path(tmp_path)
    (tmp_path / "metadata.csv").write_text("a\n1\n")
    assert table_path(tmp_path) == tmp_path / "metadata.csv"
    (tmp_path / "metadata.jsonl").write_text("{}")
    with raises(InputError, "table-folder"):
        table_path(tmp_path)
    assert table_path(table(tmp_path, b"", "ROWS.CSV")).name == "ROWS.CSV"
    with raises(OptionsError, "table-suffix"):
        table_path(table(tmp_path, b"", "rows.xlsx"))
    for name in ("none.csv", "none.txt"):
        with raises(InputError, "table-missing"):
            table_path(tmp_path / name)
