"""The tables of seeded faults fit the product, and their runner reports what it should."""

from collections import Counter

import pytest

from tests import seeded_faults
from tests.seeded_faults import ROOT, Fault, changed, faults, seeded

NAMES = "schemas/names.py"


def test_each_fault_changes_one_place_and_names_a_test_that_exists():
    rows = faults()
    assert [name for name, count in Counter(fault.name for fault in rows).items() if count > 1] == []
    for fault in rows:
        assert changed(fault) != (ROOT / fault.file).read_text()
        path, _, test = fault.test.partition("::")
        assert (ROOT / path).exists(), fault
        assert test.partition("[")[0].partition("::")[0] in (ROOT / path).read_text(), fault


@pytest.mark.parametrize("old", ["this text occurs nowhere", "\n"])
def test_a_text_that_does_not_occur_once_is_refused(old):
    with pytest.raises(ValueError, match=r"stale: .* occurs"):
        changed(Fault("stale", NAMES, old, "", "tests"))


@pytest.fixture
def copy(tmp_path):
    (tmp_path / "module.py").write_text("LABELS = [0, 1]\n")
    (tmp_path / "test_module.py").write_text(
        "import module\n\n\ndef test_labels():\n    assert module.LABELS == [0, 1]\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("new", "finder"),
    [
        ("[1, 0]", "test_module.py::test_labels"),
        ("[0, 0 + 1]", None),
        ('__import__("os").abort()', "test_module.py (SIGABRT)"),
    ],
    ids=["found", "missed", "crashed"],
)
def test_a_fault_is_found_by_a_test_that_fails_and_then_taken_back(copy, monkeypatch, new, finder):
    monkeypatch.setattr(seeded_faults, "ROOT", copy)
    fault = Fault("labels", "module.py", "[0, 1]", new, "test_module.py")
    assert seeded(fault, copy, ["test_module.py"]) == finder
    assert (copy / "module.py").read_text() == "LABELS = [0, 1]\n"
