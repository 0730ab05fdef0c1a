"""Images that are stored as pixels: from files to the loader, and to other tools."""

import io
import tarfile

import numpy as np
import pytest
from PIL import Image

from tests.pictures import image_file
from tfshards.loader import Image as Options
from tfshards.loader import batches, load
from tfshards.prep.cli import main as cli
from tfshards.schemas import pixel_files, read_manifest


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
        words = ["--format", form, "--channels", "keep", "--alpha", "white", "--shards", "2", "--name", "n"]
        assert cli.main(["build", "images", str(root / "photos"), str(root / form), *words]) == 0
    return root


def test_a_file_has_the_header_that_is_documented():
    color = pixel_files.encode(np.zeros((256, 320, 3), np.uint8))
    assert color[:19] == b"P6 00320 00256 255\n"
    assert len(color) == 19 + 320 * 256 * 3
    assert pixel_files.sides_of(color) == (256, 320, 3)
    gray = pixel_files.encode(np.arange(6, dtype=np.uint8).reshape(2, 3))
    assert gray == b"P5 00003 00002 255\n\0\1\2\3\4\5"
    assert pixel_files.sides_of(gray) == (2, 3, 1)
    with Image.open(io.BytesIO(gray)) as image:
        assert np.asarray(image).tolist() == [[0, 1, 2], [3, 4, 5]]
    for other in (b"", b"P6 3 2 255\n" + bytes(18), b"P4 00003 00002 255\n", gray[:18]):
        assert pixel_files.sides_of(other) is None


@pytest.mark.parametrize("channels", [None, 1, 3, 4])
@pytest.mark.parametrize("crop", [None, "random", "shift"])
def test_the_loader_delivers_what_it_delivers_of_png(built, channels, crop):
    image = Options((30, 28), crop=crop, channels=channels, flip="horizontal")
    options = {"batch_size": 24, "image": image, "select": ("image", "label")}
    ((expected, labels),) = load(built / "png", **options)
    for read in (load, batches):
        ((pixels, found),) = read(built / "pixels", **options)
        assert np.array_equal(found, labels)
        assert np.array_equal(pixels, expected)


def test_the_dataset_is_like_any_other(built, tmp_path, capsys):
    pixels = built / "pixels"
    assert read_manifest(pixels).options["format"] == "pixels"
    for words in (
        ["verify", str(pixels), "--deep"],
        ["verify", str(pixels), "--repair", str(built / "photos")],
        ["audit", str(pixels)],
        ["report", str(pixels), "--output", str(tmp_path / "report.html")],
        ["reshard", str(pixels), str(tmp_path / "again"), "--shards", "3"],
        ["verify", str(tmp_path / "again"), "--deep"],
        ["export", str(pixels), str(tmp_path / "tars"), "--to", "webdataset"],
    ):
        assert cli.main(words) == 0, words
    capsys.readouterr()
    assert cli.main(["show", str(pixels)]) == 0
    assert "image: PPM" in capsys.readouterr().out
    tar = min((tmp_path / "tars").glob("*.tar"))
    with tarfile.open(tar) as members:
        assert {name.split(".", 1)[1] for name in members.getnames()} >= {"ppm", "pgm", "cls"}
