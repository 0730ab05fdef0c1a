"""The pages of the documentation: their links and lists agree with what is there."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT
from tfshards.prep.imaging.reasons import Reason

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_to_files_and_headings_that_exist(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text()):
        other = (page.parent / target) if target else page
        assert other.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", other.read_text(), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{target}#{anchor}"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_files_that_architecture_names_exist():
    paths = re.findall(r"`((?:prep|loader|schemas|src)/[\w./]+)`", ARCHITECTURE)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("room", ["prep", "loader", "schemas"])
def test_architecture_lists_each_folder_with_the_first_sentence_of_its_docstring(room):
    section = ARCHITECTURE.partition(f"\n### {room}\n")[2].partition("\n#")[0]
    lines = re.findall(r"^- `\w+/`: .+$", section, re.M)
    docstrings = {
        path.parent.name: ast.get_docstring(ast.parse(path.read_text()))
        for path in (ROOT / room).glob("*/__init__.py")
    }
    sentences = {name: re.match(r".+?\.$", text, re.M)[0] for name, text in docstrings.items()}
    assert sorted(lines) == sorted(
        f"- `{name}/`: {sentence.replace('``', '`')}" for name, sentence in sentences.items()
    )


def test_the_rules_list_each_reason_of_a_rejection():
    table = (ROOT / "docs" / "rules.md").read_text().partition("## Rejection\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(.+?)` \| .+ \|$", table, re.M) == [reason.value for reason in Reason]


@pytest.mark.nightly
def test_make_demo_reaches_an_accuracy_above_90_percent(tmp_path):
    copy = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
    # uses the existing environment; the check from a clean checkout makes a new one
    venv = Path(sys.executable).parents[1]
    command = ["make", "demo", f"VENV={venv}", "-o", str(venv / ".examples")]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [accuracy] = re.findall(r"^accuracy: (0\.\d+)", done.stdout, re.M)
    assert float(accuracy) > 0.9
