"""Text tables of other forms, tables that are joined, and rows that become lists."""

import csv

import pytest

from tests.errors import fault, raises
from tests.prep.table_files import check_repair, encoded, examples, write_parquet, write_text
from tfshards.prep import ColumnRoles, RowOptions, Table, append
from tfshards.schemas import InputError, OptionsError

# the layout of CUB-200-2011: runs of spaces, no headers, a table for each column
IMAGES = ["1  001.Albatross/a.png", "2 001.Albatross/b.png", "3   002.Auklet/c.png"]
LABELS = ["1 1", "3 2", "2 1"]
NAMES = ["1 Albatross", "2 Auklet"]
CUB = RowOptions(
    delimiter=" ",
    header="none",
    column_names=("image_id", "path"),
    join=("labels.txt=image_id:image_id,class_id", "sub/classes.txt=class_id:class_id,name"),
)


@pytest.fixture
def cub(tmp_path):
    folder = tmp_path / "cub"
    write_text(folder / "images.txt", *IMAGES)
    write_text(folder / "labels.txt", *LABELS)
    write_text(folder / "sub" / "classes.txt", *NAMES)
    for number, line in enumerate(IMAGES):
        path = folder / line.split()[1]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded(number))
    return folder


def values(out, *names):
    return [tuple(found[name] for name in names) for found in examples(out).values()]


def test_append_and_repair_read_the_joined_tables_again(cub, tmp_path, quiet_build):
    out, roles = tmp_path / "out", ColumnRoles(images=("path",), label="name")
    quiet_build(Table(cub / "images.txt", columns=roles, rows=CUB), out)
    check_repair(out, cub / "images.txt")
    write_text(cub / "images.txt", *IMAGES, "4 002.Auklet/d.png")
    write_text(cub / "labels.txt", *LABELS, "4 2")
    (cub / "002.Auklet" / "d.png").write_bytes(encoded(9))
    append(cub / "images.txt", out)
    assert examples(out)["002.Auklet/d.png"]["name"] == [1]


def test_a_change_of_a_joined_table_is_another_build(cub, tmp_path, quiet_build):
    table = Table(cub / "images.txt", columns=ColumnRoles(images=("path",)), rows=CUB)
    first = quiet_build(table, tmp_path / "a")
    write_text(cub / "sub" / "classes.txt", "1 Albatros", "2 Auklet")
    assert quiet_build(table, tmp_path / "b").build_id != first.build_id


JOINS = {
    "no row": (["1,5"], fault("join-keys-missing", num_rows=2, first="2")),
    "repeated": (["1,5", "1,6", "2,5", "2,5", "3,1"], fault("join-keys-repeated", repeated=2, without=0)),
    "no value": (["1,5", ",5", "2,5", "3,1"], fault("join-keys-repeated", repeated=0, without=1)),
}


@pytest.mark.parametrize(("lines", "expected"), JOINS.values(), ids=JOINS)
def test_keys_that_do_not_fit_are_counted(tmp_path, lines, expected):
    write_text(tmp_path / "t.csv", "id,x", "1,7", "2,8", "3,9")
    write_text(tmp_path / "other.csv", "id,y", *lines)
    with raises(InputError, expected):
        Table(tmp_path / "t.csv", rows=RowOptions(join=("other.csv=id",))).column_names()


def test_joined_tables_must_have_the_column_and_no_other_of_the_table(tmp_path):
    write_text(tmp_path / "t.csv", "id,x,z", "1,7,0.5")
    write_text(tmp_path / "other.csv", "id,x", "1,7")
    for key, wanted in (("id", fault("join-collision", name="x")), ("y", fault("column-unknown", name="y"))):
        with raises(InputError, wanted):
            Table(tmp_path / "t.csv", rows=RowOptions(join=(f"other.csv={key}",))).column_names()
    write_text(tmp_path / "other.csv", "z,y", "0.5,7")
    with raises(InputError, "join-key-type", name="z"):
        Table(tmp_path / "t.csv", rows=RowOptions(join=("other.csv=z",))).column_names()


def test_text_and_numbers_of_equal_spelling_are_one_key(tmp_path, quiet_build):
    write_text(tmp_path / "t.csv", "id,x", "1,7", "2,8")
    write_parquet(tmp_path / "other.parquet", {"id": ["2", "1"], "y": [20, 10]})
    quiet_build(Table(tmp_path / "t.csv", rows=RowOptions(join=("other.parquet=id",))), tmp_path / "out")
    assert values(tmp_path / "out", "id", "y") == [([1], [10]), ([2], [20])]


def boxes(tmp_path):
    """Write a table with a row for each box, as Open Images has them, and one with a row for each image."""
    for number, name in enumerate("ab"):
        (tmp_path / f"{name}.png").write_bytes(encoded(number))
    rows = ["b.png,dog,0.5,8,train", "a.png,cat,0.25,8,val", "b.png,cat,0.75,8,train"]
    write_text(tmp_path / "boxes.csv", "file_name,LabelName,XMin,width,split", *rows)
    return write_text(tmp_path / "sizes.csv", "file_name,rights", "a.png,x", "b.png,y")


def test_rows_of_one_image_become_lists(tmp_path, quiet_build, log):
    boxes(tmp_path)
    rows = RowOptions(one_row_per=("file_name", "width"), join=("sizes.csv=file_name",))
    roles = ColumnRoles(label="LabelName")
    manifest = quiet_build(Table(tmp_path / "boxes.csv", columns=roles, rows=rows), tmp_path / "out")
    shapes = {feature.name: feature.shape for feature in manifest.schema.features if not feature.is_encoded}
    assert shapes == {"LabelName": (None,), "XMin": (None,), "width": (), "rights": (), "key": ()}
    expected = {}
    with (tmp_path / "boxes.csv").open() as file:
        for row in csv.DictReader(file):
            found = expected.setdefault(row["file_name"], ([], []))
            found[0].append(["cat", "dog"].index(row["LabelName"]))
            found[1].append(float(row["XMin"]))
    found = {key: (each["LabelName"], each["XMin"]) for key, each in examples(tmp_path / "out").items()}
    assert found == expected
    assert values(tmp_path / "out", "width", "rights") == [([8], [b"x"]), ([8], [b"y"])]
    assert {name: split.num_examples for name, split in manifest.splits.items()} == {"train": 1, "val": 1}
    assert any("lists: LabelName, XMin" in line for line in log)


@pytest.mark.parametrize(
    ("column", "change"), [("width", ("0.75,8", "0.75,9")), ("split", ("0.75,8,train", "0.75,8,val"))]
)
def test_single_values_must_be_equal_in_a_group(tmp_path, column, change):
    boxes(tmp_path)
    text = (tmp_path / "boxes.csv").read_text()
    (tmp_path / "boxes.csv").write_text(text.replace(*change))
    rows = RowOptions(one_row_per=("file_name", "width"))
    with raises(InputError, "group-differs", name=column, by="file_name", num_groups=1, first="b.png"):
        Table(tmp_path / "boxes.csv", rows=rows).column_names()


def test_rows_without_the_value_that_groups_them_are_counted(tmp_path):
    (tmp_path / "t.csv").write_text("id,x\n1,2\n,3\n,4\n")
    rows = RowOptions(one_row_per=("id",))
    with raises(InputError, "group-no-value", name="id", null_count=2):
        Table(tmp_path / "t.csv", rows=rows).column_names()


FORMS = {
    "lines before the header": ("2\n\nx,label\n1,a\n", RowOptions(skip_rows=2), [([1], [0])]),
    "semicolons": ("x;label\n1;a,b\n", RowOptions(delimiter=";"), [([1], [0])]),
    "lines before rows": (
        "# made by\n1\ta\n",
        RowOptions(delimiter="\t", header="none", column_names=("x", "label"), skip_rows=1),
        [([1], [0])],
    ),
    "spaces and quotes": ('x  label \n1   "a  ""b"""\n', RowOptions(delimiter=" "), [([1], [0])]),
}


@pytest.mark.parametrize(("text", "rows", "expected"), FORMS.values(), ids=FORMS)
def test_text_tables_are_read_in_the_form_that_is_declared(tmp_path, quiet_build, text, rows, expected):
    path = tmp_path / ("t.csv" if rows.delimiter is None else "t.txt")
    path.write_text(text)
    manifest = quiet_build(Table(path, rows=rows), tmp_path / "out")
    assert values(tmp_path / "out", "x", "label") == expected
    if '"' in text:
        assert manifest.schema.class_names == ('a  "b"',)


def test_a_header_without_the_name_of_the_first_column_is_reported(tmp_path, quiet_build, log):
    # list_attr_celeba.txt
    path = write_text(tmp_path / "attr.txt", "2", "Bald  Male", "a.jpg -1  1", "b.jpg  1 -1")
    rows = RowOptions(delimiter=" ", skip_rows=1)
    quiet_build(Table(path, columns=ColumnRoles(no_images=True), rows=rows), tmp_path / "out")
    assert values(tmp_path / "out", "index", "Bald", "Male") == [
        ([b"a.jpg"], [-1], [1]),
        ([b"b.jpg"], [1], [-1]),
    ]
    assert any("'index'" in line for line in log)


def test_too_many_texts_for_classes_are_refused(tmp_path, quiet_build):
    path = write_text(tmp_path / "t.csv", "label", *(f"text {number}" for number in range(10_001)))
    with raises(InputError, "label-column-many", name="label", max_classes=10_000):
        quiet_build(Table(path), tmp_path / "out")
    manifest = quiet_build(Table(path, columns=ColumnRoles(label="")), tmp_path / "out")
    assert {feature.name: feature.kind for feature in manifest.schema.features}["label"] == "bytes"


WRONG = {
    "no names": ({"header": "none"}, "header-names"),
    "names of a header": ({"column_names": ("a",)}, "header-names"),
    "two characters": ({"delimiter": "ab"}, "delimiter-form"),
    "negative": ({"skip_rows": -1}, "skip-rows-range"),
    "no column": ({"join": ("t.csv",)}, "join-form"),
    "a key without a name": ({"join": ("t.csv=id:a,b",)}, "join-form"),
    "an absolute path": ({"join": ("/t.csv=id",)}, "join-path"),
    "a text": ({"one_row_per": "id"}, "not-strings"),
}


@pytest.mark.parametrize(("given", "code"), WRONG.values(), ids=WRONG)
def test_options_of_a_wrong_form_are_refused(given, code):
    with raises(OptionsError, code):
        RowOptions(**given)


def test_options_without_an_effect_are_refused(tmp_path):
    path = write_parquet(tmp_path / "t.parquet", {"x": [1]})
    with raises(OptionsError, "text-form-useless"):
        Table(path, rows=RowOptions(delimiter=" ")).column_names()
    with raises(OptionsError, "rows-of-form", form="coco", names=["skip_rows"]):
        Table(path, form="coco", rows=RowOptions(skip_rows=1))
