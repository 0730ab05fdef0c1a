"""A new option is one parameter, and a new verb one row of the table: both are added to a copy, and run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FUNCTION = '''
"""Count examples."""

from tfshards.schemas import OptionsError, read_manifest


def count(dataset: str, *, splits: list[str] | None = None, most: int = 100) -> list[int]:
    """Count the examples of splits.

    Args:
        dataset: folder of the dataset.
        splits: name of a split; by default all.
        most: largest number that is printed.
    """
    if most < 1:
        raise OptionsError(f"most={most} must be at least 1")
    found = read_manifest(dataset).splits
    return [min(most, found[name].num_examples) for name in splits or found]
'''
ROW = '_ROWS = (\n    Verb("count", "tfshards.prep.verification.count"),'


@pytest.fixture
def tfshards(made, tmp_path):
    """Return a function that runs a command of a copy, in the folder of the tests."""
    top = tmp_path / "copy"
    for room in ("prep", "loader", "schemas"):
        shutil.copytree(ROOT / room, top / room, ignore=shutil.ignore_patterns("__pycache__"))
    (top / "src" / "tfshards").mkdir(parents=True)
    for name in ("__init__.py", "__main__.py", "command.py"):
        shutil.copy(ROOT / "src" / "tfshards" / name, top / "src" / "tfshards")

    def change(path, old, new):
        text = (top / path).read_text()
        assert text.count(old) == 1
        (top / path).write_text(text.replace(old, new))

    (top / "prep/verification/count.py").write_text(FUNCTION)
    change("src/tfshards/command.py", "_ROWS = (", ROW)
    options = "prep/planning/options.py"
    described = "        compression: compression of the shards"
    change(options, described, f"        note: text about the build.\n{described}")
    change(
        options,
        '    compression: Compression = "none"',
        '    compression: Compression = "none"\n    note: str = ""',
    )
    change(
        options, "        check_choices(self)\n", "        check_choices(self)\n        print(self.note)\n"
    )

    def run(*words):
        environment = {**os.environ, "PYTHONPATH": str(top / "src")}
        command = [sys.executable, "-m", "tfshards", *map(str, words)]
        done = subprocess.run(command, cwd=made, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_parameter_is_a_flag_and_a_row_is_a_verb(tfshards, tmp_path):
    status, out, _ = tfshards("plan", "images", "photos", "new", "--note", "a new option")
    assert (status, out.splitlines()[0]) == (0, "a new option")
    assert "text about the build" in tfshards("build", "arrays", "--help")[1]

    assert "Count the examples of splits" in tfshards("--help")[1]
    assert "(default: 100)" in tfshards("count", "--help")[1]
    assert tfshards("count", "data")[:2] == (0, "8\n")
    assert json.loads(tfshards("count", "data", "--json", "--splits", "train", "--splits", "train")[1]) == [
        8,
        8,
    ]
    (tmp_path / "c.toml").write_text("most = 3")
    assert tfshards("count", "data", "--config", tmp_path / "c.toml")[1] == "3\n"
    status, _, err = tfshards("count", "data", "--most", "0")
    assert (status, err) == (2, "tfshards: most=0 must be at least 1\n  on the command line: --most\n")
    assert "was --most meant?" in tfshards("count", "data", "--mots", "1")[2]
