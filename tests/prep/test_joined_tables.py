"""Text tables of other forms."""


import pytest

from tests.errors import raises
from tests.prep.table_files import examples, write_parquet, write_text
from tfshards.prep import ColumnRoles, RowOptions, Table
from tfshards.schemas import InputError, OptionsError


def values(out, *names):
    return [tuple(found[name] for name in names) for found in examples(out).values()]


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
