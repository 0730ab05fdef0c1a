"""Settings of the process that are not those of a build, and formats that need a package."""

import logging
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image, ImageFile

from tests.pixels.corpus.jpegs import PLAIN as JPEG
from tests.pixels.corpus.jpegs import declared
from tests.pixels.corpus.kind import RGB, encoded
from tests.pixels.corpus.pngs import PLAIN as PNG
from tests.pixels.corpus.tiffs import Page, tiff
from tests.surface.command import run
from tfshards.prep import ImageFolder, Options, build, limited_jobs

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
