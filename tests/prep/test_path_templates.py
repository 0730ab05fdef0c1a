"""Paths of images that a template makes from the columns of a table."""

import pytest

from tests.errors import fault, raises
from tests.prep.table_files import encoded, examples, write_text
from tfshards.prep import ColumnRoles, Table
from tfshards.prep.cli.main import main
from tfshards.schemas import InputError


@pytest.fixture
def kaggle(tmp_path):
    """Write the layout of a competition: ids in a table, and a folder of images that they name."""
    for number in (3, 7):
        path = tmp_path / "train" / f"{number:04d}_x.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded(number))
    return write_text(tmp_path / "train.csv", "id,label,name", "7,cat,x", "3,dog,x")


def test_a_template_makes_the_paths_of_the_images(kaggle, tmp_path):
    out = tmp_path / "out"
    flags = ["--image", "train/{id:04d}_{name}.png", "--drop", "name", "--quiet"]
    assert main(["build", "table", str(kaggle), str(out), *flags]) == 0
    assert examples(out) == {
        f"train/000{number}_x.png": {
            "image": [encoded(number)],
            "label": [label],
            "id": [number],
            "key": [b"train/000%d_x.png" % number],
        }
        for number, label in ((3, 1), (7, 0))
    }


WRONG = {
    "no such column": ("train/{x}.png", fault("column-unknown", name="x")),
    "digits of text": ("train/{name:04d}.png", fault("template-column", name="name")),
    "an attribute": ("train/{id.__class__}.png", fault("column-unknown", name="id.__class__")),
    "another format": ("train/{id:>9}.png", "template-form"),
    "a conversion": ("train/{id!r}.png", "template-form"),
    "an open brace": ("train/{id.png", "template-form"),
}


@pytest.mark.parametrize(("template", "expected"), WRONG.values(), ids=WRONG)
def test_templates_that_make_no_paths_are_refused(kaggle, tmp_path, template, expected):
    with raises(InputError, expected):
        Table(kaggle, columns=ColumnRoles(images=(template,))).stage(tmp_path)


def test_a_missing_value_in_a_template_is_refused(kaggle, tmp_path):
    write_text(kaggle, "id,name", "7,x", "3,")
    with raises(InputError, "column-missing-values", name="name", null_count=1):
        Table(kaggle, columns=ColumnRoles(images=("train/{name}.png",))).stage(tmp_path)
