"""Files that the table of nasty files does not have, settings of the process, and descriptions of images."""

import io
import struct
import subprocess
import sys
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image, ImageFile

from tests.pixels.corpus.jpegs import PLAIN as JPEG
from tests.pixels.corpus.jpegs import declared
from tests.pixels.corpus.kind import chunk, encoded, exif
from tests.pixels.corpus.modes import PALETTE, RGB
from tests.pixels.corpus.pngs import PLAIN as PNG
from tests.pixels.corpus.pngs import header, pixels, png, rows
from tfshards.prep.imaging.normalize import normalize
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.stored import describe
from tfshards.prep.imaging.whitelist import ImageError


def stored(data: bytes, check: str = "decode", **options: object) -> bytes:
    return normalize(data, ImageOptions(check=check, **options)).data


OUTCOMES = {
    "JPEG of RGB components": (encoded(RGB, "JPEG", keep_rgb=True), "kept"),
    "JPEG with EXIF that is cut": (
        JPEG[:2] + b"\xff\xe1\0\x14Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01" + JPEG[2:],
        "kept",
    ),
    "interlaced PNG too small for all passes": (
        png(header(interlaced=1, size=(2, 2)), pixels(b"\0abc" * 2 + b"\0abcdef")),
        "kept",
    ),
    "PNG of an unknown compression": (
        png(chunk(b"IHDR", struct.pack(">II5B", 33, 25, 8, 2, 7, 0, 0)), pixels()),
        "converted",
    ),
    "PNG with text before its header": (png(chunk(b"tEXt", b"by\0me"), header(), pixels()), "converted"),
    "PNG with a chunk whose name is none": (png(header(), chunk(b"a1Cd", b"x"), pixels()), "converted"),
    "PNG with a palette and RGB": (png(header(), chunk(b"PLTE", bytes(30)), pixels()), "converted"),
    "PNG without the checksum of its pixels": (
        png(header(), chunk(b"IDAT", zlib.compress(rows())[:-4])),
        "the checksum of the pixels is cut",
    ),
    "BMP with a long side": (encoded(Image.new("1", (1_000_001, 1)), "BMP"), "no side above 1000000"),
    "text": (b"hello, world", "starts with 68 65 6c 6c 6f 2c 20 77, opens as none of JPEG, PNG, WEBP,"),
    "a format that is not read": (encoded(RGB, "TGA"), "starts with 00 00 02"),
}


@pytest.mark.parametrize(("data", "outcome"), OUTCOMES.values(), ids=OUTCOMES)
def test_a_file_is_kept_converted_or_rejected_with_a_detail(data, outcome):
    if outcome in ("kept", "converted"):
        assert (stored(data) is data) == (outcome == "kept")
        return
    with pytest.raises(ImageError) as found:
        stored(data)
    assert outcome in found.value.detail


@pytest.mark.parametrize("data", [b"", b"text", JPEG[:50], encoded(RGB, "JPEG", exif=exif(6))])
def test_without_a_check_the_bytes_are_kept_as_they_are(data):
    assert stored(data, "none") is data


def test_decoding_in_threads_does_not_change_the_warning_filters():
    before = list(warnings.filters)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(lambda _: stored(JPEG, "decode") is JPEG, range(800)))
    finally:
        sys.setswitchinterval(interval)
    assert list(warnings.filters) == before


def test_warnings_of_pillow_are_neither_shown_nor_an_error():
    odd, _ = OUTCOMES["JPEG with EXIF that is cut"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="Corrupt EXIF data"), Image.open(io.BytesIO(odd)) as image:
            image.getexif()
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(lambda _: stored(odd, "decode") is odd, range(100)))


@pytest.mark.parametrize(
    "data", [JPEG[:-40], PNG[:-30], encoded(RGB, "BMP")[:-50], encoded(RGB, "WEBP")[:-50]]
)
def test_a_truncated_file_is_rejected_even_if_pillow_is_set_to_load_it(data, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(ImageError, match="damaged"):
        stored(data, "decode")
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


@pytest.mark.parametrize("limit", [None, 100])
def test_the_pixel_limit_of_pillow_does_not_affect_a_build(limit, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    assert stored(JPEG, "decode") is JPEG
    for side in (12_000, 60_000):
        with pytest.raises(ImageError, match="too large"):
            stored(declared(side, side), "decode")
    assert limit == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize(
    ("data", "described"),
    [
        (JPEG, "JPEG 25 x 33 (height x width), mode RGB"),
        (encoded(PALETTE, "PNG"), "PNG 25 x 33 (height x width), mode P"),
        (b"text", "not a readable image"),
        (b"", "not a readable image"),
        # as a build with a larger --max-pixels stores them; Pillow warns of the first, and opens no second
        (declared(12_000, 10_000), "JPEG 10000 x 12000 (height x width), mode RGB"),
        (declared(60_000, 50_000), "JPEG 50000 x 60000 (height x width), mode RGB"),
    ],
)
def test_encoded_images_are_described_as_text(data, described, recwarn):
    assert describe(data) == described
    assert not recwarn


def test_heic_without_its_package_is_rejected_with_the_remedy():
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40)
    code = f"""
import sys
sys.modules["pillow_heif"] = None
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.normalize import normalize
from tfshards.prep.imaging.pillow import decoder_versions
from tfshards.prep.imaging.whitelist import ImageError
assert set(decoder_versions()) == {{"pillow"}}
try:
    normalize({heic!r}, ImageOptions(), b".jpg")
except ImageError as error:
    print(error.reason, error.detail, sep=": ")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "unsupported: HEIC; install tfshards[heic] to read it\n", done.stderr
