"""The pages in docs/ point to files that exist, and the commands of the tutorial run."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfshards.schemas.reasons import Reason

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_to_files_and_headings_that_exist(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text()):
        other = (page.parent / target) if target else page
        assert other.exists(), target
        if anchor:
            assert anchor in anchors(other), f"{target}#{anchor}"


def test_the_charts_of_the_benchmarks_are_those_of_their_tables():
    charts = SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks" / "charts.py")))
    page = charts.PAGE.read_text()
    for chart in charts.CHARTS:
        assert (charts.FOLDER / f"{chart.name}.svg").read_text() == charts.draw(chart, page), chart.name
        assert f"images/{chart.name}.svg" in page


def anchors(page):
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


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
    folders = {path.parent.name for path in (ROOT / room).glob("*/__init__.py")}
    assert folders
    assert [name for name in sorted(folders) if f"| `{name}/` |" not in ARCHITECTURE] == []


@pytest.mark.nightly
def test_the_commands_of_the_tutorial_run_in_order(tmp_path):
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()
    install, *blocks = re.findall(r"^```sh\n(.*?)^```$", tutorial, re.M | re.S)
    assert "pip install" in install
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    printed = []
    for block in blocks:
        done = subprocess.run(
            ["bash", "-euc", block], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, block
        printed.append(done.stdout)
    *_, trained, damaged, repaired = printed
    assert float(re.search(r"accuracy: (0\.\d+) on", trained)[1]) > 0.8
    assert re.search(
        r"test-\w+\.tfrecord-00000-of-00002: record \d+ at byte \d+, its key reads '", damaged
    ), damaged
    assert "data/digits: sound" in repaired


def test_the_reference_lists_each_reason_of_a_rejection():
    rows = [f"| `{reason.value}` | {reason.meaning} |" for reason in Reason]
    assert "\n".join(rows) in (ROOT / "docs" / "reference.md").read_text()
