"""Images: settings of the process, options that stand for others, stored pixels, arrays of images."""

import logging
import subprocess
import sys
import tarfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from tests.errors import raises
from tests.pictures import image_file
from tests.pixels.corpus.jpegs import PLAIN as JPEG
from tests.pixels.corpus.jpegs import declared
from tests.pixels.corpus.kind import RGB, encoded
from tests.pixels.corpus.pngs import PLAIN as PNG
from tests.pixels.corpus.tiffs import Page, tiff
from tests.surface.command import run
from tfshards import loader, prep
from tfshards.prep import ImageFolder, Options, build, limited_jobs
from tfshards.schemas import OptionsError, read_manifest

ANY = Options(max_rejected=1)
ODD_EXIF = JPEG[:2] + b"\xff\xe1\0\x14Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01" + JPEG[2:]


@pytest.fixture
def rejects(image_folder, tmp_path, quiet_build):
    """Build files and return the counts of rejected ones, by reason."""

    def build(files):
        source = ImageFolder(image_folder(files))
        manifest = quiet_build(source, tmp_path / "out", options=ANY)
        return manifest.totals.reasons.get("rejected", {})

    return build


def test_threads_do_not_change_the_warning_filters(image_folder, tmp_path, quiet_build):
    source = ImageFolder(image_folder({f"{n}.jpg": ODD_EXIF for n in range(99)}))

    def build(number):
        with limited_jobs(1):
            return quiet_build(source, tmp_path / f"{number}").num_examples

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
        words = ["--format", form, "--shards", "2", "--name", "n"]
        assert run(["build", "images", root / "photos", root / form, *words]).status == 0
    return root


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


# Arrays that are images: what is taken for one, and what images get that they get as well


def pixels(shape: tuple[int, ...], dtype: str = "uint8", count: int = 7) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(0, np.iinfo(dtype).max, (count, *shape), dtype=dtype)


@pytest.fixture
def build_arrays(tmp_path, quiet_build):
    """Build a dataset from arrays in the folder ``name``, and return the folder."""

    def run(arrays: object, name: str = "out", given: dict | None = None, **options: object) -> Path:
        quiet_build(prep.Arrays(arrays, **options), tmp_path / name, **(given or {}))
        return tmp_path / name

    return run


def raw(*shape: int) -> np.ndarray:
    return np.zeros((2, *shape), np.uint8)


# arrays by name, which of them are declared, and which are images
RULES = {
    "the only one": ({"x": raw(28, 28), "y": np.arange(2)}, [], ["x"]),
    "16 bits and channels": ({"x": raw(8, 8, 4).astype(np.uint16)}, [], ["x"]),
    "by name": ({"image": raw(28, 28), "mask": raw(28, 28)}, [], ["image"]),
    "two": ({"left": raw(28, 28), "right": raw(28, 28)}, [], []),
    "two of which one is declared": ({"left": raw(28, 28), "image": raw(28, 28)}, ["left"], ["left"]),
    "small": ({"x": raw(7, 28)}, [], []),
    "small but declared": ({"x": raw(2, 3)}, ["x"], ["x"]),
    "numbers": ({"x": raw(28, 28) / 2}, [], []),
    "video": ({"x": raw(4, 28, 28, 3)}, [], []),
    "channels first": ({"x": raw(3, 32, 32)}, [], []),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("arrays", "declared", "expected"), RULES.values(), ids=RULES)
def test_an_array_is_an_image_if_it_is_declared_or_cannot_be_mistaken(
    arrays, declared, expected, build_arrays
):
    out = build_arrays(arrays, roles=dict.fromkeys(declared, "image"))
    given = {"batch_size": 2, "shuffle": None, "image": loader.Image(size=(5, 5))}
    if not expected:
        with pytest.raises(OptionsError):
            next(iter(loader.batches(out, "train", **given)))
        return
    (batch,) = loader.batches(out, "train", **given)
    assert [name for name, values in batch.items() if values.shape[1:3] == (5, 5)] == expected


def test_gray_is_repeated_for_color(build_arrays):
    out = build_arrays({"x": pixels((12, 9)), "y": np.arange(7)})
    image = loader.Image(size=(6, 6), channels=3)
    (batch,) = loader.load(out, "train", batch_size=7, image=image, shuffle=None)
    gray = next(iter(loader.load(out, "train", batch_size=7, image=loader.Image(size=(6, 6)), shuffle=None)))
    np.testing.assert_array_equal(batch["x"], np.repeat(gray["x"], 3, axis=3))
    with raises(OptionsError, "Image.channels=4 must be"):
        loader.load(out, "train", batch_size=7, image=loader.Image(channels=4))


def test_ambiguous_arrays_are_named_and_masks_do_not_stay_behind_in_silence(build_arrays):
    pair = {"left": pixels((12, 9)), "right": pixels((12, 9))}
    out = build_arrays(pair)
    with pytest.raises(OptionsError, match="name arrays that are images"):
        loader.load(out, "train", batch_size=7, image=loader.Image(size=(6, 6)))
    with raises(OptionsError, "image="):
        loader.load(out, "train", batch_size=7, image=loader.Image(), select=("key",))
    named = {"left": loader.Image(size=(6, 6), seed=1, flip="horizontal")}
    with pytest.warns(UserWarning, match="right is delivered as stored"):
        loader.load(out, "train", batch_size=7, image=named)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader.load(out, "train", batch_size=7, image=named, select=("left",))
        loader.load(out, "train", batch_size=7, image={"left": loader.Image()})
        both = {**named, "right": loader.Image(size=(6, 6), seed=1, flip="horizontal", method="nearest")}
        (batch,) = loader.load(out, "train", batch_size=7, image=both, shuffle=None)
    assert batch["right"].shape == (7, 6, 6, 1)
    declared = build_arrays(pair, "declared", roles={"left": "image", "right": "image"})
    (batch,) = loader.load(declared, "train", batch_size=7, image=loader.Image(size=(6, 6)))
    assert {batch[name].shape for name in pair} == {(7, 6, 6, 1)}
    assert read_manifest(declared).options["columns"] == {"left": "image", "right": "image"}
