"""Tests judge from outside: they import public names, the format (tfshards.schemas) and helpers of tests."""

import ast
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import seeded_faults
from tests.format_reader import crc32c, read_dataset
from tests.seeded_faults import ROOT, Fault, changed, faults, seeded
from tfshards.prep import verify
from tfshards.schemas import read_manifest

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
    "durability/commands.py": "the command line in process",
    "durability/test_foreign_files.py": "files that a build leaves, and their limits",
    "durability/test_ownership.py": "the commit, which is interrupted",
    "engines/test_engines.py": "the interface of engines",
    "pixels/corpus/bombs.py": "the converter, under a limit of memory",
    "pixels/test_fuzz.py": "the converter, for thousands of damaged files",
    "prep/table_files.py": "records of shards",
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


# The reader in tests/format_reader.py reads what tfshards writes, and the example of docs/format.md


PAGE = Path(__file__).parents[1] / "docs" / "format.md"


def code_block(language):
    return re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)[1]


def write_the_page_s_example(root):
    """Write the example as the page shows it; return its one shard."""
    (root / "dataset.json").write_text(code_block("json"), encoding="ascii")
    shard = root / read_manifest(root).shards[0].path
    (shard.parent / "index").mkdir(parents=True)
    (shard.parent / "dataset.json").write_text(code_block("json"), encoding="ascii")
    (shard.parent / "build.json").write_text(code_block("record"), encoding="ascii")
    # remarks follow the columns of hex after three or more spaces
    columns = (re.match(r" *((?:[0-9a-f]{2} )+)", line) for line in code_block("hex").splitlines())
    shard.write_bytes(bytes.fromhex("".join(column[1] for column in columns)))
    (shard.parent / "index" / f"{shard.name}.idx").write_text(code_block("text"), encoding="ascii")
    (shard.parent / "index" / f"{shard.name}.labels").write_bytes(bytes.fromhex(code_block("labels")))
    (shard.parent / "index" / f"{shard.name}.keys").write_bytes(bytes.fromhex(code_block("keys")))
    return shard


def test_the_example_of_the_page_is_a_dataset(tmp_path):
    shard = write_the_page_s_example(tmp_path)
    assert verify(tmp_path, deep=True)
    [example] = read_dataset(tmp_path)["train"]
    assert example["x"].dtype == np.int16
    assert {n: value.tolist() for n, value in example.items()} == {"x": [1, -2], "label": 1, "key": b"7"}
    # and it equals the file that TensorFlow writes
    [record] = tf.data.TFRecordDataset(str(shard)).as_numpy_iterator()
    assert tf.train.Example.FromString(record).SerializeToString(deterministic=True) == record


def test_the_check_value_of_the_crc_is_that_of_the_page():
    assert crc32c(b"123456789") == 0xE3069283
