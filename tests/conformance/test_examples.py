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


class MapStyle:
    """A dataset as PyTorch has them, which never raises IndexError."""

    def __len__(self):
        return len(PETS)

    def __getitem__(self, number):
        return PETS[number % len(PETS)]


BITMAP, AGAIN = encoded(".bmp", pixels(2)), {"re-encoded": 2}
RAW = [np.arange(6, dtype=">i2").reshape(2, 3), np.ones((2, 3), ">i2")]
IMAGE = {"x": "image"}
TWICE = np.asarray(Image.fromarray(pixels(1)).resize((14, 12), Image.Resampling.LANCZOS))
PARTS = [{"x": n, "part": "odd" if n % 2 else "even"} for n in range(4)]
OF_PETS = stored(numbered(*PET_VALUES), "cat", "dog")
ROWS = [
    row("a list", {}, examples(lambda: PETS), OF_PETS),
    row("a generator", {}, examples(lambda: (each for each in PETS)), OF_PETS),
    row("a function", {}, examples(lambda: lambda: iter(PETS)), OF_PETS),
    row("objects with a length", {}, examples(lambda: MapStyle()), OF_PETS),
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
    row("integers as keys", {}, examples(lambda: [{"n": 7, "x": 1}, {"n": 10, "x": 2}], {"n": "key"}),
        stored({"train": {"7": {"x": 1}, "10": {"x": 2}}})),
    row("no split of examples is wanted", {}, examples(lambda: [{"x": 1, "split": "a"}], {"split": "value"}),
        stored(numbered({"x": 1, "split": "a"}))),
    row("class names", {}, examples(lambda: [{"label": "a"}, {"label": "b"}], class_names=["b", "a"]),
        stored(numbered({"label": "a"}, {"label": "b"}), "b", "a")),
    row("a declared label of examples", {}, examples(lambda: [{"label": n, "fine": n % 2} for n in range(3)],
        {"fine": "label", "label": "value"}),
        stored(numbered(*({"label": n, "fine": n % 2} for n in range(3))),
        features={"fine": "label int64", "label": "int int64"})),
    row("examples without a class", {},
        examples(lambda: [{"label": each, "x": 1} for each in ("b", "", None)]),
        stored(numbered({"label": "b", "x": 1}, {"label": None, "x": 1}, {"label": None, "x": 1}), "b",
        warns=("without a class (-1): 2",))),
    row("the class -1", {}, examples(lambda: [{"label": n, "x": 1} for n in (-1, 3)]),
        stored(numbered({"label": -1, "x": 1}, {"label": 3, "x": 1}), warns=("without a class (-1): 1",))),
    row("a value is dropped", {}, examples(lambda: [{"x": 1, "y": object(), "z": {"a": 1}}],
        {"y": "drop", "z": "drop"}), stored(numbered({"x": 1}))),
    row("nested values", {}, examples(lambda: [{"a": {"b": {"c": "é"}, "d": (1, 2)}}]),
        stored(numbered({"a/b/c": "é", "a/d": np.array([1, 2])}))),
    row("rejected images are counted", {}, examples(lambda: [{"image": png(1)}, {"image": png(2)[:-30]}],
        max_rejected=0.5),
        stored(numbered({"image": 1}), rejected={"damaged": 1})),
    of("arrays", *RAW, wanted=[each.astype("<i2") for each in RAW], feature="raw int16 2 3"),
    of("bytes", b"\0\1", bytearray(b"\xff"), wanted=[b"\0\1", b"\xff"], feature="bytes bytes"),
    of("truth", True, False, feature="raw bool"),
    of("whole and other numbers", 0.5, 1, wanted=[0.5, 1.0], feature="raw float64"),
    of("a bfloat16", ml_dtypes.bfloat16(1.5), ml_dtypes.bfloat16(-2), feature="raw bfloat16"),
    of("lists of any length", [1], (2, 3), wanted=[[1], [2, 3]], feature="int int64 ?"),
    of("arrays of any length", np.arange(2, dtype="u1"), np.arange(3, dtype="u1"), roles={"x": "list"},
        feature="int uint8 ?"),
    of("lists of truth", [True], [False, True], feature="int bool ?"),
    of("lists of bfloat16", np.ones(2, ml_dtypes.bfloat16), roles={"x": "list"}, feature="float bfloat16 ?"),
    of("lists of whole and other numbers", [0.5], [], [1], wanted=[np.array([0.5], "f4"), np.array([], "f4"),
        np.array([1], "f4")], feature="float float32 ?"),
    of("lists of text", ["a"], ["b", "é"], feature="bytes bytes ?"),
    of("boxes", [[0.5, 1, 2, 3]], [], wanted=[np.array([[0.5, 1, 2, 3]], "f4"), np.zeros((0, 4), "f4")],
        feature="float float32 ? 4"),
    of("lists of text that may be empty", ["a"], [], feature="bytes bytes ?"),
    of("text in arrays", np.array(["a", "é"]), wanted=[["a", "é"]], feature="bytes bytes 2"),
    of("encoded images", png(1), jpeg(2), roles=IMAGE, feature="image uint8 ? ? 3"),
    of("encoded images as bytes", png(1), roles={"x": "value"}, feature="bytes bytes"),
    of("bitmaps", BITMAP, BITMAP, wanted=[pixels(2), pixels(2)], roles=IMAGE, count=AGAIN),
    of("declared pixels", pixels(1), pixels(2), roles={"x": "image"}),
    of("pictures", Image.fromarray(pixels(1)), Image.fromarray(pixels(2)), wanted=[pixels(1), pixels(2)],
        roles=IMAGE),
    of("images of Hugging Face", *({"bytes": png(n), "path": None} for n in (1, 2)), wanted=[1, 2],
        roles=IMAGE),
    row("files", {"a.png": 1, "b.jpg": jpeg(2)},
        examples(lambda: [{"x": Path("a.png")}, {"x": "b.jpg"}], IMAGE), stored(numbered({"x": 1},
        {"x": jpeg(2)}))),
    row("masks", {}, examples(lambda: [{"image": png(1), "m": pixels(1, 1) % 7}], {"m": "mask"}),
        stored(numbered({"image": 1, "m": pixels(1, 1) % 7}), features={"m": "mask uint8 ? ? 1"})),
    row("boxes and keypoints", {}, examples(lambda: [{"image": png(1), "b": [[0, 0, 4, 2]], "p": [[1, 1, 2]]},
        {"image": png(1), "b": [], "p": []}], {"b": "xyxy", "p": "xyv"}, resize="12x14"), stored(numbered(
        {"image": TWICE, "b": np.array([[0, 0, 8, 4]], "f4"), "p": np.array([[2, 2, 2]], "f4")},
        {"image": TWICE, "b": np.zeros((0, 4), "f4"), "p": np.zeros((0, 3), "f4")}),
        features={"b": "float float32 ? 4 xyxy", "p": "float float32 ? 3 xyv"},
        conversions={"resized": 2, "re-encoded": 2})),
    row("boxes outside of their image", {},
        examples(lambda: [{"image": png(n), "b": [0, 0, 5 + 9 * n, 5]} for n in (0, 1)], {"b": "xyxy"},
        max_rejected=0.5), stored(numbered({"image": 0, "b": np.array([0, 0, 5, 5],
        "f4")}), rejected={"box outside": 1})),
    row("boxes of turned images", {}, examples(lambda: [{"x": as_tagged(Image.fromarray(pixels(1))),
        "b": [0, 0, 1, 2]}], {"b": "xyxy", **IMAGE}, boxes_in="file"),
        stored(numbered({"x": np.rot90(pixels(1), -1), "b": np.array([4, 0, 6, 1], "f4")}),
        conversions={"boxes turned": 1, "orientation applied": 1, "re-encoded": 1})),
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
    "a folder as an image": (x(Path(".")), IMAGE), "a device": (x(Path("/dev/zero")), IMAGE),
    "a missing file": (x(Path("/none.png")), IMAGE), "lists that differ": (x([[1], [1, 2]]), {}),
    "empty lists": (x([], []), {}), "numbers as an image": (x(np.ones((3, 3))), {"x": "image"}),
    "a negative label": (lambda: [{"label": -2}], {}), "a label of a fraction": (x(0.5), {"x": "label"}),
    "labels of text and numbers": (x("a", 1), {"x": "label"}), "several labels": (x([1, 2]), {"x": "label"}),
    "a large number in a list": (x([1e300]), {}), "a masked array": (x(np.ma.array([1, 2], mask=[0, 1])), {}),
    "a name like a role": (lambda: [{"Label": 1}], {}), "nothing to store": (lambda: [{"split": "a"}], {}),
    "boxes of three numbers": (x([1, 2, 3]), {"x": "xyxy"}), "boxes of paths": (x(Path("a")), {"x": "xyxy"}),
    "two sources of splits": (lambda: {"train": [{"x": 1, "split": "a"}]}, {}),
    "two sources of keys": (lambda: [("a", {"x": 1, "key": "b"})], {}),
    "two sources of keys later": (lambda: [{"x": 1, "key": "a"}, ("b", {"x": 1, "key": "c"})], {}),
    "a name twice": (lambda: [{"a": {"b": 1}, "a/b": 2}], {}),
    "a fraction as a key": (lambda: [(0.5, {"x": 1})], {}),
    "a key twice": (lambda: [("a", {"x": 1}), ("a", {"x": 2})], {}),
    "a single value as a list": (x(0.5), {"x": "list"}),
    "an unknown value": (x(1), {"y": "value"}), "an unknown split": (x(1), {"part": "split"}),
}  # fmt: skip
UNDECLARED = {"encoded": png(0), "a picture": Image.fromarray(pixels(0)), "a path": Path("a.png"),
    "text": "photos/a.jpg", "of Hugging Face": {"bytes": png(0), "path": None}}  # fmt: skip
WRONG = [
    *(row(f"an image without a role, {name}", {}, examples(x(value)), refused(InputError, "'x'",
        "image", "mask", "value")) for name, value in UNDECLARED.items()),
    *(row(name, {}, examples(source, roles), refused(InputError)) for name,
        (source, roles) in REFUSALS.items()),
    *(row(f"undeclared {name}", {}, examples(lambda values=values: [{"image": png(1), **values}]),
        refused(InputError, "'xyxy'" if name == "sides" else "'xywh'", "'value'")) for name, values in {
        "boxes": {"boxes": [[0, 0, 4, 4]]}, "a box": {"o/bbox": np.zeros(4)},
        "sides": {"x1": 0, "y1": 0, "x2": 4, "y2": 4}}.items()),
    row("text that is not Unicode", {}, examples(x("\ud800")), refused(InputError, "0000000000", "'x'")),
    row("a path", {}, examples(lambda: "photos/"), refused(OptionsError)),
    row("a frame", {}, examples(lambda: pd.DataFrame({"y": [1]})), refused(InputError, "Table(frame)")),
    row("an object", {}, examples(object), refused(OptionsError)),
    row("an unknown role", {}, examples(x(1), {"x": "text"}), refused(OptionsError, "text")),
    row("a template", {}, examples(x(1), {"{x}.jpg": "image"}), refused(OptionsError, "{x}.jpg")),
    row("two labels", {}, examples(x(1), {"x": "label", "y": "label"}), refused(OptionsError)),
    row("class names without a label", {}, examples(x(1), class_names=["a"]), refused(InputError)),
    row("options of images without images", {}, examples(x(1), resize="9x9"), refused(OptionsError,
        "images")),
]  # fmt: skip

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
    *(row(f"a picture of mode {name}", {}, examples(lambda picture=picture: [{"x": picture}], IMAGE),
        stored(numbered({"x": wanted}), conversions=CHANGED.get(name, {}))) for name, (picture,
        wanted) in MODES.items()),
    row("a picture that is turned", {},
        examples(lambda: [{"x": as_tagged(Image.fromarray(pixels(1)))}], IMAGE),
        stored(numbered({"x": np.rot90(pixels(1), -1)}), conversions={"orientation applied": 1,
        "re-encoded": 1})),
    row("deep pixels", {}, examples(lambda: [{"x": DEEP}], {"x": "image"}, depth=16, channels=1),
        stored(numbered({"x": DEEP[..., 0]}))),
    row("deep pixels of colors are numbers", {}, examples(lambda: [{"x": np.repeat(DEEP, 3, 2)}]),
        stored(numbered({"x": np.repeat(DEEP, 3, 2)}), features={"x": "raw uint16 8 9 3"})),
    row("deep pixels of colors as an image", {}, examples(lambda: [{"x": np.repeat(DEEP, 3, 2)}],
        IMAGE), refused(InputError, "0000000000", "'x'")),
    row("a picture that cannot be encoded", {}, examples(lambda: [{"x": Image.new("HSV", (4, 4))}], IMAGE),
        refused(InputError, "0000000000", "'x'")),
    row("a mask that nobody declared", {}, examples(lambda: MASKED), refused(InputError, "'mask'")),
    row("a mask that is an image", {}, examples(lambda: MASKED, {"mask": "image"}), stored(numbered({
        "image": 1, "mask": pixels(1, 1) % 7}))),
    row("masks of unchecked images", {}, examples(lambda: MASKED, {"mask": "mask"}, check="none"),
        refused(OptionsError, "mask")),
    row("a mask of another size", {}, examples(lambda: [{"image": png(n), "m": pixels(1, 1)} for n in (1,
        1, 2)], {"m": "mask"}, max_rejected=0.5), stored(numbered(*[{"image": 1, "m": pixels(1, 1)}] * 2),
        rejected={"mismatch": 1})),
    row("a resized mask", {}, examples(lambda: [{"image": png(1), "m": np.full((6, 7), 5, np.uint8)}],
        {"m": "mask"}, resize="4x6"), stored(numbered({"image": np.asarray(Image.fromarray(pixels(1)).resize((
        6, 4), Image.Resampling.LANCZOS)), "m": np.full((4, 6), 5, np.uint8)}), conversions={"resized": 2,
        "re-encoded": 2})),
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
