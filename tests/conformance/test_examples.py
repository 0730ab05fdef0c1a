"""Examples of any Python iterable: values of every type, keys, splits, and what cannot be stored."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image

from tests.conformance.calls import examples
from tests.conformance.inputs import encoded, jpeg, pixels, png
from tests.conformance.rows import refused, row, stored
from tests.conformance.runner import check
from tfshards.schemas import InputError, OptionsError


def numbered(*values, split="train"):
    """Return examples whose keys count them."""
    return {split: {f"{number:010d}": each for number, each in enumerate(values)}}


def of(name, *values, wanted=None, feature=None, roles=None, count=None):
    """Return a row of one value in each example."""
    found = numbered(*({"x": each} for each in (wanted or values)))
    return row(name, {}, examples(lambda: [{"x": each} for each in values], roles),
               stored(found, features={"x": feature} if feature else {},
               conversions=count or {}))  # fmt: skip


PETS = [{"image": png(n), "label": ("cat", "dog")[n % 2], "n": n, "x": n / 4} for n in range(5)]
PET_VALUES = [{"image": n, "label": ("cat", "dog")[n % 2], "n": n, "x": np.float64(n / 4)} for n in range(5)]
PET = stored(
    numbered(*PET_VALUES),
    "cat",
    "dog",
    features={"label": "label int64", "n": "int int64", "x": "raw float64"},
)
KNOWN = {"known by content": 2}
BITMAP, AGAIN = encoded(".bmp", pixels(2)), {"re-encoded": 2, **KNOWN}
RAW, LISTS = [np.arange(6, dtype=">i2").reshape(2, 3), np.ones((2, 3), ">i2")], [[1], [2, 3]]
PARTS = [{"x": n, "part": "odd" if n % 2 else "even"} for n in range(4)]
NOT_BY_CONTENT = stored(numbered(*PET_VALUES), "cat", "dog", conversions={"known by content": 5})
ROWS = [
    row("a list", {}, examples(lambda: PETS), NOT_BY_CONTENT),
    row("a generator", {}, examples(lambda: (each for each in PETS)), NOT_BY_CONTENT),
    row("a function", {}, examples(lambda: lambda: iter(PETS)), NOT_BY_CONTENT),
    row("a frame", {}, examples(lambda: pd.DataFrame(PETS)), NOT_BY_CONTENT),
    row("pairs", {}, examples(lambda: [("b", {"n": 1}), ("a", {"n": 2})]), stored({"train": {"a": {"n": 2},
        "b": {"n": 1}}})),
    row("keys", {}, examples(lambda: [{"key": b"b\xff", "n": 1}, {"key": "a/é", "n": 2}]),
        stored({"train": {"b\udcff": {"n": 1}, "a/é": {"n": 2}}})),
    row("splits by name", {}, examples(lambda: {"train": [{"n": 1}, {"n": 2}], "val": [{"n": 3}]}),
        stored({"train": {"train/0000000000": {"n": 1}, "train/0000000001": {"n": 2}},
        "val": {"val/0000000000": {"n": 3}}})),
    row("a value that names the split", {}, examples(lambda: PARTS, {"part": "split"}),
        stored({"even": {f"{n:010d}": {"x": n} for n in (0, 2)}, "odd": {f"{n:010d}": {"x": n}
        for n in (1, 3)}})),
    row("no split of examples is wanted", {}, examples(lambda: [{"x": 1, "split": "a"}], {"": "split"}),
        stored(numbered({"x": 1, "split": "a"}))),
    row("class names", {}, examples(lambda: [{"label": "a"}, {"label": "b"}], class_names=["b", "a"]),
        stored(numbered({"label": "a"}, {"label": "b"}), "b", "a")),
    row("a declared label of examples", {}, examples(lambda: [{"label": n, "fine": n % 2} for n in range(3)],
        {"fine": "label", "label": "int"}), stored(numbered(*({"label": n, "fine": n % 2} for n in range(3))),
        features={"fine": "label int64"})),
    row("nested values", {}, examples(lambda: [{"a": {"b": {"c": "é"}, "d": (1, 2)}}]),
        stored(numbered({"a/b/c": "é", "a/d": np.array([1, 2])}))),
    row("rejected images are counted", {}, examples(lambda: [{"image": png(1)}, {"image": png(2)[:-30]}],
        max_rejected=0.5),
        stored(numbered({"image": 1}), rejected={"damaged": 1}, conversions={"known by content": 1})),
    of("arrays", *RAW, wanted=[each.astype("<i2") for each in RAW], feature="raw int16 2 3"),
    of("bytes", b"\0\1", bytearray(b"\xff"), wanted=[b"\0\1", b"\xff"], feature="bytes bytes"),
    of("truth", True, False, feature="raw bool"),
    of("whole and other numbers", 1, 0.5, feature="raw float64"),
    of("a bfloat16", ml_dtypes.bfloat16(1.5), ml_dtypes.bfloat16(-2), feature="raw bfloat16"),
    of("lists of any length", [1], [2, 3], roles={"x": "int"}, feature="int int64 ?"),
    of("lists of text", ["a"], ["b", "é"], feature="bytes bytes ?"),
    of("boxes", [[0.5, 1, 2, 3]], [], wanted=[np.array([[0.5, 1, 2, 3]], "f4"), np.zeros((0, 4), "f4")],
        feature="float float32 ? 4"),
    of("fixed lists as arrays", [1, 2], [3, 4], roles={"x": "raw"}, feature="raw int64 2"),
    of("encoded images", png(1), jpeg(2), feature="image uint8 ? ? 3", count=KNOWN),
    of("bitmaps", BITMAP, BITMAP, wanted=[pixels(2), pixels(2)], count=AGAIN),
    of("declared pixels", pixels(1), pixels(2), roles={"x": "image"}, count=KNOWN),
    of("pictures", Image.fromarray(pixels(1)), Image.fromarray(pixels(2)), wanted=[pixels(1), pixels(2)],
        count=KNOWN),
    of("images of Hugging Face", *({"bytes": png(n), "path": None} for n in (1, 2)), wanted=[1, 2],
        count=KNOWN),
    row("files", {"a.png": 1, "b.jpg": jpeg(2)},
        examples(lambda: [{"x": Path("a.png")}, {"x": Path("b.jpg")}]), stored(numbered({"x": 1},
        {"x": jpeg(2)}), conversions=KNOWN)),
    row("masks", {}, examples(lambda: [{"image": png(1), "m": pixels(1, 1) % 7}], {"m": "mask"}),
        stored(numbered({"image": 1, "m": pixels(1, 1) % 7}), features={"m": "mask uint8 ? ? 1"},
        conversions=KNOWN)),
]  # fmt: skip


def x(*values):
    return lambda: [{"x": each} for each in values]


REFUSALS = {
    "nothing": (list, {}), "tuples": (lambda: [(png(0), 1)], {}),
    "arrays by name": (lambda: {"x": np.ones(3)}, {}), "other names": (lambda: [{"x": 1}, {"y": 1}], {}),
    "other names later": (lambda: [{"x": 1}] * 100 + [{"y": 1}], {}),
    "other shapes": (x(np.ones(2), np.ones(3)), {}), "a fraction among integers": (x(*range(100), 0.5), {}),
    "text among numbers": (x([1], ["a"]), {}), "a missing value": (x(None), {}),
    "a missing value in a list": (x([[1, None]]), {}), "a list of images": (x([png(0)]), {}),
    "no values": (lambda: [{}], {}),
    "a missing cell": (lambda: pd.DataFrame({"y": pd.array([1, None], dtype="Int64")}), {}),
    "a folder as an image": (x(Path(".")), {}), "a device": (x(Path("/dev/zero")), {}),
    "a missing file": (x(Path("/none.png")), {}), "lists that differ": (x([[1], [1, 2]]), {}),
    "empty lists": (x([], []), {}), "numbers as an image": (x(np.ones((3, 3))), {"x": "image"}),
    "a negative label": (lambda: [{"label": -1}], {}),
    "a name twice": (lambda: [{"a": {"b": 1}, "a/b": 2}], {}),
    "a number as a key": (lambda: [(1, {"x": 1})], {}),
    "a key twice": (lambda: [("a", {"x": 1}), ("a", {"x": 2})], {}), "another kind": (x(0.5), {"x": "float"}),
    "an unknown value": (x(1), {"y": "int"}), "an unknown split": (x(1), {"part": "split"}),
}  # fmt: skip
WRONG = [
    *(row(name, {}, examples(source, roles), refused(InputError)) for name,
        (source, roles) in REFUSALS.items()),
    row("a path", {}, examples(lambda: "photos/"), refused(OptionsError)),
    row("an object", {}, examples(object), refused(OptionsError)),
    row("an unknown kind", {}, examples(x(1), {"x": "text"}), refused(OptionsError, None, "text")),
    row("two labels", {}, examples(x(1), {"x": "label", "y": "label"}), refused(OptionsError)),
    row("class names without a label", {}, examples(x(1), class_names=["a"]), refused(InputError)),
    row("options of images without images", {}, examples(x(1), resize="9x9"), refused(OptionsError, None,
        "images")),
]  # fmt: skip

ONE_KNOWN = {"known by content": 1}
MODES = {
    "gray": (Image.new("L", (9, 8), 77), np.full((8, 9), 77, np.uint8)),
    "bilevel": (Image.new("1", (9, 8), 1), np.full((8, 9), True)),
    "CMYK": (Image.new("CMYK", (9, 8), (255, 0, 0, 0)), np.full((8, 9, 3), (0, 255, 255), np.uint8)),
    "palette": (Image.new("RGB", (9, 8), (1, 2, 3)).quantize(2), np.full((8, 9, 3), (1, 2, 3), np.uint8)),
}
CHANGED = {name: {f"{name} to RGB": 1, "re-encoded": 1} for name in ("CMYK", "palette")}
DEEP = np.arange(8 * 9, dtype=np.uint16).reshape(8, 9, 1) * 900
MASKED = [{"image": png(1), "mask": Image.fromarray(pixels(1, 1) % 7)}]


def as_tagged(picture):
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.info["exif"] = exif.tobytes()
    return picture


PICTURES = [
    *(row(f"a picture of mode {name}", {}, examples(lambda picture=picture: [{"x": picture}]),
        stored(numbered({"x": wanted}), conversions=ONE_KNOWN | CHANGED.get(name, {}))) for name, (picture,
        wanted) in MODES.items()),
    row("a picture that is turned", {}, examples(lambda: [{"x": as_tagged(Image.fromarray(pixels(1)))}]),
        stored(numbered({"x": np.rot90(pixels(1), -1)}), conversions=ONE_KNOWN | {"orientation applied": 1,
        "re-encoded": 1})),
    row("deep pixels", {}, examples(lambda: [{"x": DEEP}], {"x": "image"}, depth=16, channels=1),
        stored(numbered({"x": DEEP[..., 0]}), conversions=ONE_KNOWN)),
    row("deep pixels of colors are numbers", {}, examples(lambda: [{"x": np.repeat(DEEP, 3, 2)}]),
        stored(numbered({"x": np.repeat(DEEP, 3, 2)}), features={"x": "raw uint16 8 9 3"})),
    row("deep pixels of colors as an image", {}, examples(lambda: [{"x": np.repeat(DEEP, 3, 2)}],
        {"x": "image"}), refused(InputError, "element-fault")),
    row("a picture that cannot be encoded", {}, examples(lambda: [{"x": Image.new("HSV", (4, 4))}]),
        refused(InputError, "element-fault")),
    row("a mask that nobody declared", {}, examples(lambda: MASKED), refused(InputError,
        "example-mask-unclear")),
    row("a mask that is an image", {}, examples(lambda: MASKED, {"mask": "image"}), stored(numbered({
        "image": 1, "mask": pixels(1, 1) % 7}), conversions={"known by content": 2})),
    row("a mask of another size", {}, examples(lambda: [{"image": png(n), "m": pixels(1, 1)} for n in (1,
        1, 2)], {"m": "mask"}, max_rejected=0.5), stored(numbered(*[{"image": 1, "m": pixels(1, 1)}] * 2),
        rejected={"mismatch": 1}, conversions={"known by content": 4})),
    row("a resized mask", {}, examples(lambda: [{"image": png(1), "m": np.full((6, 7), 5, np.uint8)}],
        {"m": "mask"}, resize="4x6"), stored(numbered({"image": np.asarray(Image.fromarray(pixels(1)).resize((
        6, 4), Image.Resampling.LANCZOS)), "m": np.full((4, 6), 5, np.uint8)}), conversions={"resized": 2,
        "re-encoded": 2, "known by content": 2})),
    row("a split without examples", {}, examples(lambda: {"train": [{"n": 1}], "test": []}),
        stored({"train": {"train/0000000000": {"n": 1}}}, warns=("'test'",))),
    row("tensors", {}, examples(lambda: [{"x": tf.constant([n, 1], tf.uint8), "t": tf.constant("é")} for n in
        (0, 1)]), stored(numbered(*({"x": np.array([n, 1], np.uint8), "t": "é"} for n in (0, 1))))),
    of("arrays of objects", np.array([1, 2], object), np.array([3], object), wanted=[[1, 2], [3]],
        feature="int int64 ?"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "call", "expected"), [*ROWS, *WRONG, *PICTURES])
def test_examples_become_what_they_hold_or_are_refused(files, call, expected):
    check(files, call, expected)
