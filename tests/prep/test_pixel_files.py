"""Images that are stored as pixels: from files to the loader, and to other tools."""

import io
import itertools
import shutil
import tarfile

import numpy as np
import pytest
from PIL import Image

from tests.pictures import image_file
from tests.tables import mostly_nightly
from tfshards.loader import Image as Options
from tfshards.loader import Records, batches, load
from tfshards.prep import Examples, ImageOptions, build
from tfshards.prep.cli import main as cli
from tfshards.prep.imaging.formats import image_shape, is_encoded
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
    assert pixel_files.sides_of(gray) == image_shape(gray) == (2, 3, 1)
    assert is_encoded(color)
    assert not is_encoded(b"P6 3 2 255\n" + bytes(18))
    with Image.open(io.BytesIO(gray)) as image:
        assert np.asarray(image).tolist() == [[0, 1, 2], [3, 4, 5]]
    for other in (b"", b"P6 3 2 255\n" + bytes(18), b"P4 00003 00002 255\n", gray[:18]):
        assert pixel_files.sides_of(other) is None


@pytest.mark.parametrize(
    ("channels", "crop"),
    mostly_nightly(
        itertools.product([None, 1, 3, 4], [None, "random", "shift"]),
        [(None, "random"), (4, "shift")],
    ),
)
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


def test_files_of_pixels_are_adopted_as_images(built, tmp_path):
    for shard in (built / "pixels").glob("*.tfrecord-*"):
        shutil.copy(shard, tmp_path)
    assert cli.main(["adopt", str(tmp_path)]) == 0
    feature = read_manifest(tmp_path).schema["image"]
    assert (feature.kind, feature.shape) == ("image", (None, None, 3))
    # records without keys are sorted otherwise
    image = Options((30, 28), crop="center", channels=3)
    (adopted,), (wanted,) = (
        [batch["image"] for batch in batches(root, batch_size=24, image=image)]
        for root in (tmp_path, built / "pixels")
    )
    assert np.array_equal(adopted, wanted)


def test_examples_that_were_read_are_built_again(built, tmp_path):
    records = Records(built / "pixels")
    again = [{"key": row["key"], "image": row["image"], "label": int(row["label"])} for row in records]
    options = ImageOptions(channels="keep", alpha="white", format="pixels")
    build(Examples(again, images=options), tmp_path / "again", shards=2)
    found = {row["key"]: row["image"] for row in Records(tmp_path / "again")}
    assert found == {row["key"]: row["image"] for row in records}


@pytest.fixture(scope="module")
def for_training(tmp_path_factory):
    """Photos and their masks, which have the same values, stored as pixels for crops of 20."""
    root = tmp_path_factory.mktemp("pairs")
    draw = np.random.default_rng(1)
    for number in range(12):
        blocks = draw.integers(0, 3, (12, 15), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
        for folder, pixels in (("photos/a", blocks[..., None].repeat(3, 2)), ("masks/a", blocks)):
            file = root / folder / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(image_file(pixels))
    words = [
        "--mask-dir",
        "../masks",
        "--format",
        "pixels",
        "--for-training",
        "20",
        "--shards",
        "2",
        "--as-is",
    ]
    assert cli.main(["build", "images", str(root / "photos"), str(root / "data"), *words]) == 0
    return root


@pytest.mark.parametrize("read", [load, batches])
@pytest.mark.parametrize("crop", ["random", "shift", "center"])
def test_masks_show_the_same_box(for_training, read, crop):
    image = Options((20, 20), crop=crop, method="nearest", flip="horizontal")
    (batch,) = read(for_training / "data", batch_size=12, image=image)
    photos, masks = (np.asarray(batch[name]) for name in ("image", "mask"))
    # the photo is resized by mixing, the mask is not
    differ = np.mean(np.abs(photos.astype(int) - masks) > 0)
    assert differ < 0.2
    other = np.mean(np.abs(np.roll(photos, 1, 0).astype(int) - masks) > 0)
    assert other > 2 * differ
