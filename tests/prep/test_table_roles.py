"""Which column of a table is for what: said by the user, or read off the names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tfshards.prep import Columns, Table
from tfshards.prep.sources.table_roles import roles_of
from tfshards.schemas import InputError


def parquet(folder: Path, **columns: object) -> Path:
    path = folder / "rows.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    return path


READ_OFF = {
    "nothing": (["x"], Columns(), {}, None, None, ("x",)),
    "the convention": (
        ["label", "file_name", "split"],
        Columns(),
        {"file_name": "image"},
        "label",
        "split",
        (),
    ),
    "the first image gives the keys": (
        ["left_file_name", "file_name"],
        Columns(),
        {"file_name": "image", "left_file_name": "left"},
        None,
        None,
        (),
    ),
    "a name that is only an end": (["_file_name"], Columns(), {}, None, None, ("_file_name",)),
    "images by name": (
        ["b", "a"],
        Columns(images=("a",), masks=("b",)),
        {"b": "b", "a": "a"},
        None,
        None,
        (),
    ),
    "another label": (["label", "y"], Columns(label="y"), {}, "y", None, ("label",)),
    "another split": (["split", "fold"], Columns(split="fold"), {}, None, "fold", ("split",)),
    "a name that is dropped": (
        ["split", "label", "x"],
        Columns(drop=("split", "label")),
        {},
        None,
        None,
        ("x",),
    ),
    "an image that is dropped": (["file_name", "x"], Columns(drop=("file_name",)), {}, None, None, ("x",)),
}


@pytest.mark.parametrize(
    ("names", "columns", "images", "label", "split", "others"), READ_OFF.values(), ids=READ_OFF.keys()
)
def test_columns_are_read_off_their_names(names, columns, images, label, split, others):
    roles = roles_of(names, columns, "t.csv")
    assert list(roles.images.items()) == list(images.items())
    assert (roles.label, roles.split, roles.others) == (label, split, others)
    assert roles.masks == {images[name] for name in columns.masks}


ROLES = {
    "no such column": (
        ["x", "a\nb"],
        Columns(label="y"),
        r"rows\.parquet has no column 'y'; it has x, 'a\\nb'$",
    ),
    "no such image": (["x"], Columns(images=("y",)), r"has no column 'y'; it has x$"),
    "no such column to drop": (["x"], Columns(drop=("y",)), r"has no column 'y'"),
    "one of many": ([f"c{n}" for n in range(30)], Columns(split="y"), r"it has c0, .*, c19 and 10 more$"),
    "two roles": (
        ["x"],
        Columns(label="x", drop=("x",)),
        r"^the column 'x' cannot have two roles; name it once$",
    ),
    "an image and a mask": (["x"], Columns(images=("x",), masks=("x",)), r"'x' cannot have two roles"),
    "a label that is no path": (
        ["x"],
        Columns(images=("x",)),
        r"^column 'x': paths of images are text, and these",
    ),
    "two features of one name": (
        ["image", "file_name"],
        Columns(),
        r"two columns make a feature 'image'; leave on",
    ),
    "a key": (
        ["key"],
        Columns(),
        r"the column 'key' is the name of each example's key; rename it, or leave it",
    ),
    "no printable name": (
        ["a\x1b"],
        Columns(),
        r"the column 'a\\x1b' is no printable name; rename it, or leave it",
    ),
    "an empty name": (["", "x"], Columns(), r"the column '' is no printable name"),
    "nothing to store": (["x"], Columns(drop=("x",)), r"has no column to store; there is nothing to build$"),
    "only splits": (["split"], Columns(), r"has no column to store"),
}


@pytest.mark.parametrize(("names", "columns", "message"), ROLES.values(), ids=ROLES.keys())
def test_columns_without_a_role_are_told(names, columns, message, tmp_path, quiet_build):
    path = parquet(tmp_path, **{name: [1, 2] for name in names})
    with pytest.raises(InputError, match=message):
        quiet_build(Table(path, columns=columns), tmp_path / "out")


def test_paths_of_which_all_are_missing_are_told(tmp_path, quiet_build):
    with pytest.raises(
        InputError, match=r"^column 'file_name': every path is missing; leave it out with --drop"
    ):
        quiet_build(Table(parquet(tmp_path, file_name=pa.nulls(2), x=[1, 2])), tmp_path / "out")


@pytest.mark.parametrize("name", ["file_name;caption", "a|b", "a\tb"])
def test_a_header_of_another_delimiter_is_told(name):
    with pytest.raises(
        InputError, match=r"^rows.csv has one column, .*, which looks like several: values are "
    ):
        roles_of([name], Columns(), "rows.csv")
