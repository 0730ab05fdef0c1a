"""Images that are stored as pixels: from files to the loader, and to other tools."""

import itertools
import shutil
import tarfile

import numpy as np
import pytest

from tests.pictures import image_file
from tests.surface.command import run
from tests.tables import mostly_nightly
from tfshards.loader import Image, Records, batches, load
from tfshards.prep import Examples, ImageOptions, build
from tfshards.schemas import read_manifest


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two datasets of the same images of different sizes, gray and color, as pixels and as PNG."""
    root = tmp_path_factory.mktemp("pixels")
    draw = np.random.default_rng(0)
    for number in range(24):
        sides = (int(draw.integers(40, 60)), int(draw.integers(40, 60)), 3)[: 2 + (number % 3 > 0)]
        file = root / "photos" / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(image_file(draw.integers(0, 256, sides, dtype=np.uint8)))
    for form in ("pixels", "png"):
        words = ["--format", form, "--shards", "2", "--name", "n"]
        assert run(["build", "images", root / "photos", root / form, *words]).status == 0
    return root


@pytest.mark.parametrize(
    ("channels", "crop"),
    mostly_nightly(
        itertools.product([None, 1, 3, 4], [None, "random", "shift"]), [(None, "random"), (4, "shift")]
    ),
)
def test_the_loader_delivers_what_it_delivers_of_png(built, channels, crop):
    image = Image((30, 28), crop=crop, channels=channels, flip="horizontal")
    options = {"batch_size": 24, "image": image, "select": ("image", "label")}
    ((expected, labels),) = load(built / "png", **options)
    for read in (load, batches):
        ((pixels, found),) = read(built / "pixels", **options)
        assert np.array_equal(found, labels)
        assert np.array_equal(pixels, expected)


def test_the_dataset_is_like_any_other(built, tmp_path):
    pixels = built / "pixels"
    assert read_manifest(pixels).options["format"] == "pixels"
    for words in (
        ["verify", pixels, "--deep"],
        ["verify", pixels, "--repair"],
        ["audit", pixels],
        ["report", pixels, "--output", tmp_path / "report.html"],
        ["reshard", pixels, tmp_path / "again", "--shards", "3"],
        ["verify", tmp_path / "again", "--deep"],
        ["export", pixels, tmp_path / "tars", "--to", "webdataset"],
    ):
        assert run(words).status == 0, words
    assert "image: PPM" in run(["show", pixels]).out
    with tarfile.open(min((tmp_path / "tars").glob("*.tar"))) as members:
        assert {name.split(".", 1)[1] for name in members.getnames()} >= {"ppm", "pgm", "cls"}


def test_files_of_pixels_are_adopted_and_built_again(built, tmp_path):
    for shard in (built / "pixels").glob("*/*.tfrecord-*"):
        shutil.copy(shard, tmp_path)
    assert run(["adopt", tmp_path]).status == 0
    feature = read_manifest(tmp_path).schema["image"]
    assert (feature.kind, feature.shape) == ("image", (None, None, 3))
    records = Records(built / "pixels")
    again = [{"key": row["key"], "image": row["image"], "label": int(row["label"])} for row in records]
    options = ImageOptions(format="pixels")
    build(Examples(again, images=options), tmp_path / "again", shards=2)
    found = {row["key"]: row["image"] for row in Records(tmp_path / "again")}
    assert found == {row["key"]: row["image"] for row in records}
