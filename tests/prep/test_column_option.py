"""One option for the role of each column, and the table of roles that plan and info print."""

import pytest

from tests.errors import raises
from tests.prep.table_files import encoded, write_jsonl
from tfshards.prep import ColumnRoles
from tfshards.prep.cli.main import main
from tfshards.schemas import OptionsError, read_manifest

ROW = {"path": "a.png", "edge": "m.png", "bbox": [0, 0, 4, 4], "eye": [1, 2, 1], "kind": "cat", "part": "val"}
KINDS = ["image", "mask", "xywh", "xyv", "label", "split", "drop"]
ROLES = dict(zip([*ROW, "note"], KINDS, strict=True))
FIELDS = ColumnRoles(
    images=("path",),
    masks=("edge",),
    boxes={"bbox": "xywh"},
    keypoints={"eye": "xyv"},
    label="kind",
    split="part",
    drop=("note",),
)


def test_roles_of_columns_are_the_options_of_their_roles():
    assert ColumnRoles(column=ROLES) == FIELDS
    assert ColumnRoles(images=("a",), column={"b": "image", "c": "none"}) == ColumnRoles(
        images=("a", "b"), boxes={"c": "none"}
    )


def test_flags_of_columns_make_the_dataset_that_plan_and_info_describe(tmp_path, capsys):
    (tmp_path / "a.png").write_bytes(encoded(1))
    (tmp_path / "m.png").write_bytes(encoded(2, mode="L"))
    path = write_jsonl(
        tmp_path / "t.jsonl", [{**ROW, "note": "x", "age": None}, {**ROW, "note": "y", "age": 1}]
    )
    flags = [each for name, role in ROLES.items() for each in ("--column", f"{name}={role}")]
    flags += ["--missing", "age=0", "--quiet"]
    out = tmp_path / "out"
    assert main(["build", "table", str(path), str(out), *flags]) == 0
    schema = read_manifest(out).schema
    assert {each.name: each.kind for each in schema.features} == {
        "path": "image",
        "edge": "mask",
        "kind": "label",
        "bbox": "float",
        "eye": "float",
        "age": "int",
        "key": "bytes",
    }
    assert [*read_manifest(out).splits] == ["val"]
    for command in (["plan", "table", str(path), str(out), *flags], ["info", str(out)]):
        capsys.readouterr()
        assert main(command) == 0
        rows = [tuple(line.split()) for line in capsys.readouterr().out.splitlines()]
        first = rows.index(("column", "role", "feature"))
        assert rows[first + 1 : first + 8] == [
            ("path", "image", "path"),
            ("edge", "mask", "edge"),
            ("kind", "label", "kind"),
            ("bbox", "xywh", "bbox"),
            ("eye", "xyv", "eye"),
            ("part", "split"),
            ("age", "missing:", "0"),
        ]


CONFLICTS = {
    "another role": ({"images": ("a",), "column": {"a": "mask"}}, "column-roles-repeated"),
    "the same role": ({"drop": ("a",), "column": {"a": "drop"}}, "column-roles-repeated"),
    "two formats": ({"boxes": {"a": "xywh"}, "column": {"a": "xyxy"}}, "column-roles-repeated"),
    "two labels": ({"label": "b", "column": {"a": "label"}}, "column-roles-repeated"),
    "no label": ({"label": "", "column": {"a": "label"}}, "column-roles-repeated"),
    "two splits": ({"column": {"a": "split", "b": "split"}}, "column-roles-repeated"),
    "no role": ({"column": {"a": "picture"}}, "coordinates-format"),
    "no columns": ({"column": "a"}, "coordinates-format"),
}


@pytest.mark.parametrize(("given", "code"), CONFLICTS.values(), ids=CONFLICTS)
def test_roles_that_contradict_options_are_refused(given, code):
    with raises(OptionsError, code):
        ColumnRoles(**given)


def test_the_flag_has_a_column_and_a_role(tmp_path, capsys):
    assert main(["build", "table", "t.csv", str(tmp_path / "out"), "--column", "image"]) == 2
    assert "COLUMN=ROLE" in capsys.readouterr().err
