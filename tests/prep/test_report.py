"""The page that ``report`` writes: its numbers, its escaping, its pictures, and equal bytes each time."""

import base64
import hashlib
import io
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.pictures import image_file
from tests.prep.derived import write
from tests.prep.pages import Parsed, parsed
from tfshards.prep import Arrays, ImageFolder, Options, build, report
from tfshards.prep.reporting import report as page_of

# A class name, and a key, that would become elements of a page that does not escape them.
HOSTILE = "<img src=x onerror=alert(1)>"
HOSTILE_KEY = f"train/{HOSTILE}/a\"'&<script>alert(2)<!--.png"


def picture(number: int, size: tuple[int, int] = (60, 40), kind: str = "PNG", **options: object) -> bytes:
    coarse = np.random.default_rng(number).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return image_file(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC), kind, **options)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> SimpleNamespace:
    """A dataset with everything that a page shows, and its inputs."""
    folder = tmp_path_factory.mktemp("report")
    files = {
        f"{split}/{name}/{number}.png": picture(10 * place + number + start)
        for split, start, count in (("train", 0, 7), ("val", 500, 3))
        for place, name in enumerate(("cat", "dog", HOSTILE))
        for number in range(count)
    }
    files["val/cat/copy.png"] = files["train/cat/0.png"]
    files[HOSTILE_KEY] = picture(900)
    upside = Image.Exif()
    upside[0x0112] = 6
    files["train/dog/turned.jpg"] = picture(901, kind="JPEG", exif=upside)
    files["train/dog/cut.jpg"] = picture(902, (200, 200), "JPEG")[:-300]
    files["train/cat/junk.png"] = b"no image"
    files["train/cat/.hidden"] = b""
    source = folder / "photos"
    for name, data in files.items():
        write(source / name, data)
    options = Options(max_rejected=0.5)
    shards = {"train": 3, "val": 1}
    manifest = build(ImageFolder(source), folder / "pets", shards=shards, options=options)
    return SimpleNamespace(dataset=folder / "pets", manifest=manifest)


@pytest.fixture(scope="module")
def page(built, tmp_path_factory) -> Parsed:
    path = tmp_path_factory.mktemp("page") / "pets.html"
    assert report(built.dataset, path) == str(path)
    return parsed(path)


def test_numbers_of_the_page_are_those_of_the_manifest(built, page):
    rows = page.rows()
    for name, split in built.manifest.splits.items():
        (row,) = [row for row in rows if row[0] == name and len(row) == 6]
        assert row[1:3] == [f"{split.num_examples}", f"{len(split.shards)}"]
        for shard in split.shards:
            (row,) = [row for row in rows if row[0] == shard.path]
            assert row[1] == str(shard.num_examples)
    for name in built.manifest.schema.class_names:
        counts = [str(split.label_counts.get(name, 0)) for split in built.manifest.splits.values()]
        # each count is followed by its share of the split
        assert counts in [row[1::2] for row in rows if row[0] == name]
    totals = built.manifest.totals
    sums = f"{totals.accepted} accepted + 2 rejected + 1 skipped = {totals.entries}"
    assert sums in page.section("summary").text
    assert ["orientation applied", "1", "nothing is lost, or it was asked for"] in rows


def test_names_of_classes_and_keys_are_text(page):
    assert not [one for one in page.elements for name in one.attributes if name.startswith("on")]
    images = page.all("img")
    assert all(one.attributes["src"].startswith("data:image/webp;base64,") for one in images)
    assert HOSTILE_KEY in {one.attributes["alt"] for one in images}
    assert all(HOSTILE in page.section(name).text for name in ("classes", "sheet"))
    # nothing is fetched, and no script runs but its own
    (script,) = page.all("script")
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    (policy,) = [one.attributes["content"] for one in page.all("meta") if "http-equiv" in one.attributes]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert f"script-src 'sha256-{digest}'" in policy
    for one in page.elements:
        for name in ("src", "href", "xlink:href"):
            assert one.attributes.get(name, "#").startswith(("#", "data:")), one
    assert not re.search(r"url\(|@import|https?:", page.source)


def test_the_same_dataset_gives_the_same_bytes(built, tmp_path):
    pages = []
    for path in (tmp_path / "0.html", tmp_path / "1.html"):
        report(built.dataset, path)
        pages.append(path.read_bytes())
    assert pages[0] == pages[1]


def test_similar_examples_are_side_by_side(page):
    places = [place for place, one in enumerate(page.elements) if one.attributes.get("class") == "pair"]
    pairs = []
    for place in places:
        first, second = [one for one in page.elements[place : place + 9] if one.tag == "img"][:2]
        pairs.append((first.attributes["alt"], second.attributes["alt"]))
        assert first.attributes["src"] == second.attributes["src"]
    assert pairs == [("val/cat/copy.png", "train/cat/0.png")]
    assert "images of 'val' that are also in 'train': 1 of" in page.section("audit").text


def test_every_class_has_examples_on_the_sheet_and_they_are_upright(built, page):
    place = page.elements.index(page.section("sheet"))
    after = page.elements[place:]
    shown = {one.attributes["title"] for one in after if one.tag == "img"}
    assert {f"train/{name}/1.png" for name in ("cat", "dog", HOSTILE)} <= shown
    (turned,) = [one for one in after if one.attributes.get("title") == "train/dog/turned.jpg"]
    assert (turned.attributes["width"], turned.attributes["height"]) == ("40", "60")
    encoded = turned.attributes["src"].partition(",")[2]
    assert Image.open(io.BytesIO(base64.b64decode(encoded))).size == (40, 60)


def test_a_large_dataset_is_not_audited(built, tmp_path, monkeypatch):
    monkeypatch.setattr(page_of, "_MOST_AUDITED", 10)
    report(built.dataset, tmp_path / "page.html")
    text = parsed(tmp_path / "page.html").section("audit").text
    assert "searched in datasets with at most 10 examples" in text
    assert "classes with fewer than 10 examples in 'train'" in text
    assert "copy.png" not in text


def test_arrays_of_pixels_are_pictures(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    arrays = {"digit": pixels, "y": np.arange(40) % 4}
    build(Arrays(arrays, {"y": "label"}), tmp_path / "digits")
    report(tmp_path / "digits", tmp_path / "page.html")
    page = parsed(tmp_path / "page.html")
    assert len(page.all("img")) == 40
    assert not page.all("section", id="images")


def test_a_dataset_without_pictures_and_labels_has_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build(Arrays({"x": np.arange(25)}), "numbers", shards=2)
    assert report("numbers") == "numbers-report.html"
    page = parsed(Path("numbers-report.html"))
    assert not page.all("img")
    assert not page.all("section", id="classes")
