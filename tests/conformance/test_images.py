"""How the pixels of images and masks are stored: kept bytes, conversions, and files that are rejected."""

import itertools
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from tests.conformance.calls import images, table
from tests.conformance.inputs import HF_IMAGE, Link, jpeg, picture, pixels, png
from tests.conformance.rows import refused, row, stored
from tests.conformance.runner import check
from tests.conformance.test_annotations import turned, with_tag
from tests.pictures import image_file
from tests.pixels.corpus import tiffs
from tests.pixels.corpus.kind import chunk
from tests.pixels.corpus.moving import DEEP_AVIF, HEIF_BITS, deep_heif
from tests.pixels.corpus.pngs import header
from tests.pixels.corpus.pngs import png as plain_png
from tests.pixels.corpus.tiffs import BANDS, Page, tiff
from tfshards.schemas import BuildError, InputError, OptionsError

RGB, GRAY = pixels(1), pixels(1, 1)
HIGH, WIDE = GRAY.shape
RGBA = np.dstack([RGB, np.where(GRAY > 127, 255, 0).astype(np.uint8)])
WHITE = np.where(RGBA[..., 3:] == 255, RGB, 255).astype(np.uint8)
DEEP = (GRAY.astype(np.uint16) << 8) + np.arange(GRAY.size, dtype=np.uint16).reshape(GRAY.shape)
FLAT = np.full((8, 12, 3), 128, np.uint8)
LUMA = ((RGB.astype(int) @ [19595, 38470, 7471] + 0x8000) >> 16).astype(np.uint8)
AGAIN = {"re-encoded": 1}


def resized(array, wide, high):
    return np.asarray(Image.fromarray(array).resize((wide, high), Image.Resampling.LANCZOS))


def pic(name, file, wanted, conversions=None, features="", **options):
    """Return a row of one picture, of which the file's name or its content is given."""
    path, data = file if isinstance(file, tuple) else ("a.png", file)
    return row(name, {f"in/{path}": data}, images(**options), stored({"train": {path: {"image": wanted}}},
        conversions=conversions or {}, features={"image": features} if features else {}))  # fmt: skip


GRAY_16 = {"depth": 16, "channels": 1}


def rejected(name, path, data, reason, **options):
    """Return a row of a sound picture and one that is rejected."""
    sound, seen = (picture(DEEP), DEEP) if options == GRAY_16 else (9, 9)
    return row(f"rejected, {name}", {f"in/{path}": data, "in/z.png": sound},
    images(max_rejected="50%", **options),
               stored({"train": {"z.png": {"image": seen}}}, rejected={reason: 1}))  # fmt: skip


def palette(array, colors=(9, 9, 9, 200, 0, 0, 0, 200, 0, 5, 6, 7)):
    found = Image.fromarray(array).convert("P")
    found.putpalette([*colors])
    return found


def packed(numbers, bits):
    """Return rows of numbers of some bits, each padded to whole bytes."""
    size = -(-numbers.shape[1] * bits // 8)
    texts = ("".join(f"{number:0{bits}b}" for number in line) for line in numbers.tolist())
    return [int(text.ljust(8 * size, "0"), 2).to_bytes(size, "big") for text in texts]


def plain(samples, bits, *chunks):
    """Return a PNG of one to four channels, whose rows have no filter."""
    high, wide, channels = np.atleast_3d(samples).shape
    lines = packed(samples.reshape(high, wide * channels), bits)
    data = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + line for line in lines)))
    return plain_png(header(bits, {1: 0, 2: 4, 3: 2, 4: 6}[channels], size=(wide, high)), *chunks, data)


def gray_tiff(numbers, bits):
    """Return a TIFF of one strip."""
    (high, wide), strip = numbers.shape, b"".join(packed(numbers, bits))
    strip += b"\0" * (len(strip) % 2)
    tags = {256: wide, 257: high, 258: bits, 259: 1, 262: 1, 273: 8, 277: 1, 278: high, 279: len(strip)}
    # Pillow reads 12 bits of little-endian files only
    order = "<" if bits == 12 else ">"
    entries = b"".join(struct.pack(f"{order}HHIHH", tag, 3, 1, value, 0) for tag, value in tags.items())
    start, count = struct.pack(f"{order}I", 8 + len(strip)), struct.pack(f"{order}H", len(tags))
    return (b"II*\0" if order == "<" else b"MM\0*") + start + strip + count + entries + bytes(4)


def pgm(numbers, most):
    head = b"P5 %d %d %d\n" % (*numbers.shape[::-1], most)
    return head + numbers.astype(np.uint8 if most < 256 else ">u2").tobytes()


def reduced(name, path, data, wanted, conversion, *names):
    """Return a row of a picture that loses bits, of which the build warns."""
    return row(name, {f"in/{path}": data}, images(), stored({"train": {path: {"image": wanted}}},
               conversions={conversion: 1, "re-encoded": 1}, warns=names))  # fmt: skip


FEW = GRAY % 4
TWELVE, COLORS = DEEP >> 4, np.dstack([DEEP, DEEP ^ 0xF0F, ~DEEP])
CLEAR = plain(DEEP, 16, chunk(b"tRNS", DEEP[0, 0].astype(">u2").tobytes()))
LONG = np.asarray(Image.fromarray(DEEP.astype(np.float32)).resize((9, 4), Image.Resampling.LANCZOS))
FLOATS = np.array([[0, 1, 1, 0]], np.float32)
PIXELS = [
    pic("PNG is kept", png(1), png(1), features="image uint8 ? ? 3"),
    pic("RGBA is kept with 4 channels", picture(RGBA), picture(RGBA), channels=4,
        features="image uint8 ? ? 4"),
    pic("gray is kept with 1 channel", picture(GRAY), picture(GRAY), channels=1,
        features="image uint8 ? ? 1"),
    pic("16 bits are kept", picture(DEEP), picture(DEEP), depth=16, channels=1,
        features="image uint16 ? ? 1"),
    pic("16 bits of TIFF are kept", ("a.tif", picture(DEEP, ".tif")), DEEP, AGAIN, depth=16, channels=1),
    pic("8 bits become 16", picture(GRAY), GRAY.astype(np.uint16) * 257, AGAIN | {"8 bits to 16": 1},
        depth=16, channels=1),
    pic("12 bits of .pgm as 16", ("a.pgm", pgm(TWELVE, 4095)), np.rint(TWELVE * (65535 / 4095)).astype(
        np.uint16), AGAIN, depth=16, channels=1),
    rejected("12 bits of .tif", "a.tif", gray_tiff(TWELVE, 12), "unsupported", **GRAY_16),
    pic("16 bits of big-endian TIFF", ("a.tif", gray_tiff(DEEP, 16)), DEEP, AGAIN, depth=16,
        channels=1),
    pic("color as gray of 16 bits", png(1), LUMA.astype(np.uint16) * 257, AGAIN | {"colour to grey": 1,
        "8 bits to 16": 1}, depth=16, channels=1),
    *(pic(f"16 bits turned by {tag}", with_tag(tag, DEEP), turned(DEEP, tag),
        AGAIN | {"orientation applied": 1}, depth=16, channels=1) for tag in range(2, 9)),
    pic("16 bits resized", picture(DEEP), np.rint(LONG.clip(0, 65535)).astype(np.uint16),
        AGAIN | {"resized": 1}, resize="4x9", depth=16, channels=1),
    pic("0 is white in 16 bits", ("a.tif", tiff(Page(DEEP, 0))), 65535 - DEEP, AGAIN, channels=1, depth=16),
    *(pic(f"HEIC of {bits} bits, gray", ("a.heic", deep_heif("I;16", bits)),
        tiffs.DEEP >> 16 - bits << 16 - bits, AGAIN, channels=1, depth=16) for bits in HEIF_BITS),
    reduced("transparency", "a.png", picture(RGBA), WHITE, "alpha over white", "a.png", "channels=4"),
    reduced("gray of 16 bits", "a.png", picture(DEEP), GRAY, "16 bits to 8", "a.png", "depth=16"),
    reduced("color of 16 bits", "a.png", plain(COLORS, 16), (COLORS >> 8).astype(np.uint8),
        "16 bits of color to 8", "a.png", "build arrays"),
    pic("pixels of one channel", png(1), b"P5 %05d %05d 255\n" % (WIDE, HIGH) + LUMA.tobytes(),
        AGAIN | {"colour to grey": 1}, format="pixels", channels=1),
    pic("for training", picture(FLAT), FLAT[:5, :8], AGAIN | {"resized": 1}, for_training=4),
    pic("no side vanishes", picture(np.tile(FLAT[:3], (1, 9, 1))), FLAT[:1, :10], AGAIN | {"resized": 1},
        resize="long=10"),
    pic("exact sizes also grow", picture(FLAT), resized(FLAT, 30, 20), AGAIN | {"resized": 1},
        resize="20x30"),
    pic("short side", picture(FLAT), resized(FLAT, 6, 4), AGAIN | {"resized": 1}, resize="short=4"),
    pic("long side", picture(FLAT), resized(FLAT, 6, 4), AGAIN | {"resized": 1}, resize="long=6"),
    pic("a side that is short enough", png(1), png(1), resize="short=100"),
    pic("height and width", png(1), resized(RGB, 9, 4), AGAIN | {"resized": 1}, resize="4x9",
        features="image uint8 4 9 3"),
    pic("PNG becomes JPEG", picture(FLAT), FLAT, AGAIN, format="jpeg"),
    pic("pixels", png(1), b"P6 %05d %05d 255\n" % (WIDE, HIGH) + RGB.tobytes(), AGAIN, format="pixels"),
    pic("turned and resized", with_tag(6, RGB), resized(turned(RGB, 6), 4, 3),
        AGAIN | {"orientation applied": 1, "resized": 1}, resize="3x4"),
    *(rejected(f"too many pixels of {name}", f"a.{name}", data, "too large",
        max_pixels=pixels(9).shape[0] * pixels(9).shape[1]) for name, data in (("png", png(20)), ("jpg",
        jpeg(20)))),
    *(rejected(f"AVIF of {bits} bits, {colors}", "a.avif", (DEEP_AVIF / f"{colors}-{bits}.avif").read_bytes(),
        "unsupported", **GRAY_16) for colors, bits in (("gray", 10), ("gray", 12), ("rgb", 10),
        ("rgba", 12))),
    *(rejected(f"HEIC of {bits} bits, {mode}", "a.heic", deep_heif(mode, bits), "unsupported", **GRAY_16)
        for mode in ("RGB;16", "RGBA;16") for bits in HEIF_BITS),
    *(rejected(f"{name} of 16 bits", f"a{suffix}", data, "unsupported", **GRAY_16) for name, suffix,
        data in (("RGB", ".png", plain(COLORS, 16)), ("RGBA", ".png", plain(np.dstack([COLORS, DEEP]), 16)),
        ("gray and alpha", ".png", plain(COLORS[..., :2], 16)), ("PPM", ".ppm", b"P6 2 1 65535 " + bytes(12)),
        ("a transparent value", ".png", CLEAR), ("floats", ".tif", picture(FLOATS, ".tif")))),
    rejected("16 bits without the last rows", "a.png", plain(DEEP, 16)[:33] + plain(DEEP[:3], 16)[33:],
        "damaged", **GRAY_16),
]  # fmt: skip

# Masks

MASK = FEW
# -1 for pixels to ignore
UNKNOWN = -(MASK % 2).astype(np.int8)


def number_of(name):
    return int(name.rsplit(".", 1)[0][-1])


def mask_of(number):
    return pixels(number, 1) % 5


def pairs(*names, suffix=".png", **more):
    """Return pictures and masks below ``in``; names end with the number of what they show.

    ``{}`` in a name is the folder of the images or that of the masks.
    """
    folders = more.pop("folders", ("images", "masks"))
    files = {}
    for name in names:
        files[f"in/{name.format(folders[0])}.png"] = number_of(name + ".")
        files[f"in/{name.format(folders[1])}{suffix}"] = picture(
            mask_of(number_of(name + ".")), suffix.lower()
        )
    return files | {f"in/{name.replace('__', '/')}": content for name, content in more.items()}


def paired(*names, label=None):
    """Return the examples of such pictures."""
    return {
        f"{name.format('images')}.png": {
            "image": number_of(name + "."), "mask": mask_of(number_of(name + ".")),
            **({} if label is None else {"label": name.split("/")[label]}),
        } for name in names
    }  # fmt: skip


def one_mask(
    name, image, mask, wanted, suffix=".png", shown=None, features="mask uint8 ? ? 1", count=None, **options
):
    """Return a row of an image and its mask, by their encoded bytes."""
    values = {"image": image if shown is None else shown, "mask": wanted}
    return row(f"mask {name}", {"in/images/a.png": image, f"in/masks/a{suffix}": mask}, images(**options),
               stored({"train": {"images/a.png": values}}, features={"mask": features},
               conversions=count or {}))  # fmt: skip


def no_mask(name, mask, reason, suffix=".png", image=None, **options):
    files = {
        "in/images/a.png": image or png(1),
        f"in/masks/a{suffix}": mask,
        "in/images/z.png": 9,
        "in/masks/z.png": mask_of(9),
    }
    return row(f"mask rejected, {name}", files, images(max_rejected="50%", **options),
               stored({"train": {"images/z.png": {"image": 9, "mask": mask_of(9)}}},
               rejected={reason: 1}))  # fmt: skip


LEFT = "{folders}/{stem:-_left}_gt.png"
TURNED = {"orientation applied": 2, "re-encoded": 2}
# a mask, and a folder of masks, that are links out of the source
LINKED = pairs("{}/x/a1") | {"in/images/x/b2.png": 2, "in/masks/x/b2.png": Link("../../../b2.png"),
                             "b2.png": mask_of(2)}  # fmt: skip
FAR = {"in/images/x/a1.png": 1, "in/masks/x": Link("../../far"), "far/a1.png": mask_of(1)}
MASKS = [
    row("images and masks", pairs("{}/a1", "{}/b2"), images(), stored({"train": paired("{}/a1", "{}/b2")},
        warns=("'masks'",))),
    row("masks in split folders", pairs("train/{}/a1", "train/{}/b2", "Val/{}/c3"), images(),
        stored({"train": paired("train/{}/a1", "train/{}/b2"), "val": paired("Val/{}/c3")})),
    row("splits in folders of masks", pairs("{}/train/a1", "{}/val/c3"), images(),
        stored({"train": paired("{}/train/a1"), "val": paired("{}/val/c3")})),
    row("masks with classes", pairs("{}/cat/a1", "{}/dog/a2"), images(), stored({"train": paired("{}/cat/a1",
        "{}/dog/a2", label=1)}, "cat", "dog")),
    row("another name of masks", pairs("{}/a1", "{}/a2", folders=("images", "labels")),
        images(mask_dir="labels/"), stored({"train": paired("{}/a1", "{}/a2")})),
    row("masks with declared splits", pairs("{}/Fold/a1", "{}/Rest/a2"),
        images(split_folders={"train": "Fold", "test": "Rest"}), stored({"train": paired("{}/Fold/a1"),
        "test": paired("{}/Rest/a2")})),
    row("masks below images", {"in/cat/a1.png": 1, "in/dog/a2.png": 2, "in/seg/cat/a1.png": mask_of(1),
        "in/seg/dog/a2.png": mask_of(2)}, images(mask_dir="seg"), stored({"train": paired("cat/a1", "dog/a2",
        label=0)}, "cat", "dog")),
    row("TIFF as masks", pairs("{}/a1", "{}/a2", suffix=".tif"), images(), stored({"train": paired("{}/a1",
        "{}/a2")}, conversions={"re-encoded": 2})),
    row("masks by a template",
        {"in/images/x/a1_left.png": 1, "in/images/x/a2_left.png": 2, "in/gt/x/a1_gt.png": mask_of(1),
        "in/gt/x/a2_gt.png": mask_of(2), "in/gt/x/a1_color.png": 7}, images(mask_dir="gt",
        mask_name=LEFT, as_is=True), stored({"train": {f"images/x/a{n}_left.png": {"image": n,
        "mask": mask_of(n), "label": "x"} for n in (1, 2)}}, "x", skipped={"mask without an image": 1})),
    row("no pairs are wanted", pairs("{}/a1", "{}/a2"), images(split_folders={}),
        stored({"train": {f"{folder}/a{n}.png": {"image": n if folder == "images" else mask_of(n),
        "label": folder} for folder, n in itertools.product(("images", "masks"), (1, 2))}}, "images",
        "masks")),
    row("masks and images that are alone", pairs("{}/a1", "{}/b2") | {"in/images/lone3.png": 3,
        "in/masks/lone4.png": mask_of(4)}, images(max_rejected="50%"), stored({"train": paired("{}/a1",
        "{}/b2")}, rejected={"missing": 1}, skipped={"mask without an image": 1})),
    row("excluded images with their masks", pairs("{}/cat/a1", "{}/dog/a2"), images(exclude=["images/dog/"],
        as_is=True), stored({"train": paired("{}/cat/a1", label=1)}, "cat", skipped={"excluded": 1,
        "mask without an image": 1})),
    row("masks of lists", pairs("{}/a1", "{}/b2", **{"v.txt": "images/b2.png\n"}),
        images(split_list={"val": "v.txt"}), stored({"val": paired("{}/b2")}, skipped={"in no split list": 1,
        "mask without an image": 1, "not an image": 1})),
    *(row(f"masks of macOS {name}", {f"in/images/{image}1.png": 1, f"in/{folder}/{mask}.png": mask_of(1)},
        images(**options), stored({"train": {f"images/{image}1.png": {"image": 1, "mask": mask_of(1)}}}))
        for name, folder, image, mask, options in (("apart", "masks", "\xe9", "e\u03011", {}), ("composed",
        "masks", "e\u0301", "\xe91", {}), ("by a template", "gt", "e\u0301", "\xe91_gt", {"mask_dir": "gt",
        "mask_name": "{stem}_gt.png"}))),
    row("a linked mask outside", LINKED, images(as_is=True, max_rejected=1),
        stored({"train": paired("{}/x/a1", label=1)}, "x", rejected={"missing": 1},
        skipped={"link out of the root": 1})),
    row("a linked mask next to another of its name", LINKED | {"in/masks/x/b2.bmp": mask_of(2)},
        images(as_is=True), stored({"train": paired("{}/x/a1", "{}/x/b2", label=1)}, "x",
        conversions={"re-encoded": 1}, skipped={"link out of the root": 1})),
    row("a linked mask that is followed", LINKED, images(as_is=True, follow_links=True),
        stored({"train": paired("{}/x/a1", "{}/x/b2", label=1)}, "x")),
    row("a linked folder of masks", FAR, images(mask_dir="masks", as_is=True), refused(InputError,
        "mask_dir='masks'")),
    row("a linked folder of masks that is followed", FAR, images(mask_dir="masks", as_is=True,
        follow_links=True), stored({"train": paired("{}/x/a1", label=1)}, "x")),
    *(one_mask(f"{suffix} of 8 bits", png(1), picture(MASK, suffix), MASK, suffix, count=AGAIN)
        for suffix in (".bmp", ".tif")),
    one_mask("of one bit", png(1), picture(GRAY > 127), (GRAY > 127).astype(np.uint8), count=AGAIN),
    one_mask("of a palette", png(1), picture(palette(FEW)), FEW, count=AGAIN),
    row("masks of unchecked images", {"in/images/a.png": 1, "in/masks/a.png": 2}, images(check="none"),
        refused(OptionsError, "mask")),
    one_mask("PGM of 255", png(1), pgm(FEW, 255), FEW, ".pgm", count=AGAIN),
    *(one_mask(f"{suffix} of {bits} bits", png(1), data, GRAY % 2**bits, suffix, count=AGAIN)
        for bits in (2, 4) for suffix, data in ((".png", plain(GRAY % 2**bits, bits)), (".tif",
        gray_tiff(GRAY % 2**bits, bits)))),
    one_mask("TIFF of 16 bits", png(1), gray_tiff(DEEP, 16), DEEP, ".tif", features="mask uint16 ? ? 1",
        mask_depth=16, count=AGAIN),
    *(one_mask(f"where 0 is white, {bits} bits, {order}", png(1), tiff(Page(GRAY % 2**bits, 0, bits=bits),
        order=order), GRAY % 2**bits, ".tif", count=AGAIN) for bits in (1, 2, 4) for order in "<>"),
    *(one_mask(f"where 0 is white, {name}", png(1), tiff(page, order=order), page.numbers, ".tif",
        features=f"mask {'uint8' if depth == 8 else 'uint16'} ? ? 1", mask_depth=depth, count=AGAIN)
        for name, page, order, depth in (("8 bits", Page(GRAY, 0), "<", 8), ("8 bits, big-endian",
        Page(GRAY, 0), ">", 8), ("8 bits as 16", Page(GRAY, 0), "<", 16), ("16 bits", Page(DEEP, 0), "<",
        16))),
    *(one_mask(f"of signed numbers, {order}", png(1), tiff(Page(GRAY.view(np.int8) & 0x7F), order=order),
        GRAY & 0x7F, ".tif", count=AGAIN) for order in "<>"),
    one_mask("with overviews", png(1), tiff(Page(MASK), Page(MASK[::2], kind=1)), MASK, ".tif", count=AGAIN),
    one_mask("of 16 bits next to JPEG", jpeg(1), picture(DEEP), DEEP, features="mask uint16 ? ? 1",
        mask_depth=16),
    one_mask("of 16 bits", png(1), picture(DEEP), DEEP, features="mask uint16 ? ? 1", mask_depth=16),
    one_mask("of 8 bits as 16", png(1), picture(MASK), MASK.astype(np.uint16), features="mask uint16 ? ? 1",
        mask_depth=16, count=AGAIN),
    one_mask("PGM of 65535", png(1), pgm(DEEP, 65535), DEEP, ".pgm", features="mask uint16 ? ? 1",
        mask_depth=16, count=AGAIN),
    *(one_mask(f"turned by {tag}", with_tag(tag, RGB), picture(MASK), turned(MASK, tag), shown=turned(RGB,
        tag), count=TURNED) for tag in (5, 6, 7, 8)),
    one_mask("that is upright", with_tag(6, RGB), picture(turned(MASK, 6)), turned(MASK, 6), shown=turned(RGB,
        6), count={"orientation applied": 1, "re-encoded": 1}),
    one_mask("with a tag of its own", with_tag(3, RGB), with_tag(3, MASK), turned(MASK, 3), shown=turned(RGB,
        3), count=TURNED),
    one_mask("resized to the nearest", picture(np.repeat(np.repeat(RGB, 2, 0), 2, 1)),
        picture(np.repeat(np.repeat(MASK, 2, 0), 2, 1)), MASK, shown=resized(np.repeat(np.repeat(RGB, 2, 0),
        2, 1), WIDE, HIGH), features=f"mask uint8 {HIGH} {WIDE} 1", resize=f"{HIGH}x{WIDE}",
        count={"resized": 2, "re-encoded": 2}),
    no_mask("of 16 bits", picture(DEEP), "unsupported"),
    no_mask("of colors", png(1), "unsupported"),
    no_mask("of JPEG", picture(MASK, ".jpg"), "unsupported", ".jpg"),
    no_mask("of another size", picture(MASK[1:]), "mismatch"),
    no_mask("that may be turned or not", picture(MASK), "mismatch", image=with_tag(3, RGB)),
    no_mask("of PGM with another white", pgm(MASK, 254), "unsupported", ".pgm"),
    *(no_mask(f"of {name}", image_file(MASK, kind, **options), "unsupported", suffix) for name, kind, suffix,
        options in (("JPEG 2000", "JPEG2000", ".jp2", {}), ("WebP", "WEBP", ".webp", {"lossless": True}),
        ("JPEG in TIFF", "TIFF", ".tif", {"compression": "jpeg"}))),
    *(no_mask(f"with -1, {dtype}, {order}", tiff(Page(UNKNOWN.astype(dtype)), order=order), "unsupported",
        ".tif") for dtype in ("int8", "int16") for order in "<>"),
    *(no_mask(f"of {count} bands", BANDS[f"TIFF, {count} bands of 8 bits, photometric {kind}, {order}"],
        "unsupported", ".tif") for count, kind, order in ((2, 1, "little-endian"), (4, 2, "big-endian"),
        (5, 1, "big-endian"), (8, 2, "little-endian"))),
    no_mask("that is damaged", picture(MASK)[:-30], "damaged"),
]  # fmt: skip


def in_table(pair):
    """Return the row of an image and its mask as a row of a table."""
    files, call, expected = pair.values
    lines = "".join(["file_name,mask_file_name\n", ",".join(name[3:] for name in files), "\n"])
    declared = table("in/in.csv", {"mask_file_name": "mask"}, **call.given)
    return row(f"{pair.id} in a table", {**files, "in/in.csv": lines}, declared, expected)


PAIRS = [in_table(pair) for pair in MASKS if pair.id.startswith("mask_") and len(pair.values[0]) == 2]

LEFT_RIGHT = {"left": "image", "right": "image", "mask": "mask"}
SEVERAL = {"in/small.png": RGB[:3, :4], "in/plain.png": RGB, "in/turned.png": with_tag(6, RGB),
           "in/mask.png": MASK}  # fmt: skip


def of_several(name, left, right, expected):
    """Return a row of a table with two images and a mask that fits one of them, or none."""
    lines = f"left,right,mask,z\n{left},{right},mask.png,1\nturned.png,small.png,mask.png,2\n"
    second = {"left": turned(RGB, 6), "right": RGB[:3, :4], "mask": turned(MASK, 6), "z": 2}
    splits = {"train": {left: expected | {"z": 1}} if expected else {}}
    splits["train"]["turned.png"] = second
    return row(name, SEVERAL | {"in/t.csv": lines}, table("in/t.csv", LEFT_RIGHT, max_rejected="50%"),
               stored(splits, rejected={} if expected else {"mismatch": 1}, conversions=TURNED))  # fmt: skip


def structs(*data):
    return [{"bytes": each, "path": None} for each in data]


def of_columns(name, data, expected, **roles):
    """Return a row of a Parquet file with a photo, and with another image."""
    columns = {"image": pa.array(structs(png(1)), HF_IMAGE), "other": pa.array(structs(data), HF_IMAGE)}
    return row(name, {"in/t.parquet": columns}, table("in/t.parquet", roles), expected)


SHOWN = {"0": {"image": png(1), "other": MASK}}
DOUBTFUL = [
    of_several("a mask of the right image", "small.png", "plain.png", {"left": RGB[:3, :4], "right": RGB,
        "mask": MASK}),
    of_several("a mask of no image", "small.png", "small.png", None),
    of_several("a mask of two views", "plain.png", "turned.png", None),
    of_columns("a column that may be masks", picture(MASK), refused(InputError, "{'other': 'image'}",
        "{'other': 'mask'}", "{'other': 'value'}")),
    *(of_columns(f"a column declared as {role}", picture(MASK), stored({"train": SHOWN}),
        other=role) for role in ("mask", "image")),
    of_columns("a column of gray JPEG", picture(FLAT[..., 0], ".jpg"), stored({"train": {"0": {
        "image": png(1), "other": FLAT[..., 0]}}}), other="image"),
    row("a column of paths that may be masks", {"in/a.png": 1, "in/m.png": MASK,
        "in/t.csv": "file_name,seg_file_name\na.png,m.png\n"}, table("in/t.csv"), refused(InputError,
        "{'seg_file_name': 'mask'}")),
]  # fmt: skip

WRONG = {
    "depth 12": {"depth": 12}, "channels 2": {"channels": 2}, "any channels": {"channels": "keep"},
    "all frames": {"animation": "all"}, "another format": {"format": "tiff"},
    "another check": {"check": "all"}, "any depth": {"depth": "keep"},
    "a size of one number": {"resize": "256"}, "no pixels": {"resize": "short=0"},
    "quality 0": {"jpeg_quality": 0}, "quality 101": {"jpeg_quality": 101},
    "no pixels allowed": {"max_pixels": 0},
    "JPEG of 4 channels": {"format": "jpeg", "channels": 4},
    "quality of PNG": {"format": "png", "jpeg_quality": 90},
    "quality of pixels": {"format": "pixels", "jpeg_quality": 90},
    "16 bits of JPEG": {"depth": 16, "format": "jpeg"},
    "16 bits of pixels": {"depth": 16, "format": "pixels"},
    "no height": {"resize": "10x0"}, "a side of seven digits": {"resize": "1234567x1"},
    "a size beyond the pixels": {"resize": "100x100", "max_pixels": 9999},
    "a word as quality": {"jpeg_quality": "best"},
    "pixels with alpha": {"format": "pixels", "channels": 4},
    "16 bits and a quality": {"depth": 16, "jpeg_quality": 90}, "mask depth 12": {"mask_depth": 12},
    "a mask depth without masks": {"mask_depth": 16}, "training with 0": {"for_training": 0},
    "training with too much": {"for_training": 65_501},
    "training with a size": {"for_training": 9, "resize": "short=9"},
    "training with PNG": {"for_training": 9, "format": "png"},
    "training with alpha": {"for_training": 9, "channels": 4},
    **{f"{name} of unchecked images": {"check": "none", name: value} for name, value in {"channels": 1,
        "resize": "short=9", "format": "png", "depth": 16, "animation": "first", "max_pixels": 9}.items()},
}  # fmt: skip
REFUSALS = [
    *(row(name, {"in/a.png": 1}, images(**options), refused(OptionsError)) for name,
        options in WRONG.items()),
    row("two images of a mask", pairs("{}/a1") | {"in/images/a1.bmp": picture(RGB, ".bmp")}, images(),
        refused(InputError, "a1")),
    row("two images of a mask of macOS", pairs("{}/\xe91") | {"in/images/e\u03011.png": 1}, images(),
        refused(InputError, "have one mask", "e\u0301")),
    row("two masks of an image", pairs("{}/a1") | {"in/masks/a1.bmp": picture(MASK, ".bmp")}, images(),
        refused(InputError, "a1")),
    row("masks of no image", {"in/images/a1.png": 1, "in/masks/b1.png": MASK}, images(), refused(BuildError,
        "masks")),
    *(row(f"a template with {name}", pairs("{}/a1"), images(mask_dir="masks", mask_name=template),
        refused(OptionsError, "must have {stem}")) for name, template in {"a path above": "../{stem}.png",
        "a path above folders": "{folders}/../../{stem}.png", "an absolute path": "/{folders}/{stem}.png",
        "a conversion": "{stem!r}.png", "digits": "{stem:06d}.png",
        "an ending of folders": "{folders:-a}/{stem}.png", "no stem": "{folders}.png",
        "the stem twice": "{stem}/{stem}.png", "no suffix": "{folders}/{stem}",
        "another suffix": "{folders}/{stem}.txt", "an open brace": "{stem.png"}.items()),
    row("a template that fits no mask", {"in/a1.png": 1, "in/masks/a1.png": MASK}, images(mask_dir="masks",
        mask_name="{folders}/{stem}_x.png"), refused(BuildError, "there is no file")),
    row("color as 16 bits", {"in/a.png": 1}, images(depth=16), refused(BuildError, "a.png")),
    row("no folder of masks", pairs("{}/a1"), images(mask_dir="seg"), refused(InputError, "seg")),
    *(row(f"{name} as masks", pairs("{}/a1"), images(mask_dir=given), refused(OptionsError, "mask_dir",
        "table")) for name, given in {"the folder itself": ".", "a folder outside": "../seg",
        "an absolute path": "/seg", "no folder": "", "a folder outside by a detour": "a/../../seg"}.items()),
    row("a URL as masks", pairs("{}/a1"), images(mask_dir="s3://b/seg"), refused(InputError, "seg")),
    row("a template without masks", pairs("{}/a1"), images(mask_name=LEFT), refused(OptionsError)),
    row("a template with another field", pairs("{}/a1"), images(mask_dir="masks", mask_name="{x}.png"),
        refused(OptionsError, "{x}.png")),
]  # fmt: skip


@pytest.mark.parametrize(("files", "call", "expected"), [*PIXELS, *MASKS, *PAIRS, *DOUBTFUL, *REFUSALS])
def test_images_and_masks_become_what_they_show_or_are_refused(files, call, expected):
    check(files, call, expected)
