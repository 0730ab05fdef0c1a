"""Roles of table columns: given by the user, or derived from their names."""

import pyarrow as pa
import pytest

from tests.errors import fault, raises
from tests.prep.table_files import write_parquet, write_text
from tfshards.prep import ColumnRoles, Table
from tfshards.prep.cli.main import main
from tfshards.prep.sources.tables.assigned_columns import assign_columns
from tfshards.schemas import InputError, read_manifest

IMAGE = {"file_name": "image"}
# columns, roles; images, label, split, and the other columns
ROLES = {
    "nothing": (["x"], ColumnRoles(), {}, None, None, ["x"]),
    "the convention": (["label", "file_name", "split"], ColumnRoles(), IMAGE, "label", "split", []),
    "the first image gives the keys": (
        ["left_file_name", "file_name"],
        ColumnRoles(),
        {**IMAGE, "left_file_name": "left"},
        None,
        None,
        [],
    ),
    "an image by its name": (["image", "x"], ColumnRoles(), {"image": "image"}, None, None, ["x"]),
    "text by the name of an image": (["image"], ColumnRoles(no_images=True), {}, None, None, ["image"]),
    "the folders of a column image as splits": (
        ["image"],
        ColumnRoles(split="image"),
        {"image": "image"},
        None,
        "image",
        [],
    ),
    "splits in a column image that has none": (
        ["image", "x"],
        ColumnRoles(split="image", no_images=True),
        {},
        None,
        "image",
        ["x"],
    ),
    "a name that is only an end": (["_file_name"], ColumnRoles(), {}, None, None, ["_file_name"]),
    "by name": (["b", "a"], ColumnRoles(images=("a",), masks=("b",)), {"b": "b", "a": "a"}, None, None, []),
    "another label": (["label", "y"], ColumnRoles(label="y"), {}, "y", None, ["label"]),
    "another split": (["split", "fold"], ColumnRoles(split="fold"), {}, None, "fold", ["split"]),
    "no split": (["split"], ColumnRoles(split=""), {}, None, None, ["split"]),
    "folders as splits": (["file_name"], ColumnRoles(split="file_name"), IMAGE, None, "file_name", []),
    "dropped names": (["split", "label", "x"], ColumnRoles(drop=("split", "label")), {}, None, None, ["x"]),
    "an image that is dropped": (["file_name", "x"], ColumnRoles(drop=("file_name",)), {}, None, None, ["x"]),
}


@pytest.mark.parametrize(
    ("names", "columns", "images", "label", "split", "others"), ROLES.values(), ids=ROLES
)
def test_roles_of_columns_follow_from_their_names(names, columns, images, label, split, others):
    roles = assign_columns(names, columns, "t.csv")
    assert list(roles.images.items()) == list(images.items())
    assert (roles.label, roles.split) == (label, split)
    assert list(roles.stored) == [*([label] if label else []), *others]
    assert roles.masks == {images[name] for name in columns.masks}


WRONG = {
    "unknown": (["x", "a\nb"], ColumnRoles(label="y"), fault("column-unknown", name="y", names="x, 'a\\nb'")),
    "no such image": (["x"], ColumnRoles(images=("y",)), fault("column-unknown", name="y", names="x")),
    "no such column to drop": (["x"], ColumnRoles(drop=("y",)), fault("column-unknown", name="y")),
    "one of many": ([f"c{n}" for n in range(30)], ColumnRoles(split="y"), "column-unknown"),
    "two roles": (["x"], ColumnRoles(label="x", drop=("x",)), fault("column-roles-repeated", name="x")),
    "an image and a mask": (["x"], ColumnRoles(images=("x",), masks=("x",)), "column-roles-repeated"),
    "splits by the paths of a dropped image": (
        ["file_name", "x"],
        ColumnRoles(split="file_name", drop=("file_name",)),
        "column-unknown",
    ),
    "two features of one name": (["image", "file_name"], ColumnRoles(), "columns-same-feature"),
    "the name of the keys": (["key"], ColumnRoles(), fault("column-name", name="key")),
    "no printable name": (["a\x1b"], ColumnRoles(), "column-name"),
    "an empty name": (["", "x"], ColumnRoles(), fault("column-name", name="")),
    "nothing to store": (["x"], ColumnRoles(drop=("x",)), "table-no-columns"),
    "only splits": (["split"], ColumnRoles(), "table-no-columns"),
}


@pytest.mark.parametrize(("names", "columns", "expected"), WRONG.values(), ids=WRONG)
def test_columns_without_a_role_are_reported(names, columns, expected):
    with raises(InputError, expected):
        assign_columns(names, columns, "t.csv")


@pytest.mark.parametrize(
    ("values", "code"), [([1, 2], "column-paths-type"), (pa.nulls(2), "column-all-missing")]
)
def test_a_column_of_images_must_hold_paths(values, code, tmp_path):
    path = write_parquet(tmp_path / "rows.parquet", {"file_name": values, "x": [1, 2]})
    with raises(InputError, code, name="file_name"):
        Table(path).stage(tmp_path)


def test_the_index_of_pandas_is_dropped_by_its_empty_name(tmp_path, capsys):
    table, out = write_text(tmp_path / "rows.csv", ",x", "0,5", "1,6"), str(tmp_path / "out")
    assert main(["build", "table", str(table), out]) == 1
    assert "leave it out with --drop ''" in capsys.readouterr().err
    assert main(["build", "table", str(table), out, "--drop", ""]) == 0
    assert read_manifest(out).schema.names == ("x", "key")
