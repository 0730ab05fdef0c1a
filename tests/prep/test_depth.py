"""Images with more than 8 bits per sample: what is kept, converted exactly, rejected, and warned about."""

import io
import zlib
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.errors import raises
from tests.pictures import image_file as saved
from tfshards.prep import ImageFolder, ImageOptions, Options, Table, plan
from tfshards.prep.cli.main import main
from tfshards.prep.imaging import depth
from tfshards.prep.imaging.normalize import Normalized, normalize
from tfshards.prep.imaging.whitelist import ImageError
from tfshards.schemas import InputError

from .deep_files import noise, pixels, png, tiff

DEEP = ImageOptions(depth=16)
KEEP = ImageOptions(depth="keep")
GRAY, GRAY_ALPHA, RGB, RGBA = (noise(13, 7, channels) for channels in (1, 2, 3, 4))


def stored(data: bytes, options: ImageOptions, suffix: bytes = b"") -> Normalized:
    """Return what is stored of a file, whose suffix need not be given."""
    found = normalize(data, options, suffix)
    return replace(found, conversions=tuple(n for n in found.conversions if n != "known by content"))


def gray_picture(samples: np.ndarray = GRAY) -> Image.Image:
    return Image.fromarray(samples[:, :, 0])


def with_chunk(data: bytes, name: bytes, body: bytes) -> bytes:
    """Return a PNG with a chunk after its header."""
    chunk = len(body).to_bytes(4, "big") + name + body
    chunk += zlib.crc32(name + body).to_bytes(4, "big")
    return data[:33] + chunk + data[33:]


# What is stored as it is


@pytest.mark.parametrize("options", [DEEP, KEEP], ids=["16", "keep"])
@pytest.mark.parametrize(
    "extra",
    [{}, {"channels": 1}, {"channels": 4}, {"channels": "keep"}],
    ids=["default", "gray", "4 channels", "keep"],
)
def test_a_sound_gray_png_of_16_bits_is_kept_and_tensorflow_decodes_its_samples(extra, options):
    data = png(GRAY)
    found = stored(data, ImageOptions(depth=options.depth, **extra), b".png")
    assert (found.data, found.conversions) == (data, ())
    decoded = tf.io.decode_png(found.data, 3, tf.uint16).numpy()
    assert np.array_equal(decoded, np.repeat(GRAY, 3, axis=2))


def test_a_png_of_16_bits_without_its_last_rows_is_rejected():
    short, header = png(GRAY[:5]), png(GRAY)[:33]
    with pytest.raises(ImageError, match="the pixels end after"):
        stored(header + short[33:], DEEP)


# What is converted, exactly


@pytest.mark.parametrize("is_deflated", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_a_tiff_becomes_a_png_with_its_samples(order, is_deflated):
    data = tiff(GRAY, order, is_deflated=is_deflated)
    for options in (DEEP, KEEP):
        found = stored(data, options, b".tif")
        assert np.array_equal(pixels(found.data), GRAY)
        assert found.conversions == ("re-encoded",)
        with Image.open(io.BytesIO(found.data)) as image:
            assert np.array_equal(np.asarray(image), GRAY[:, :, 0])


def test_a_rotated_tiff_is_upright():
    found = stored(tiff(GRAY, orientation=6), DEEP, b".tif")
    assert np.array_equal(pixels(found.data), np.rot90(GRAY, -1))


@pytest.mark.parametrize("orientation", range(2, 9))
def test_a_png_with_an_orientation_is_turned_as_pillow_turns_8_bits(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    shallow = gray_picture((GRAY >> 8).astype(np.uint8))
    wanted = pixels(stored(saved(shallow, exif=exif), ImageOptions()).data, "uint8")
    found = stored(with_chunk(png(GRAY), b"eXIf", exif.tobytes()[6:]), DEEP)
    assert np.array_equal(pixels(found.data) >> 8, wanted)
    assert found.conversions == ("orientation applied", "re-encoded")


@pytest.mark.parametrize("name", ["PNG", "JPEG", "BMP"])
def test_files_of_8_bits_are_scaled_by_257(name):
    data = saved(gray_picture((GRAY >> 8).astype(np.uint8)), name)
    decoded = np.asarray(Image.open(io.BytesIO(data)).convert("L"))
    found = stored(data, DEEP)
    assert np.array_equal(pixels(found.data)[:, :, 0], decoded.astype(np.uint16) * 257)
    assert found.conversions == ("8 bits to 16", "re-encoded")


def test_color_of_8_bits_becomes_gray_or_keeps_its_bits():
    data = saved(Image.fromarray((RGB >> 8).astype(np.uint8)))
    assert stored(data, KEEP).data == data
    found = stored(data, ImageOptions(depth=16, channels=1))
    assert found.conversions == ("colour to grey", "8 bits to 16", "re-encoded")
    wanted = np.asarray(Image.open(io.BytesIO(data)).convert("L")).astype(np.uint16) * 257
    assert np.array_equal(pixels(found.data)[:, :, 0], wanted)


@pytest.mark.parametrize("size", [(5, 4), (26, 14)])
def test_resizing_computes_in_float_and_rounds(size):
    height, width = size
    found = stored(png(GRAY), ImageOptions(depth=16, resize=f"{height}x{width}"))
    assert found.conversions == ("resized", "re-encoded")
    plane = Image.fromarray(GRAY[:, :, 0].astype(np.float32))
    wanted = np.asarray(plane.resize((width, height), Image.Resampling.LANCZOS)).clip(0, 65535)
    assert np.array_equal(pixels(found.data)[:, :, 0], np.rint(wanted))


def test_a_transparent_value_is_refused_or_kept_without_transparency():
    clear = with_chunk(png(GRAY), b"tRNS", GRAY[0, 0].astype(">u2").tobytes())
    for options in (DEEP, KEEP, ImageOptions(depth=16, channels=4)):
        with pytest.raises(ImageError, match="unsupported") as caught:
            stored(clear, options)
        assert "alpha='drop' keeps the value" in caught.value.detail
    found = stored(clear, ImageOptions(depth=16, alpha="drop"))
    assert np.array_equal(pixels(found.data), GRAY)
    assert found.conversions == ("alpha dropped", "re-encoded")


# What is rejected


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (png(RGB), DEEP, "PNG of mode RGB with more than 8 bits per sample"),
        (png(RGB), ImageOptions(depth=16, channels=1), "'tfshards build arrays' stores color"),
        (png(RGBA), KEEP, "PNG of mode RGBA with more than 8 bits per sample"),
        (png(GRAY_ALPHA), DEEP, "only gray without alpha is stored with 16"),
        (tiff(RGB, is_planar=True, is_deflated=True), DEEP, "TIFF of mode RGB with more than 8 bits"),
        (tiff(RGBA, alpha=1), KEEP, "TIFF of mode RGBA with more than 8 bits per sample"),
        (b"P6 2 1 65535 " + bytes(12), DEEP, "PPM of mode RGB with more than 8 bits per sample"),
        (saved(Image.fromarray((RGB >> 8).astype(np.uint8))), DEEP, "depth='keep' stores 8 bits as they are"),
        (saved(Image.fromarray(np.float32([[0.5]])), "TIFF"), DEEP, "mode F: floats do not fit 16 bits"),
        (saved(Image.fromarray(np.float32([[0.5]])), "TIFF"), KEEP, "'tfshards build arrays' stores them"),
    ],
    ids=[
        "RGB",
        "RGB to gray",
        "RGBA",
        "gray and alpha",
        "planes",
        "premultiplied alpha",
        "PPM",
        "color of 8 bits",
        "float",
        "float, keep",
    ],
)
def test_what_cannot_be_stored_exactly_is_rejected(data, options, message):
    with pytest.raises(ImageError, match="unsupported") as caught:
        stored(data, options)
    assert caught.value.reason == "unsupported"
    assert message in caught.value.detail


# Masks


@pytest.mark.parametrize("value", [16, "keep"])
def test_masks_are_stored_with_16_bits_and_never_scaled(value):
    options = ImageOptions(depth=value, channels=1, mask=True)
    assert stored(png(GRAY), options).data == png(GRAY)
    resize = ImageOptions(depth=value, channels=1, mask=True, resize="26x14")
    assert np.array_equal(pixels(stored(png(GRAY), resize).data), GRAY.repeat(2, axis=0).repeat(2, axis=1))
    clear = with_chunk(png(GRAY), b"tRNS", bytes(2))
    assert np.array_equal(pixels(stored(clear, options).data), GRAY)
    for data in (png(RGB), png(GRAY_ALPHA)):
        with pytest.raises(ImageError, match="a mask has one channel"):
            stored(data, options)


# The default, which reduces, and its warnings

JP2 = saved(gray_picture(), "JPEG2000", irreversible=False)


@pytest.mark.parametrize(
    ("data", "conversion"),
    [
        (png(GRAY), "16 bits to 8"),
        (png(GRAY_ALPHA), "16 bits of color to 8"),
        (png(RGB), "16 bits of color to 8"),
        (png(RGBA), "16 bits of color to 8"),
        (tiff(RGB, ">"), "16 bits of color to 8"),
        (tiff(RGB, is_deflated=True), "16 bits of color to 8"),
        (tiff(RGB, is_deflated=True, is_planar=True), "16 bits of color to 8"),
        (b"P6 2 1 65535 " + bytes(12), "16 bits of color to 8"),
        (JP2, "16 bits to 8"),
        (saved(Image.fromarray(np.float32([[0.5]])), "TIFF"), "float to 8 bits"),
    ],
    ids=["gray", "gray and alpha", "RGB", "RGBA", "TIFF", "deflated", "planes", "PPM", "JPEG 2000", "float"],
)
def test_the_default_counts_every_image_that_it_reduces(data, conversion):
    found = stored(data, ImageOptions())
    assert [name for name in found.conversions if name.endswith(("to 8", "8 bits"))] == [conversion]
    assert depth.is_deep(Image.open(io.BytesIO(data)))


def test_color_of_more_than_8_bits_is_recognized_in_jpeg_2000():
    data = saved(Image.fromarray((RGB >> 8).astype(np.uint8)), "JPEG2000")
    start = data.index(b"\xff\x4f\xff\x51") + 42
    assert data[start] == 7
    with Image.open(io.BytesIO(data[:start] + b"\x0b" + data[start + 1 :])) as image:
        assert depth.has_deep_colors(image)
    assert depth._jpeg2000_bits(io.BytesIO(b"no codestream")) == 8


@pytest.mark.parametrize("name", ["PNG", "TIFF", "JPEG", "PPM", "JPEG2000"])
def test_images_of_8_bits_are_not_deep(name):
    data = saved(Image.fromarray((RGB >> 8).astype(np.uint8)), name)
    assert not depth.is_deep(Image.open(io.BytesIO(data)))


@pytest.fixture
def scans(image_folder):
    """Gray photos, and slices as viewers export them from DICOM: PNG with 16 bits, of which 12 are used."""
    slices = {
        f"patient{p}/series{s}/{n:03d}.png": png(noise(9, 8, 1) // 16 + p + s + n)
        for p in (1, 2)
        for s in (1, 2)
        for n in range(3)
    }
    photo = saved(gray_picture((noise(9, 8, 1) >> 8).astype(np.uint8)))
    return image_folder({**slices, "photos/a.png": photo, "photos/b.png": photo})


def test_a_build_that_reduces_ends_with_a_warning_and_plan_warns_before(scans, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["plan", "images", str(scans), out]) == 0
    before = capsys.readouterr().err
    assert (
        "warning: 12 of 14 images looked at have more than 8 bits per sample, such as "
        "'patient1/series1/000.png', and are reduced to 8 bits; of 16 bits, 4095 becomes 15; --depth 16 "
        "keeps their values"
    ) in before
    assert main(["build", "images", str(scans), out]) == 0
    after = capsys.readouterr().err
    assert (
        "warning: 12 images with more than 8 bits per sample: reduced to the upper 8, so that 4095 of 16 "
        "bits becomes 15, such as 'patient1/series1/000.png'; --depth 16 keeps their values"
    ) in after
    for value in ("16", "keep"):
        assert main(["build", "images", str(scans), out + value, "--depth", value]) == 0
        assert "bits per sample" not in capsys.readouterr().err


def test_color_is_warned_about_with_the_way_by_arrays(image_folder, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["build", "images", str(image_folder({"a.png": png(RGB), "b.png": png(GRAY)})), out]) == 0
    text = capsys.readouterr()
    arrays = "'tfshards build arrays' stores arrays of them as they are"
    for found in (
        "1 of 2 images looked at have more than 8 bits per sample in color, such as 'a.png', and are "
        f"reduced to 8 bits; {arrays}\n",
        "1 image with more than 8 bits per sample in color: reduced to the upper 8, such as 'a.png'; "
        f"{arrays}\n",
        "1 image with more than 8 bits per sample: reduced to the upper 8, so that 4095 of 16 bits becomes "
        "15, such as 'b.png'; --depth 16 keeps their values\n",
    ):
        assert f"warning: {found}" in text.err
    assert f"  accepted: 16 bits of color to 8: 1 ({arrays})\n" in text.out


def test_a_table_is_warned_about_too(scans, tmp_path, quiet_build):
    path = tmp_path / "rows.csv"
    path.write_text("file_name\npatient1/series1/000.png\nphotos/a.png\nmissing.png\n")
    found = plan(Table(path, root=scans), tmp_path / "out")
    (warning,) = [line for line in found.warnings if "bits" in line]
    assert warning.startswith("1 of 3 images looked at have more than 8 bits per sample")
    assert not any("bits" in line for line in plan(Table(path, KEEP, root=scans), tmp_path / "out").warnings)


def test_folders_of_floats_are_sent_to_arrays(image_folder, tmp_path, log, quiet_build):
    floats = saved(Image.fromarray(np.float32([[0.5]])), "TIFF")
    # a damaged header in the sample is left to the build
    source = ImageFolder(image_folder({"f.tif": floats, "b.tif": b"II*\0"}))
    arrays = "'tfshards build arrays' stores arrays of them as they are"
    assert plan(source, tmp_path / "out").warnings == (
        "1 of 2 images looked at hold floating point numbers, such as 'f.tif', and are reduced to 8 bits; "
        + arrays,
    )
    quiet_build(source, tmp_path / "out", options=Options(max_rejected=1))
    found = "warning: 1 image of floating point numbers: reduced to 8 bits, such as 'f.tif'; "
    assert found + arrays in log
    root = image_folder({"a/0.npy": b"\x93NUMPY"}, name="arrays")
    with raises(InputError, "folder-no-images"):
        ImageFolder(root).listing()
