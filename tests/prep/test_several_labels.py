"""Several classes per row: text with separators, lists as text, and columns of one class each."""

import json

import numpy as np
import pyarrow as pa
import pytest

from tests.errors import fault, raises
from tests.prep.table_files import examples, write_parquet, write_text
from tfshards.prep import ColumnRoles, Table, append, verify
from tfshards.prep.cli.main import main
from tfshards.schemas import Feature, InputError, OptionsError, read_manifest

ROWS = [["dog", "cat"], [], ["cat"], ["bird", "cat"]]
NAMES = ("bird", "cat", "dog")
NUMBERS = [[2, 1], [], [1], [0, 1]]


def labels(out, name="label"):
    """Return the labels of the examples, in the order of the rows."""
    found = examples(out)
    return [found[key][name] for key in sorted(found, key=int)]


def csv_of(path, cells, name="label"):
    quoted = ['"' + cell.replace('"', '""') + '"' for cell in cells]
    return write_text(path, f"number,{name}", *(f"{row},{cell}" for row, cell in enumerate(quoted)))


FORMS = {
    "a separator": (["dog|cat", "", "cat ", "bird | cat|"], "|"),
    "a longer separator": (["dog, cat", "", "cat", "bird, cat"], ", "),
    "lists of JSON": ([json.dumps(row) if row else "" for row in ROWS], "json"),
    "lists of Python": ([str(row) for row in ROWS], "json"),
}


@pytest.mark.parametrize(("cells", "separator"), FORMS.values(), ids=FORMS)
def test_texts_of_several_classes_become_lists(cells, separator, tmp_path):
    path, out = csv_of(tmp_path / "t.csv", cells, "tags"), tmp_path / "out"
    flags = ["--label", "tags", "--label-separator", separator, "--quiet"]
    assert main(["build", "table", str(path), str(out), *flags]) == 0
    manifest = read_manifest(out)
    assert manifest.schema["tags"] == Feature("tags", "label", "int64", (None,))
    assert (manifest.schema.class_names, labels(out, "tags")) == (NAMES, NUMBERS)


def test_lists_as_text_are_recognized_and_reported(tmp_path, build_table, log):
    build_table(csv_of(tmp_path / "t.csv", ["['dog', 'cat']", "", "['cat']"]))
    assert (labels(tmp_path / "out"), read_manifest(tmp_path / "out").schema.class_names) == (
        [[1, 0], [], [0]],
        ("cat", "dog"),
    )
    assert any("label_separator='json'" in line for line in log)
    assert read_manifest(tmp_path / "out").options["label_separator"] == "json"
    append(
        csv_of(tmp_path / "more.csv", ["['dog', 'cat']", "", "['cat']", '["dog"]']),
        tmp_path / "out",
        log=log.append,
    )
    assert labels(tmp_path / "out") == [[1, 0], [], [0], [1]]
    build_table(csv_of(tmp_path / "t.csv", ["[3]", "[0, 1]"]), "numbers")
    assert labels(tmp_path / "numbers") == [[3], [0, 1]]


ONE_CLASS = {
    "a list that is not one": (["['dog'", "['cat']"], None),
    "declared to be one class": (["['dog']", "['cat']"], ""),
    "lists of lists": (["[['dog']]", "['cat']"], None),
}


@pytest.mark.parametrize(("cells", "separator"), ONE_CLASS.values(), ids=ONE_CLASS)
def test_other_texts_stay_one_class(cells, separator, tmp_path):
    columns = ColumnRoles(label_separator=separator)
    source = Table(csv_of(tmp_path / "t.csv", cells), columns=columns)
    reader = source.stage(tmp_path)
    assert reader.schema["label"].shape == ()
    assert reader.schema.class_names == tuple(sorted(cells))
    assert not any("label_separator" in line for line in reader.warnings)


LIKELY = {
    "most have several": (["a|b", "c|d", "e"], "|"),
    "they repeat the names of others": (["a", "b", "c", "a;c"], ";"),
    "commas between names of others": (["a", "b", "a, b"], ","),
    "commas in names": (["crane, bird", "crane, machine", "tench, Tinca tinca"], None),
    "blanks between names of others": (["scab", "rust", "scab rust"], " "),
    "blanks in names": (["red fox", "red panda", "fox"], None),
    "a rare bar": (["a|b", "c", "d", "e"], None),
    "a rare bar beside a name of others": (["a|b", "a", "d", "e"], "|"),
}


@pytest.mark.parametrize(("cells", "separator"), LIKELY.values(), ids=LIKELY)
def test_texts_that_seem_to_hold_several_classes_lead_to_a_warning(cells, separator, tmp_path):
    warnings = Table(csv_of(tmp_path / "t.csv", cells)).stage(tmp_path).warnings
    named = [line for line in warnings if "label_separator=" in line]
    assert len(named) == (separator is not None)
    assert all(f"label_separator={separator!r}" in line for line in named)
    declared = Table(csv_of(tmp_path / "t.csv", cells), columns=ColumnRoles(label_separator=""))
    assert not any("label_separator" in line for line in declared.stage(tmp_path).warnings)


WRONG_TEXTS = {
    "numbers": ([1, 2], "|", "label-separator-type"),
    "lists": ([["a"], ["b"]], "|", "label-separator-type"),
    "not a list": (["['a']", "a"], "json", fault("label-not-a-list", found="a")),
    "text and numbers": (["['a', 1]"], "json", "label-column-fault"),
    "objects": (['{"x": 1}', '[{"y": 2}]'], None, fault("label-json", found='{"x": 1}')),
    "half a character": (['["\\ud800"]'], "json", "label-column-fault"),
}


@pytest.mark.parametrize(("cells", "separator", "expected"), WRONG_TEXTS.values(), ids=WRONG_TEXTS)
def test_texts_without_the_declared_form_are_refused(cells, separator, expected, tmp_path):
    path = write_parquet(tmp_path / "t.parquet", {"label": cells})
    with raises(InputError, expected):
        Table(path, columns=ColumnRoles(label_separator=separator)).stage(tmp_path)


def test_a_separator_needs_a_column(tmp_path):
    path = write_parquet(tmp_path / "t.parquet", {"x": [1]})
    with raises(InputError, "label-separator-type", name="label"):
        Table(path, columns=ColumnRoles(label_separator="|")).stage(tmp_path)


TRUTHS = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1]])
ENCODINGS = {
    "0 and 1": TRUTHS,
    "false and true": TRUTHS.astype(bool),
    "-1 and 1": 2 * TRUTHS - 1,
    "whole floats": TRUTHS.astype(np.float64),
}


@pytest.mark.parametrize("values", ENCODINGS.values(), ids=ENCODINGS)
def test_columns_of_one_class_each_become_lists(values, tmp_path):
    columns = {f"attr_{name}": values[:, number] for number, name in enumerate("zax")}
    path, out = write_parquet(tmp_path / "t.parquet", {"number": [5, 6, 7], **columns}), tmp_path / "out"
    assert main(["build", "table", str(path), str(out), "--one-hot", "attr_*", "--quiet"]) == 0
    manifest = read_manifest(out)
    assert manifest.schema.names == ("label", "number", "key")
    # in the order of the columns, which other tools have, too
    assert manifest.schema.class_names == ("z", "a", "x")
    assert labels(out) == [np.flatnonzero(row).tolist() for row in TRUTHS]
    assert verify(out, deep=True)
    # by name, in another order
    more = {name: [*column, column[0]] for name, column in [*columns.items()][::-1]}
    append(write_parquet(path, {"number": [5, 6, 7, 8], **more}), out, log=lambda _: None)
    assert labels(out) == [np.flatnonzero(row).tolist() for row in TRUTHS[[0, 1, 2, 0]]]


PREFIXES = {
    "of structs": (["a/x", "a/y"], "a/*", ("x", "y")),
    "equal without it": (["ax", "bx"], "?x", ("ax", "bx")),
    "nothing left": (["attr", "attr_x"], "attr*", ("attr", "attr_x")),
    "whole names": (["x", "y"], "[xy]", ("x", "y")),
    "another role": (["file", "x", "id"], "*", ("x",)),
}


@pytest.mark.parametrize(("names", "pattern", "classes"), PREFIXES.values(), ids=PREFIXES)
def test_class_names_are_those_of_the_columns_without_a_common_prefix(names, pattern, classes, tmp_path):
    path = write_parquet(tmp_path / "t.parquet", {name: [1, 0] for name in names})
    roles = ColumnRoles(one_hot=(pattern,), drop=("file", "id") if "file" in names else ())
    assert Table(path, columns=roles).stage(tmp_path).schema.class_names == classes


WRONG_COLUMNS = {
    "another number": ({"a": [0, 2]}, fault("one-hot-values", name="a", found="2")),
    "text": ({"a": ["yes", "no"]}, fault("one-hot-values", name="a", found="yes")),
    "lists": ({"a": [[0], [1]]}, "one-hot-values"),
    "-1 and 0": ({"a": [0, 1], "ab": [-1, 1]}, fault("one-hot-mixed", names="a, ab")),
    "a missing value": ({"a": [0, None]}, fault("column-missing-values", name="a", fill="0")),
    "no column": ({"b": [0, 1]}, fault("one-hot-none", pattern="a*")),
    "another label": ({"a": [0, 1], "label": [0, 1]}, "one-hot-label"),
}


@pytest.mark.parametrize(("columns", "expected"), WRONG_COLUMNS.values(), ids=WRONG_COLUMNS)
def test_columns_without_one_class_each_are_refused(columns, expected, tmp_path):
    path = write_parquet(tmp_path / "t.parquet", pa.table(columns))
    with raises(InputError, expected):
        Table(path, columns=ColumnRoles(one_hot=("a*",))).stage(tmp_path)


def test_columns_of_one_class_each_exclude_other_labels(tmp_path):
    with raises(OptionsError, "one-hot-with-label"):
        ColumnRoles(one_hot=("a*",), label="b")
    path = write_parquet(tmp_path / "t.parquet", {"a": [0, 1], "label": [0, 1]})
    reader = Table(path, columns=ColumnRoles(one_hot=("a*",), drop=("label",))).stage(tmp_path)
    assert reader.schema.class_names == ("a",)
