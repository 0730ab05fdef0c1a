"""The documentation as a site: built strictly, which checks its links, and complete without a network."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.chromium import PROGRAM, chromium

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]
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


@pytest.mark.nightly
def test_no_page_of_the_site_fetches_anything_from_elsewhere(site):
    for path in site.glob("*.html"):
        elsewhere = [link for link in Links(path.read_text()).fetched if re.match(r"(https?:)?//", link)]
        assert elsewhere == [], path.name
    for path in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", path.read_text()), path


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


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "website" / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    missing = [path.name for path in (ROOT / "docs").glob("*.md") if path.name not in navigation]
    assert missing == []
