"""The page of ``report`` in a real Chromium: content, keyboard, narrow and wide."""

import numpy as np
import pytest
from PIL import Image

from tests.chromium import PROGRAM, chromium
from tests.pictures import image_file
from tfshards.prep import ImageFolder, Options, build, report

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed; Debian's package is chromium"),
]

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    for split, start in (("train", 0), ("val", 100)):
        for place, name in enumerate(("cat", "dog", HOSTILE, *(f"class{number:02}" for number in range(12)))):
            for number in range(4):
                inside = folder / "in" / split / name
                inside.mkdir(parents=True, exist_ok=True)
                soft = np.random.default_rng(start + 9 * place + number).integers(0, 256, (5, 6, 3), np.uint8)
                image = Image.fromarray(soft).resize((90, 60), Image.Resampling.BICUBIC)
                image.save(inside / f"{number}.png")
    data = image_file(image)
    (folder / "in/val/cat/same.png").write_bytes((folder / "in/train/cat/0.png").read_bytes())
    (folder / "in/train/dog/cut.png").write_bytes(data[:-500])
    (folder / "in/train/dog/empty.png").write_bytes(b"")
    options = Options(max_rejected=0.5)
    shards = {"train": 6, "val": 2}
    build(ImageFolder(folder / "in"), folder / "pets", shards=shards, options=options)
    report(folder / "pets", folder / "pets.html")
    return folder / "pets.html"


@pytest.fixture
def browser(path, tmp_path):
    with chromium(tmp_path) as page:
        page.set_view(1280)
        page.open(path)
        yield page


SHOWN = (
    "Array.from(document.querySelectorAll('#sheet .group')).filter((one) => one.checkVisibility())"
    ".map((one) => one.querySelector('h3').firstChild.textContent.trim())"
)


def wait_for(browser, expression, value):
    for _ in range(50):
        found = browser.run(expression)
        if found == value:
            return
        browser.run("new Promise((done) => setTimeout(done, 50))")
    assert found == value


def test_the_search_is_reached_and_used_by_the_keyboard(browser):
    assert len(browser.run(SHOWN)) == 15
    reached = []
    for _ in range(25):
        browser.press("Tab")
        reached.append(browser.run("document.activeElement.id || document.activeElement.className"))
        if reached[-1] == "names":
            break
    assert reached[0] == "skip"
    assert reached[-3:] == ["search", "split", "names"]
    outline = browser.run("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    browser.run("document.activeElement.blur()")
    browser.press("/", text="/")
    assert browser.run("document.activeElement.id") == "search"
    browser.type("class07")
    wait_for(browser, SHOWN, ["class07"])
    # its row, its examples, and two findings about it
    assert browser.run("document.getElementById('status').textContent").startswith("4 of ")
    assert browser.run("document.querySelector('#rejected [data-none]').checkVisibility()")
    assert not browser.run("document.querySelector('#audit [data-none]').checkVisibility()")
    browser.press("Escape")
    wait_for(browser, f"({SHOWN}).length", 15)
    assert browser.run("document.getElementById('search').value") == ""


@pytest.mark.parametrize("width", [360, 768, 1280, 1920])
def test_nothing_is_wider_than_the_view(browser, path, width):
    browser.set_view(width)
    browser.open(path)
    assert browser.run("document.documentElement.scrollWidth") <= width
    # charts and pictures fit their columns
    wide = "Array.from(document.querySelectorAll('img, .histogram, .bar, .tiles div, h1, h2, h3'))"
    beyond = "(one) => one.getBoundingClientRect().right > innerWidth + 1"
    assert browser.run(f"{wide}.filter({beyond}).length") == 0
    assert browser.errors == []
