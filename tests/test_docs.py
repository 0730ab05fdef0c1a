"""The pages of the documentation: their links, charts and lists agree with what is there."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

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


def test_the_charts_of_the_benchmarks_are_those_of_their_tables():
    charts = SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks" / "charts.py")))
    page = charts.PAGE.read_text()
    for chart in charts.CHARTS:
        assert (charts.FOLDER / f"{chart.name}.svg").read_text() == charts.draw(chart, page), chart.name
        assert f"images/{chart.name}.svg" in page


def test_the_files_that_architecture_names_exist():
    table = ARCHITECTURE.partition("## To change X, open Y")[2]
    rows = re.findall(r"^\| (?!to change|---)(.+?) \| (.+?) \|$", table, re.M)
    assert len(rows) >= 20
    for change, files in rows:
        paths = re.findall(r"`([\w./]+/[\w.]*)`", files)
        assert paths, change
        assert [path for path in paths if not (ROOT / path).exists()] == [], change


@pytest.mark.parametrize("room", ["prep", "loader"])
def test_architecture_lists_each_folder_of_a_room(room):
    folders = sorted(path.parent.name for path in (ROOT / room).glob("*/__init__.py"))
    assert folders
    assert [name for name in folders if f"| `{name}/` |" not in ARCHITECTURE] == []


def test_the_reference_lists_each_reason_of_a_rejection():
    table = (ROOT / "docs" / "reference.md").read_text().partition("## Rejection\n")[2].partition("\n## ")[0]
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
