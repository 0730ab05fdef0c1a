"""Masks: the exact numbers in their files, and whether they fit their image, which EXIF may turn."""

import io
import json
import struct
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from tests.pixels.corpus.kind import chunk
from tests.pixels.corpus.pngs import header
from tests.pixels.corpus.pngs import png as plain_png
from tfshards.prep import ColumnRoles, ImageFolder, ImageOptions, Options, Table, verify
from tfshards.prep.imaging.normalize import normalize
from tfshards.prep.imaging.whitelist import ImageError
from tfshards.prep.sources.base import Accepted, Rejected
from tfshards.schemas.reasons import Reason

from .deep_files import png

HEIGHT, WIDTH = 5, 7
PHOTO = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
TURNS = range(2, 9)


def small(most: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Return numbers from 0 to ``most``, without symmetry."""
    return (np.arange(height * width).reshape(height, width) % (most + 1)).astype(np.uint16)


def saved(values: np.ndarray, name: str = "PNG", orientation: int = 1, **options: object) -> bytes:
    file = io.BytesIO()
    exif = Image.Exif()
    if orientation != 1:
        exif[0x0112] = orientation
        options["exif"] = exif
    Image.fromarray(values).save(file, name, **options)
    return file.getvalue()


def packed(numbers: np.ndarray, bits: int) -> list[bytes]:
    """Return rows of numbers of 1 to 16 bits, each padded to whole bytes."""
    row_bytes = -(-numbers.shape[1] * bits // 8)
    texts = ("".join(f"{number:0{bits}b}" for number in row) for row in numbers.tolist())
    return [int(text.ljust(8 * row_bytes, "0"), 2).to_bytes(row_bytes, "big") for text in texts]


def gray_png(numbers: np.ndarray, bits: int) -> bytes:
    """Return a gray PNG with these numbers, of 1, 2 or 4 bits, each row without a filter."""
    pixels = zlib.compress(b"".join(b"\0" + row for row in packed(numbers, bits)))
    return plain_png(header(bits, 0, size=numbers.shape[::-1]), chunk(b"IDAT", pixels))


def gray_tiff(numbers: np.ndarray, bits: int) -> bytes:
    """Return a TIFF of one strip with these numbers, of 1 to 16 bits."""
    height, width = numbers.shape
    strip = b"".join(packed(numbers, bits))
    strip += b"\0" * (len(strip) % 2)
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: len(strip)}
    # Pillow reads 12 bits of little-endian files only
    order = "<" if bits == 12 else ">"
    entries = b"".join(struct.pack(f"{order}HHIHH", tag, 3, 1, value, 0) for tag, value in tags.items())
    start, count = struct.pack(f"{order}I", 8 + len(strip)), struct.pack(f"{order}H", len(tags))
    return (b"II*\0" if order == "<" else b"MM\0*") + start + strip + count + entries + bytes(4)


def pgm(numbers: np.ndarray, most: int, *, is_text: bool = False) -> bytes:
    height, width = numbers.shape
    head = f"P{2 if is_text else 5} {width} {height} {most}\n".encode()
    if is_text:
        return head + " ".join(map(str, numbers.ravel().tolist())).encode()
    return head + numbers.astype(np.uint8 if most < 256 else ">u2").tobytes()


def mask_options(**options: object) -> ImageOptions:
    return ImageOptions(channels=1, mask=True, **options)


TWELVE, SIXTEEN = small(34) * 117 % 4096, small(34) * 1871
BYTES, BITS = small(31).astype(np.uint8), small(1).astype(bool)
MASKS = {
    **{f"PNG, {bits} bits": (gray_png(small(2**bits - 1), bits), small(2**bits - 1)) for bits in (1, 2, 4)},
    **{f"{name}, 8 bits": (saved(BYTES, name), BYTES) for name in ("PNG", "TIFF", "BMP")},
    **{f"{name}, bilevel": (saved(BITS, name), BITS) for name in ("PNG", "TIFF", "BMP", "PPM")},
    **{f"TIFF, {bits} bits": (gray_tiff(small(2**bits - 1), bits), small(2**bits - 1)) for bits in (2, 4)},
    **{f"PGM, {most}": (pgm(small(most), most), small(most)) for most in (1, 2, 6, 20, 33, 254, 255)},
    **{f"PGM in text, {most}": (pgm(small(most), most, is_text=True), small(most)) for most in (2, 20, 255)},
    **{f"PGM, {most}": (pgm(TWELVE % (most + 1), most), TWELVE % (most + 1)) for most in (256, 1023, 4095)},
    "PGM, 65535": (pgm(SIXTEEN, 65535), SIXTEEN),
    "PGM in text, 1023": (pgm(TWELVE % 1024, 1023, is_text=True), TWELVE % 1024),
    "TIFF, 12 bits": (gray_tiff(TWELVE, 12), TWELVE),
    "TIFF, 16 bits": (gray_tiff(SIXTEEN, 16), SIXTEEN),
}


@pytest.mark.parametrize("value", [8, 16, "keep"])
@pytest.mark.parametrize(("data", "numbers"), MASKS.values(), ids=MASKS)
def test_the_numbers_of_a_mask_are_stored_as_they_are(data, numbers, value):
    if value == 8 and Image.open(io.BytesIO(data)).mode.startswith("I"):
        with pytest.raises(ImageError, match=r"at most 8 bits; mask_depth=16 allows 16"):
            normalize(data, mask_options())
        return
    with Image.open(io.BytesIO(normalize(data, mask_options(depth=value)).data)) as image:
        assert image.mode == ("L" if value == 8 else "I;16")
        assert np.array_equal(np.asarray(image), numbers)


def test_every_number_of_every_pgm_is_exact():
    for most in [*range(1, 256), 257, 1000, 12345, 65534]:
        numbers = np.unique(np.linspace(0, most, 300).astype(np.uint16))[np.newaxis]
        found = normalize(pgm(numbers, most), mask_options(depth=16)).data
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(found))), numbers), most


@pytest.mark.parametrize("most", [2, 1023])
def test_a_number_above_that_of_white_is_damage(most):
    numbers = small(most)
    numbers[2, 2] = most + 1
    with pytest.raises(ImageError, match=f"has values above {most}, the largest according to its header"):
        normalize(pgm(numbers, most), mask_options(depth=16))


@pytest.mark.parametrize("value", [8, 16, "keep"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("JPEG", {"quality": 100}),
        ("JPEG2000", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {"compression": "jpeg"}),
    ],
)
def test_a_mask_in_a_lossy_format_is_rejected(name, options, value):
    with pytest.raises(ImageError, match="does not keep the numbers of a mask; save masks as PNG") as found:
        normalize(saved(small(1).astype(np.uint8), name, **options), mask_options(depth=value))
    assert found.value.reason == "unsupported"


# Images and masks of one size


def turned(values: np.ndarray, orientation: int) -> np.ndarray:
    """Return the upright pixels of an EXIF orientation, written out independently of the build."""
    return {
        1: values,
        2: np.fliplr(values),
        3: np.rot90(values, 2),
        4: np.flipud(values),
        5: values.swapaxes(0, 1),
        6: np.rot90(values, -1),
        7: np.rot90(values, 2).swapaxes(0, 1),
        8: np.rot90(values),
    }[orientation]


def write_pair(root, image: bytes, mask: bytes) -> None:
    for folder, data in (("images", image), ("masks", mask)):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "a.png").write_bytes(data)
    (root / "pairs.csv").write_text("image,outline\nimages/a.png,masks/a.png\n")


def from_folder(root, options: ImageOptions, tmp_path):
    source = ImageFolder(root, options)
    listing = source.listing()
    return source.read(listing.rows(np.array([0])), listing.schema)[0]


def from_table(root, options: ImageOptions, tmp_path):
    table = Table(root / "pairs.csv", options, ColumnRoles(images=("image",), masks=("outline",)))
    (tmp_path / "staged").mkdir(exist_ok=True)
    reader = table.stage(tmp_path / "staged")
    listing = reader.listing()
    return reader.read(listing.rows(np.array([0])), listing.schema)[0]


def decoded(found: Accepted) -> list[np.ndarray]:
    return [np.asarray(Image.open(io.BytesIO(data))) for data in found.values[:2]]


BOTH = pytest.mark.parametrize("read", [from_folder, from_table], ids=["folder", "table"])


@BOTH
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("view", ["of the file", "upright", "with a tag of its own"])
def test_a_mask_is_turned_like_its_image_unless_it_is_upright(view, orientation, kind, read, tmp_path):
    if orientation < 5 and view != "with a tag of its own":
        pytest.skip("without a tag, its size does not show the view")
    mask = small(31, WIDTH, HEIGHT) if view == "upright" else small(31)
    tag = orientation if view == "with a tag of its own" else 1
    write_pair(tmp_path, saved(PHOTO, kind, orientation), saved(mask.astype(np.uint8), kind, tag))
    found = read(tmp_path, ImageOptions(), tmp_path)
    photo, numbers = decoded(found)
    assert np.array_equal(photo, turned(PHOTO, orientation))
    assert np.array_equal(numbers, mask if view == "upright" else turned(mask, orientation))
    assert found.conversions.count("orientation applied") == (1 if view == "upright" else 2)


@BOTH
def test_a_turned_mask_is_resized_like_its_image(read, tmp_path):
    photo, mask = np.zeros((20, 34, 3), np.uint8), small(31, 20, 34).astype(np.uint8)
    write_pair(tmp_path, saved(photo, "JPEG", 6), png(mask[:, :, np.newaxis].astype(np.uint16)))
    options = ImageOptions(mask_depth=16, resize="short=10")
    photo, numbers = decoded(read(tmp_path, options, tmp_path))
    assert photo.shape == (17, 10, 3)
    nearest = Image.fromarray(turned(mask, 6)).resize((10, 17), Image.Resampling.NEAREST)
    assert np.array_equal(numbers, nearest)


@BOTH
@pytest.mark.parametrize("orientation", TURNS)
def test_a_mask_that_may_belong_to_both_views_is_rejected_until_the_tag_is_gone(orientation, read, tmp_path):
    is_sideways = orientation >= 5
    photo = PHOTO[:, :HEIGHT] if is_sideways else PHOTO
    mask = small(31, HEIGHT, photo.shape[1]).astype(np.uint8)
    write_pair(tmp_path, saved(photo, orientation=orientation), saved(mask))
    found = read(tmp_path, ImageOptions(), tmp_path)
    assert isinstance(found, Rejected)
    assert found.reason == "mismatch"
    assert f"{photo.shape[1]} x 5 pixels fit its image both before and after" in found.detail
    assert "exiftool -Orientation= " in found.detail
    write_pair(tmp_path, saved(photo), saved(mask))
    kept_photo, numbers = decoded(read(tmp_path, ImageOptions(), tmp_path))
    assert np.array_equal(kept_photo, photo)
    assert np.array_equal(numbers, mask)


@BOTH
@pytest.mark.parametrize("check", ["decode", "none"])
@pytest.mark.parametrize("resize", [None, "4x4"])
def test_a_mask_of_another_size_is_rejected_with_both_sizes(resize, check, read, tmp_path):
    if check == "none" and resize:
        return
    write_pair(tmp_path, saved(PHOTO), saved(small(31, 3, 4).astype(np.uint8)))
    one = read(tmp_path, ImageOptions(check=check, resize=resize), tmp_path)
    assert (one.reason, one.detail.split(": ")[-1]) == ("mismatch", "4 x 3 pixels, but its image has 7 x 5")


def test_of_several_images_a_mask_must_fit_one_and_in_one_way(tmp_path):
    files = {
        "small.png": saved(PHOTO[:3, :4]),
        "plain.png": saved(PHOTO),
        "turned.png": saved(PHOTO, orientation=6),
        "mask.png": saved(small(31).astype(np.uint8)),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "t.csv").write_text(
        "left,right,mask\nsmall.png,plain.png,mask.png\nsmall.png,turned.png,mask.png\n"
        "plain.png,turned.png,mask.png\nsmall.png,small.png,mask.png\n"
    )
    table = Table(tmp_path / "t.csv", columns=ColumnRoles(images=("left", "right"), masks=("mask",)))
    (tmp_path / "staged").mkdir()
    reader = table.stage(tmp_path / "staged")
    listing = reader.listing()
    rows = reader.read(listing.rows(np.arange(4)), listing.schema)
    masks = [np.asarray(Image.open(io.BytesIO(row.values[2]))) for row in rows[:2]]
    assert np.array_equal(masks[0], small(31))
    assert np.array_equal(masks[1], turned(small(31), 6))
    assert rows[2].detail.startswith("mask: 7 x 5 pixels fit its image both before and after")
    assert rows[3] == Rejected(Reason.MISMATCH, "mask: 7 x 5 pixels, but its image has 4 x 3")


def test_images_and_masks_inside_of_a_table_are_compared_too(tmp_path):
    mask = small(31).astype(np.uint8)
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    images = pa.array([{"bytes": saved(PHOTO, orientation=8), "path": None}], kind)
    masks = pa.array([{"bytes": saved(mask), "path": None}], kind)
    pa.parquet.write_table(pa.table({"image": images, "mask": masks}), tmp_path / "t.parquet")
    table = Table(tmp_path / "t.parquet", columns=ColumnRoles(images=("image",), masks=("mask",)))
    (tmp_path / "staged").mkdir()
    reader = table.stage(tmp_path / "staged")
    listing = reader.listing()
    (found,) = reader.read(listing.rows(np.array([0])), listing.schema)
    assert np.array_equal(decoded(found)[1], turned(mask, 8))


def test_a_build_rejects_masks_that_do_not_fit_and_verifies(tmp_path, quiet_build, log):
    root = tmp_path / "data"
    write_pair(root, saved(PHOTO, orientation=6), saved(small(31).astype(np.uint8)))
    (root / "images/b.png").write_bytes(saved(PHOTO))
    (root / "masks/b.png").write_bytes(saved(small(31, 3, 4).astype(np.uint8)))
    manifest = quiet_build(ImageFolder(root), tmp_path / "out", options=Options(max_rejected="50%"))
    assert manifest.totals.reasons["rejected"] == {"mismatch": 1}
    (path,) = (tmp_path / "out").glob("rejected-*.jsonl")
    reject = json.loads(path.read_text())
    assert (reject["key"], reject["reason"]) == ("images/b.png", "mismatch")
    assert reject["detail"] == "mask: 4 x 3 pixels, but its image has 7 x 5"
    assert verify(tmp_path / "out", decode=True)


# White of images with more than 8 bits


@pytest.mark.parametrize("value", [16, "keep"])
def test_white_is_white_whatever_the_bits_of_a_file(value):
    """As of files with 8 bits, of which 255 becomes 65535."""
    options = ImageOptions(channels=1, depth=value)
    twelve = np.array([[0, 1, 2048, 4094, 4095]], np.uint16)
    wanted = np.rint(twelve * (65535 / 4095)).astype(np.uint16)
    for data in (gray_tiff(twelve, 12), pgm(twelve, 4095)):
        found = np.asarray(Image.open(io.BytesIO(normalize(data, options).data)))
        assert np.array_equal(found, wanted)
    sixteen = np.array([[0, 1, 4095, 65535]], np.uint16)
    found = np.asarray(Image.open(io.BytesIO(normalize(gray_tiff(sixteen, 16), options).data)))
    assert np.array_equal(found, sixteen)
