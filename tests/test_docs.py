"""The pages of the documentation, and the errors that they list: links and lists agree with what is there."""

import ast
import os
import pickle
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.chromium import PROGRAM, chromium
from tests.errors import raises
from tests.pages import PAGES, ROOT
from tfshards.prep.imaging.reasons import Reason
from tfshards.schemas import BuildError, FormatError, InputError, OptionsError, Problem

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


# The documentation as a site: built strictly, which checks its links, and complete without a network


# what a browser fetches to show a page
FETCHED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data")}


class Links(HTMLParser):
    """What a page fetches."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        is_style = tag == "link" and found.get("rel") != "canonical"
        for name, value in attributes:
            if (tag, name) in FETCHED or (is_style and name == "href"):
                self.fetched.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [*command, "--config-file", str(ROOT / "website" / "mkdocs.yml")],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.processes
@pytest.mark.nightly
def test_no_page_of_the_site_fetches_anything_from_elsewhere(site):
    for path in site.glob("*.html"):
        elsewhere = [link for link in Links(path.read_text()).fetched if re.match(r"(https?:)?//", link)]
        assert elsewhere == [], path.name
    for path in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", path.read_text()), path


@pytest.mark.processes
@pytest.mark.nightly
@pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_pages_without_a_network(site, tmp_path, scheme):
    with chromium(tmp_path) as page:
        for width in (1280, 400):
            page.set_view(width, scheme=scheme)
            for name in ("index", "benchmarks", "cli", "prep", "architecture"):
                page.open(site / f"{name}.html")
                assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
                # nothing is wider than the page, which would scroll sideways
                assert page.run("document.documentElement.scrollWidth") <= width
        background = page.run("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (scheme == "light"), background


@pytest.mark.processes
def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "website" / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    missing = [path.name for path in (ROOT / "docs").glob("*.md") if path.name not in navigation]
    assert missing == []


# Errors have texts, and codes where a program can act on them; both pass between processes


MOST_CODES = 60


def test_the_rules_list_the_codes_that_are_raised():
    rooms = ("schemas", "prep", "loader", "src")
    source = "".join(path.read_text() for room in rooms for path in (ROOT / room).rglob("*.py"))
    raised = {*re.findall(r'\bcode="([a-z-]+)"', source)}
    table = (ROOT / "docs/rules.md").read_text().partition("\n| code | ")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `([a-z-]+)` \|", table, re.M)
    assert listed == sorted(listed)
    assert {*listed} == raised
    assert len(listed) <= MOST_CODES


ERRORS = [
    OptionsError("shards=0 must be at least 1"),
    BuildError("2 of 3 inputs are rejected", "  'a'", code="too-many-rejected"),
    FormatError("x.json", [Problem("a", "is wrong")]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_pass_between_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.code) == (type(error), str(error), error.code)


def test_what_a_file_name_holds_is_printed_on_one_line():
    with raises(InputError, r"a\nb\x1b: is empty" + "\n  1 line"):
        raise InputError("a\nb\x1b: is empty", "  1 line")


def test_beam_makes_an_error_of_the_same_class():
    found = type(ERRORS[0])(ERRORS[0].args[0] + " [while running 'Write']", *ERRORS[0].args[1:])
    assert str(found) == "shards=0 must be at least 1 [while running 'Write']"
