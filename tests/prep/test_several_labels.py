"""Several classes in a text of the label column, between separators."""

import pytest

from tests.errors import fault, raises
from tests.prep.table_files import examples, write_parquet, write_text
from tfshards.prep import ColumnRoles, Table
from tfshards.prep.cli.main import main
from tfshards.schemas import Feature, InputError, read_manifest

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
}


@pytest.mark.parametrize(("cells", "separator"), FORMS.values(), ids=FORMS)
def test_texts_of_several_classes_become_lists(cells, separator, tmp_path):
    path, out = csv_of(tmp_path / "t.csv", cells, "tags"), tmp_path / "out"
    flags = ["--label", "tags", "--label-separator", separator, "--quiet"]
    assert main(["build", "table", str(path), str(out), *flags]) == 0
    manifest = read_manifest(out)
    assert manifest.schema["tags"] == Feature("tags", "label", "int64", (None,))
    assert (manifest.schema.class_names, labels(out, "tags")) == (NAMES, NUMBERS)


ONE_CLASS = {
    "a list that is not one": (["['dog'", "['cat']"], None),
    "declared to be one class": (["['dog']", "['cat']"], ""),
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
    "objects": (['{"x": 1}', '[{"y": 2}]'], None, fault("label-json", found='{"x": 1}')),
    "lists as text": (["['dog', 'cat']", "", '["cat"]'], None, fault("label-json", found="['dog', 'cat']")),
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
