"""Images are kept, re-encoded or rejected; TensorFlow decodes accepted ones to the pixels of Pillow."""

from __future__ import annotations

import io
import random
import struct
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from PIL import ExifTags, Image, ImageFile, ImageOps

from tfshards import loader
from tfshards.loader.examples.images import decode_image
from tfshards.prep.imaging.normalize import normalize
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.stored import describe
from tfshards.prep.imaging.whitelist import ImageError

ORIENTATION = ExifTags.Base.Orientation
WIDTH, HEIGHT = 33, 25


def smooth() -> np.ndarray:
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    return np.stack([columns * 7 % 256, rows * 9 % 256, (columns + rows) * 4 % 256], -1).astype(np.uint8)


def noise(channels: int = 3) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, (HEIGHT, WIDTH, channels), dtype=np.uint8)


RGB = Image.fromarray(smooth())
GRAY = RGB.convert("L")
PALETTE = RGB.quantize(16)
RGBA = Image.fromarray(noise(4), "RGBA")
CORNER = tuple(int(value) for value in smooth()[3, 3])


def encoded(image: Image.Image, file_format: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


JPEG = encoded(RGB, "JPEG", quality=95)
PNG = encoded(RGB, "PNG")


def stored(data: bytes, check: str = "decode", **options: object) -> bytes:
    return normalize(data, ImageOptions(check=check, **options)).data


def turned(file_format: str, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return encoded(RGB, file_format, exif=exif)


def with_exif_bytes(exif: bytes) -> bytes:
    return JPEG[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + JPEG[2:]


def declared(width: int, height: int) -> bytes:
    """Return a small JPEG with another size in its header."""
    return JPEG.replace(struct.pack(">HH", HEIGHT, WIDTH), struct.pack(">HH", height, width))


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def header(width: int = 8, height: int = 5, depth: int = 8, color: int = 2, interlaced: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">II5B", width, height, depth, color, 0, 0, interlaced))


def rows(width: int = 8, height: int = 5, depth: int = 8, channels: int = 3) -> bytes:
    """Return unfiltered rows of noise."""
    length = (width * depth * channels + 7) // 8
    return b"".join(b"\0" + random.Random(row).randbytes(length) for row in range(height))


def png(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks) + chunk(b"IEND", b"")


def pixels(data: bytes | None = None) -> bytes:
    return chunk(b"IDAT", zlib.compress(rows() if data is None else data))


PIXELS = zlib.compress(rows())
INTERLACED_ROWS = b"".join(rows(w, h) for w, h in [(1, 1), (1, 1), (2, 1), (2, 2), (4, 1), (4, 3), (8, 2)])


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


KEPT = {
    "JPEG of orientation 9, which is none": turned("JPEG", 9),
    "RGB JPEG": JPEG,
    "grey JPEG": encoded(GRAY, "JPEG"),
    "progressive JPEG": encoded(RGB, "JPEG", progressive=True),
    "JPEG without subsampling": encoded(RGB, "JPEG", subsampling=0),
    "JPEG of RGB components": encoded(RGB, "JPEG", keep_rgb=True),
    "the widest JPEG": encoded(Image.new("RGB", (65_500, 1)), "JPEG"),
    "JPEG of orientation 1": turned("JPEG", 1),
    "JPEG of orientation 0, which is none": turned("JPEG", 0),
    "JPEG with EXIF that is none": with_exif_bytes(b"Exif\0\0junkjunkjunk"),
    "JPEG with EXIF that is cut": with_exif_bytes(b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01"),
    "JPEG followed by previews": encoded(
        RGB, "MPO", save_all=True, append_images=[RGB.resize((9, 9))], quality=95
    ),
    "JPEG with trailing bytes": JPEG + b"junk" * 1000,
    "JPEG with an early end marker": JPEG[:-120] + JPEG[-2:],
    "JPEG with restarts": encoded(RGB, "JPEG", restart_marker_blocks=1),
    "JPEG with fill bytes before its markers": JPEG[:2] + b"\xff\xff" + JPEG[2:],
    "RGB PNG": PNG,
    "grey PNG": encoded(GRAY, "PNG"),
    "PNG of 1 bit": encoded(RGB.convert("1"), "PNG"),
    "grey PNG of 2 bits": png(header(depth=2, color=0), pixels(rows(depth=2, channels=1))),
    "grey PNG of 4 bits": png(header(depth=4, color=0), pixels(rows(depth=4, channels=1))),
    "interlaced PNG": png(header(interlaced=1), pixels(INTERLACED_ROWS)),
    "interlaced PNG too small for all passes": png(
        header(2, 2, interlaced=1), pixels(rows(1, 1) + rows(1, 1) + rows(2, 1))
    ),
    "PNG of orientation 1": turned("PNG", 1),
    "PNG with pixels in two chunks": png(header(), chunk(b"IDAT", PIXELS[:9]), chunk(b"IDAT", PIXELS[9:])),
    "PNG with an empty chunk of pixels": png(header(), chunk(b"IDAT", b""), pixels()),
    "PNG with a gamma": png(header(), chunk(b"gAMA", struct.pack(">I", 100_000)), pixels()),
    "PNG with a color profile that is none": png(header(), chunk(b"iCCP", b"x\0\0junk"), pixels()),
    "PNG with text": png(header(), chunk(b"tEXt", b"by\0me"), pixels(), chunk(b"tEXt", b"at\0home")),
    "PNG with a chunk that none knows": png(header(), chunk(b"abCd", b"x"), pixels()),
    "the widest PNG": png(
        header(1_000_000, 1, depth=1, color=0), pixels(rows(1_000_000, 1, depth=1, channels=1))
    ),
}

RE_ENCODED = {
    **{f"JPEG of orientation {number}": turned("JPEG", number) for number in range(2, 9)},
    **{f"PNG of orientation {number}": turned("PNG", number) for number in range(2, 9)},
    "CMYK JPEG": encoded(RGB.convert("CMYK"), "JPEG"),
    "CMYK JPEG with a profile": encoded(RGB.convert("CMYK"), "JPEG", icc_profile=b"junk" * 50),
    "palette PNG": encoded(PALETTE, "PNG"),
    "palette PNG with a transparent color": encoded(PALETTE, "PNG", transparency=3),
    "grey PNG with a transparent color": encoded(GRAY, "PNG", transparency=int(np.asarray(GRAY)[3, 3])),
    "RGB PNG with a transparent color": encoded(RGB, "PNG", transparency=CORNER),
    "PNG of 1 bit with a transparent color": png(
        header(depth=1, color=0), chunk(b"tRNS", b"\0\1"), pixels(rows(depth=1, channels=1))
    ),
    "RGBA PNG": encoded(RGBA, "PNG"),
    "PNG of grey and alpha": encoded(RGBA.convert("LA"), "PNG"),
    "RGB PNG of 16 bits": png(header(depth=16), pixels(rows(depth=16))),
    "PNG with trailing bytes": PNG + b"junk",
    "PNG with a palette and RGB": png(header(), chunk(b"PLTE", bytes(30)), pixels()),
    "PNG with two palettes": png(header(), chunk(b"PLTE", bytes(30)), chunk(b"PLTE", bytes(30)), pixels()),
    "PNG with two headers": png(header(), header(), pixels()),
    "PNG with text before its header": png(chunk(b"tEXt", b"by\0me"), header(), pixels()),
    "PNG with a chunk that a decoder must know": png(header(), chunk(b"ABCD", b"x"), pixels()),
    "PNG with a chunk whose name is none": png(header(), chunk(b"a1Cd", b"x"), pixels()),
    "PNG of an animation of one frame": png(
        header(),
        chunk(b"acTL", struct.pack(">II", 1, 0)),
        chunk(b"fcTL", struct.pack(">5I2H2B", 0, 8, 5, 0, 0, 1, 1, 0, 0)),
        pixels(),
    ),
    "PNG of an unknown compression": png(chunk(b"IHDR", struct.pack(">II5B", 8, 5, 8, 2, 7, 0, 0)), pixels()),
    "GIF": encoded(PALETTE, "GIF"),
    "GIF with a transparent color": encoded(PALETTE, "GIF", transparency=2),
    "WebP": encoded(RGB, "WEBP"),
    "lossless WebP with alpha": encoded(RGBA, "WEBP", lossless=True),
    "BMP": encoded(RGB, "BMP"),
    "palette BMP": encoded(PALETTE, "BMP"),
    "TIFF": encoded(RGB, "TIFF", compression="tiff_lzw"),
    "CMYK TIFF": encoded(RGB.convert("CMYK"), "TIFF"),
}

REJECTED = {
    "no bytes": (b"", "empty", "the file has no bytes"),
    "text": (
        b"hello, world",
        "unreadable",
        "starts with 68 65 6c 6c 6f 2c 20 77, opens as none of JPEG, PNG, WEBP,",
    ),
    "a format that is not read": (encoded(RGB, "TGA"), "unreadable", "starts with 00 00 02"),
    "PNG of no width": (png(header(width=0), pixels()), "unreadable", "starts with 89 50 4e 47"),
    "JPEG with junk between its markers": (
        JPEG[:2] + b"junk" + JPEG[2:],
        "unreadable",
        "starts with ff d8 6a",
    ),
    "JPEG cut in its header": (JPEG[: len(JPEG) // 2], "damaged", "OSError: "),
    "JPEG without its last bytes": (JPEG[:-40], "damaged", "OSError: image file is truncated"),
    "half a PNG": (PNG[: len(PNG) // 2], "damaged", ""),
    "PNG without its end": (PNG[:-30], "damaged", ""),
    "PNG with a wrong checksum": (flipped(PNG, 60), "damaged", ""),
    "PNG with too few rows": (
        png(header(), pixels(rows()[:75])),
        "damaged",
        "the pixels end after 75 of 125",
    ),
    "interlaced PNG with too few rows": (
        png(header(interlaced=1), pixels(INTERLACED_ROWS[:-25])),
        "damaged",
        f"the pixels end after {len(INTERLACED_ROWS) - 25} of {len(INTERLACED_ROWS)}",
    ),
    "palette PNG with too few rows": (
        png(header(color=3), chunk(b"PLTE", bytes(768)), pixels(rows(channels=1)[:-9])),
        "damaged",
        "the pixels end after 36 of 45",
    ),
    "PNG with too many rows": (
        png(header(), pixels(rows() + rows())),
        "damaged",
        "there are more pixels than their 125 bytes",
    ),
    "PNG with a wrong checksum of its text": (
        flipped(png(header(), chunk(b"tEXt", b"by\0me"), pixels()), 46),
        "unreadable",
        "starts with 89 50 4e 47",
    ),
    "PNG without the checksum of its pixels": (
        png(header(), chunk(b"IDAT", PIXELS[:-4])),
        "damaged",
        "the checksum of the pixels is cut",
    ),
    "PNG with a wrong checksum of its pixels": (
        png(header(), chunk(b"IDAT", flipped(PIXELS, len(PIXELS) - 1))),
        "damaged",
        "",
    ),
    "PNG with an unknown filter": (png(header(), pixels(b"\x09" + rows()[1:])), "damaged", ""),
    "animated GIF": (
        encoded(RGB, "GIF", save_all=True, append_images=[GRAY]),
        "animated",
        "has 2 frames",
    ),
    "animated PNG": (encoded(RGB, "PNG", save_all=True, append_images=[GRAY]), "animated", "has 2 frames"),
    "animated WebP": (encoded(RGB, "WEBP", save_all=True, append_images=[GRAY]), "animated", "has 2 frames"),
    "TIFF of two pages": (encoded(RGB, "TIFF", save_all=True, append_images=[RGB]), "animated", "has 2"),
    "TIFF of floats above white": (
        encoded(Image.new("F", (3, 3), 1.5), "TIFF"),
        "unsupported",
        "mode F: has values outside of 0 (black) to 1 (white)",
    ),
    "TIFF of integers below black": (
        encoded(Image.new("I", (3, 3), -1), "TIFF"),
        "unsupported",
        "mode I: has values outside of 0 (black) to 65535 (white)",
    ),
    "JPEG with 144 megapixels in its header": (
        declared(12_000, 12_000),
        "too large",
        "12000 x 12000 pixels; at most 89000000",
    ),
    "JPEG with 3.6 gigapixels in its header": (declared(60_000, 60_000), "too large", "exceeds limit"),
    "PNG with a side of a million and one": (
        png(header(1_000_001, 1, depth=1, color=0), pixels(rows(1_000_001, 1, depth=1, channels=1))),
        "too large",
        "1000001 x 1 pixels; no side above 1000000",
    ),
    "BMP with a side of a million and one": (
        encoded(Image.new("1", (1_000_001, 1)), "BMP"),
        "too large",
        "no side above 1000000",
    ),
}


def upright(data: bytes) -> np.ndarray:
    """Return the pixels of Pillow: upright, on white, in RGB."""
    with Image.open(io.BytesIO(data)) as image:
        image = ImageOps.exif_transpose(image)
        if image.mode in ("RGBA", "LA") or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return np.asarray(image.convert("RGB"))


def decoded(data: bytes) -> np.ndarray:
    pixels: np.ndarray = decode_image(
        tf.constant(data), loader.Image(channels=3), tf.constant(0, tf.int64)
    ).numpy()
    return pixels


def named(table: dict) -> Callable:
    return pytest.mark.parametrize("data", table.values(), ids=table.keys())


@named(KEPT)
@pytest.mark.parametrize("check", ["decode", "header"])
def test_bytes_that_both_libraries_agree_on_are_kept(data, check):
    assert stored(data, check) is data
    np.testing.assert_array_equal(decoded(data), upright(data))


@named(RE_ENCODED)
@pytest.mark.parametrize("check", ["decode", "header"])
def test_all_other_files_become_a_png_of_the_same_picture(data, check):
    made = stored(data, check)
    assert made.startswith(b"\x89PNG")
    np.testing.assert_array_equal(decoded(made), upright(data))
    # and that one is kept
    assert stored(made, "decode") is made


@pytest.mark.parametrize(("data", "reason", "detail"), REJECTED.values(), ids=REJECTED.keys())
def test_images_that_cannot_be_decoded_are_rejected_with_a_reason(data, reason, detail):
    with pytest.raises(ImageError) as found:
        stored(data, "decode")
    assert found.value.reason == reason
    assert detail in found.value.detail
    assert found.value.detail.isprintable()


@pytest.mark.parametrize("data", [b"", b"text", JPEG[:50], turned("JPEG", 6)])
def test_without_a_check_the_bytes_are_kept_as_they_are(data):
    assert stored(data, "none") is data


def test_a_check_of_headers_accepts_a_jpeg_with_damaged_data():
    place = JPEG.index(b"\xff\xda") + 14
    damaged = JPEG[:place] + JPEG[place + 200 :]
    assert stored(damaged, "header") is damaged


SEEDS = {
    "JPEG": JPEG,
    "grey JPEG": encoded(GRAY, "JPEG", progressive=True),
    "turned JPEG": turned("JPEG", 6),
    "PNG": png(header(), pixels()),
    "interlaced PNG": png(header(interlaced=1), pixels(INTERLACED_ROWS)),
    "palette PNG": encoded(PALETTE, "PNG", transparency=3),
    "GIF": encoded(PALETTE, "GIF"),
    "WebP": encoded(RGBA, "WEBP"),
    "BMP": encoded(PALETTE, "BMP"),
    "TIFF": encoded(RGB, "TIFF", compression="tiff_lzw"),
}


@named(SEEDS)
def test_tensorflow_decodes_every_accepted_damaged_file_to_the_same_picture(data):
    choose = random.Random(len(data))
    accepted = 0
    for _ in range(150):
        damaged = mutated(data, choose)
        try:
            made = stored(damaged, "decode")
        except ImageError:
            continue
        accepted += 1
        shown = decoded(made)
        if made is not damaged or made.startswith(b"\x89PNG"):
            np.testing.assert_array_equal(shown, upright(damaged))
        else:
            assert shown.shape == upright(damaged).shape
    assert accepted, "no damage was small enough to test anything"


def mutated(data: bytes, choose: random.Random) -> bytes:
    """Change one to three bytes; half of the time, correct the checksums of the chunks of a PNG."""
    changed = bytearray(data)
    for _ in range(choose.randint(1, 3)):
        changed[choose.randrange(8, len(changed))] = choose.randrange(256)
    if data.startswith(b"\x89PNG") and choose.random() < 0.5:
        place = 8
        while place + 12 <= len(changed):
            end = place + 8 + int.from_bytes(changed[place : place + 4], "big")
            if end + 4 > len(changed):
                break
            changed[end : end + 4] = struct.pack(">I", zlib.crc32(changed[place + 4 : end]))
            place = end + 4
    return bytes(changed)


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
    odd = with_exif_bytes(b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01")
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
