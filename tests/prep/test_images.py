"""Images: settings of the process, options that stand for others, and images that are stored as pixels."""

import itertools
import logging
import subprocess
import sys
import tarfile
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image, ImageFile

from tests.pictures import image_file
from tests.pixels.corpus.jpegs import PLAIN as JPEG
from tests.pixels.corpus.jpegs import declared
from tests.pixels.corpus.kind import RGB, encoded
from tests.pixels.corpus.pngs import PLAIN as PNG
from tests.pixels.corpus.tiffs import Page, tiff
from tests.surface.command import run
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import batches, load
from tfshards.prep import ImageFolder, ImageOptions, Options, build, limited_jobs
from tfshards.schemas import OptionsError, read_manifest

ANY = Options(max_rejected=1)
ODD_EXIF = JPEG[:2] + b"\xff\xe1\0\x14Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01" + JPEG[2:]


@pytest.fixture
def rejects(image_folder, tmp_path, quiet_build):
    """Build files and return the counts of rejected ones, by reason."""

    def build(files):
        source = ImageFolder(image_folder(files))
        manifest = quiet_build(source, tmp_path / "out", options=ANY, engine="local")
        return manifest.totals.reasons.get("rejected", {})

    return build


def test_threads_do_not_change_the_warning_filters(image_folder, tmp_path, quiet_build):
    source = ImageFolder(image_folder({f"{n}.jpg": ODD_EXIF for n in range(99)}))

    def build(number):
        with limited_jobs(1):
            return quiet_build(source, tmp_path / f"{number}", engine="local").num_examples

    build("imports")
    with warnings.catch_warnings():
        # what Pillow says of EXIF that is cut is neither shown nor an error
        warnings.simplefilter("error", UserWarning)
        before = list(warnings.filters)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(4) as pool:
                assert [*pool.map(build, range(4))] == [99] * 4
        finally:
            sys.setswitchinterval(interval)
        assert warnings.filters == before


def test_truncated_files_are_rejected_even_if_pillow_is_set_to_load_them(rejects, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    cut = [JPEG[:-40], PNG[:-30], encoded(RGB, "BMP")[:-50], encoded(RGB, "WEBP")[:-50]]
    with limited_jobs(1):
        assert rejects({"0.png": 1} | {f"{n}.png": data for n, data in enumerate(cut, 1)}) == {"damaged": 4}
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


@pytest.mark.parametrize("limit", [None, 100])
def test_the_pixel_limit_of_pillow_does_not_affect_a_build(limit, rejects, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    large = {f"{side}.jpg": declared(side, side) for side in (12_000, 60_000)}
    with limited_jobs(1):
        assert rejects({"0.jpg": JPEG, **large}) == {"too large": 2}
    assert limit == Image.MAX_IMAGE_PIXELS


def test_messages_of_pillow_which_name_no_file_are_not_printed(image_folder, tmp_path, caplog):
    bands = tiff(Page(np.zeros((3, 4, 8), np.uint8)))
    root = image_folder({"a.tif": bands, "b.tif": PNG, "c.png": bands})
    words = [root, tmp_path / "out", "--shards=1", "--max-rejected=90%", "--jobs=1"]
    ended = run(["build", "images", *words])
    assert ended.status == 0
    assert [name in ended.err for name in ("a.tif", "b.tif", "c.png")] == [True, False, True]
    # the command has handlers of its own
    build(ImageFolder(root), tmp_path / "again", options=Options(max_rejected=0.9))
    assert not [record for record in caplog.records if record.name.startswith("PIL")]
    assert not logging.getLogger("PIL.TiffImagePlugin").disabled


def test_heic_without_its_package_is_rejected_with_the_remedy(image_folder, tmp_path):
    root = image_folder({"a.jpg": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40)})
    code = """if True:
        import runpy, sys
        sys.modules["pillow_heif"] = None
        runpy.run_module("tfshards", run_name="__main__")"""
    command = [sys.executable, "-c", code, "build", "images", root, tmp_path / "out", "--jobs=1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "install tfshards[heic]" in done.stderr


# Image options that stand for others, and values that only Python can give


def test_for_training_stands_for_three_options():
    wanted = ImageOptions(resize="short=258", format="jpeg", jpeg_quality=90)
    assert ImageOptions(for_training=224) == ImageOptions(for_training=224, format="jpeg") == wanted
    assert ImageOptions(for_training=32, jpeg_quality=80).jpeg_quality == 80
    as_pixels = ImageOptions(for_training=224, format="pixels")
    assert as_pixels == ImageOptions(resize="short=258", format="pixels")


@pytest.mark.parametrize(
    "given",
    [{"channels": 3.0}, {"alpha": ""}, {"resize": (224, 224)}, {"jpeg_quality": True}, {"mask": True}]
    + [{"mask": True, "channels": 1, "format": "jpeg"}, {"for_training": -224}],
    ids=str,
)
def test_values_that_only_python_can_give_are_refused(given):
    with pytest.raises(OptionsError):
        ImageOptions(**given)


# Images that are stored as pixels: from files to the loader, and to other tools


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
        assert run(["build", "images", root / "photos", root / form, *words]).status == 0
    return root


@pytest.mark.parametrize(
    ("channels", "crop"),
    mostly_nightly(
        itertools.product([None, 1, 3, 4], [None, "random", "shift"]), [(None, "random"), (4, "shift")]
    ),
)
def test_the_loader_delivers_what_it_delivers_of_png(built, channels, crop):
    image = loader.Image((30, 28), crop=crop, channels=channels, flip="horizontal")
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
