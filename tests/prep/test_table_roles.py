"""Roles of table columns: given by the user, or derived from their names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.errors import fault, raises
from tfshards.prep import ColumnRoles, Table
from tfshards.prep.cli.main import main
from tfshards.prep.sources.tables.column_roles import assign_columns
from tfshards.schemas import InputError, read_manifest


def parquet(folder: Path, **columns: object) -> Path:
    path = folder / "rows.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    return path


READ_OFF = {
    "nothing": (["x"], ColumnRoles(), {}, None, None, ("x",)),
    "the convention": (
        ["label", "file_name", "split"],
        ColumnRoles(),
        {"file_name": "image"},
        "label",
        "split",
        (),
    ),
    "the first image gives the keys": (
        ["left_file_name", "file_name"],
        ColumnRoles(),
        {"file_name": "image", "left_file_name": "left"},
        None,
        None,
        (),
    ),
    "a name that is only an end": (["_file_name"], ColumnRoles(), {}, None, None, ("_file_name",)),
    "images by name": (
        ["b", "a"],
        ColumnRoles(images=("a",), masks=("b",)),
        {"b": "b", "a": "a"},
        None,
        None,
        (),
    ),
    "another label": (["label", "y"], ColumnRoles(label="y"), {}, "y", None, ("label",)),
    "another split": (["split", "fold"], ColumnRoles(split="fold"), {}, None, "fold", ("split",)),
    "a name that is dropped": (
        ["split", "label", "x"],
        ColumnRoles(drop=("split", "label")),
        {},
        None,
        None,
        ("x",),
    ),
    "an image that is dropped": (
        ["file_name", "x"],
        ColumnRoles(drop=("file_name",)),
        {},
        None,
        None,
        ("x",),
    ),
}


@pytest.mark.parametrize(
    ("names", "columns", "images", "label", "split", "others"), READ_OFF.values(), ids=READ_OFF.keys()
)
def test_roles_of_columns_follow_from_their_names(names, columns, images, label, split, others):
    roles = assign_columns(names, columns, "t.csv")
    assert list(roles.images.items()) == list(images.items())
    assert (roles.label, roles.split, roles.others) == (label, split, others)
    assert roles.masks == {images[name] for name in columns.masks}


ROLES = {
    "no such column": (
        ["x", "a\nb"],
        ColumnRoles(label="y"),
        fault("column-unknown", name="y", names="x, 'a\\nb'"),
    ),
    "no such image": (["x"], ColumnRoles(images=("y",)), fault("column-unknown", name="y", names="x")),
    "no such column to drop": (["x"], ColumnRoles(drop=("y",)), fault("column-unknown", name="y")),
    "one of many": (
        [f"c{n}" for n in range(30)],
        ColumnRoles(split="y"),
        "column-unknown",
    ),
    "two roles": (
        ["x"],
        ColumnRoles(label="x", drop=("x",)),
        fault("column-roles-repeated", name="x"),
    ),
    "an image and a mask": (
        ["x"],
        ColumnRoles(images=("x",), masks=("x",)),
        fault("column-roles-repeated", name="x"),
    ),
    "a label that is not a path": (
        ["x"],
        ColumnRoles(images=("x",)),
        fault("column-paths-type", name="x"),
    ),
    "two features of one name": (
        ["image", "file_name"],
        ColumnRoles(),
        fault("columns-same-feature", name="image"),
    ),
    "a key": (
        ["key"],
        ColumnRoles(),
        fault("column-name", name="key"),
    ),
    "no printable name": (
        ["a\x1b"],
        ColumnRoles(),
        "column-name",
    ),
    "an empty name": (
        ["", "x"],
        ColumnRoles(),
        "column-empty-name",
    ),
    "nothing to store": (
        ["x"],
        ColumnRoles(drop=("x",)),
        "table-no-columns",
    ),
    "only splits": (["split"], ColumnRoles(), "table-no-columns"),
}


@pytest.mark.parametrize(("names", "columns", "message"), ROLES.values(), ids=ROLES.keys())
def test_columns_without_a_role_are_reported(names, columns, message, tmp_path, quiet_build):
    path = parquet(tmp_path, **{name: [1, 2] for name in names})
    with raises(InputError, message):
        quiet_build(Table(path, columns=columns), tmp_path / "out")


def test_the_index_of_pandas_is_dropped_by_its_empty_name(tmp_path, capsys):
    table, out = tmp_path / "rows.csv", str(tmp_path / "out")
    table.write_text(",x\n0,5\n1,6\n")
    assert main(["build", "table", str(table), out]) == 1
    assert "leave it out with --drop ''" in capsys.readouterr().err
    assert main(["build", "table", str(table), out, "--drop", ""]) == 0
    assert read_manifest(out).schema.names == ("x", "key")


def test_a_column_of_paths_that_are_all_missing_is_reported(tmp_path, quiet_build):
    with raises(InputError, "column-no-paths", name="file_name"):
        quiet_build(Table(parquet(tmp_path, file_name=pa.nulls(2), x=[1, 2])), tmp_path / "out")


@pytest.mark.parametrize("name", ["file_name;caption", "a|b", "a\tb"])
def test_a_header_with_another_delimiter_is_reported(name):
    with raises(InputError, "table-one-column", path="rows.csv"):
        assign_columns([name], ColumnRoles(), "rows.csv")
