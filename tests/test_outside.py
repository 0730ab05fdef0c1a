"""Tests judge from outside: they import public names, the format (tfshards.schemas) and helpers of tests."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests import seeded_faults
from tests.seeded_faults import ROOT, Fault, changed, faults, seeded

TESTS = Path(__file__).parent
PUBLIC = {
    "tfshards",
    "tfshards.command",
    "tfshards.loader",
    "tfshards.loader.torch",
    "tfshards.prep",
    "tfshards.schemas",
}
# file -> what it needs from inside; at most 40 of them
EXCEPTIONS = {
    "durability/program.py": "the command line in process",
    "durability/test_foreign_files.py": "files that a build leaves, and their limits",
    "durability/test_ownership.py": "the commit, which is interrupted",
    "engines/test_engines.py": "the interface of engines",
    "loader/test_remote.py": "reads of a store, which are counted",
    "pixels/corpus/bombs.py": "the converter, under a limit of memory",
    "pixels/test_fuzz.py": "the converter, for thousands of damaged files",
    "prep/table_files.py": "records of shards",
    "prep/test_any_iterable.py": "the steps of a build, at which it ends",
    "prep/calls.py": "the interface of engines",
    "prep/test_audit.py": "limits of a search",
    "prep/test_engines.py": "the interface of engines",
    "prep/test_export.py": "limits of an export",
    "prep/test_progress.py": "rates of a progress bar",
    "prep/test_read_shards.py": "elements of pipelines",
    "prep/test_remote_sources.py": "listings of a store, which are counted",
    "prep/test_records.py": "the encoder of records, and the reader of frames",
    "prep/test_report.py": "limits of a page",
    "prep/test_report_marks.py": "pictures of a page",
    "prep/test_toy_source.py": "a new source",
    "prep/test_workers.py": "workers of Beam",
    "schemas/test_manifest.py": "the check of a manifest before its commit",
    "storage/test_remote_output.py": "workers that write into a store",
    "storage/test_remote_read_shards.py": "elements of pipelines",
    "storage/test_remote_verbs.py": "adopted folders in a store",
    "surface/command.py": "the command line in process",
    "surface/test_pages.py": "the parser of command lines",
    "test_docs.py": "the reasons of rejections",
    "verbs/inputs.py": "the type of sources",
}


def imported(path: Path) -> set[str]:
    """Return the modules of the package that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {module for module in modules if module.split(".")[0] == "tfshards"}


def test_only_the_listed_files_import_what_is_not_public():
    found = {
        path.relative_to(TESTS).as_posix()
        for path in TESTS.rglob("*.py")
        if any(not module.startswith("tfshards.schemas.") for module in imported(path) - PUBLIC)
    }
    assert found == {*EXCEPTIONS}
    assert len(EXCEPTIONS) <= 40


# The tables of seeded faults fit the product, and their runner reports what it should


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
