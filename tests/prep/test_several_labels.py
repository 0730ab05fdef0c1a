"""Several classes in a text of the label column, between separators."""

import pytest

from tests.errors import raises
from tests.prep.table_files import write_parquet, write_text
from tfshards.prep import ColumnRoles, Table
from tfshards.schemas import InputError


def csv_of(path, cells, name="label"):
    quoted = ['"' + cell.replace('"', '""') + '"' for cell in cells]
    return write_text(path, f"number,{name}", *(f"{row},{cell}" for row, cell in enumerate(quoted)))


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


def test_a_separator_needs_a_column(tmp_path):
    path = write_parquet(tmp_path / "t.parquet", {"x": [1]})
    with raises(InputError, "label-separator-type", name="label"):
        Table(path, columns=ColumnRoles(label_separator="|")).stage(tmp_path)
