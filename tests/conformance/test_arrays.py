"""Arrays in memory and in files: every dtype, layout and role, and what cannot be stored."""

import io
import math
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest

from tests.conformance.calls import arrays
from tests.conformance.rows import by_row, refused, row, stored
from tests.conformance.runner import check
from tfshards.schemas import BuildError, InputError, OptionsError

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64", "complex64", "complex128"]
# Integers that an int64 list holds are stored as one if they are scalars.
AS_INT = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}


def values(dtype, *shape):
    """Return extremes, signed zeros, infinity and NaN in five rows of a shape."""
    count = 5 * math.prod(shape)
    if dtype == "bool":
        made = np.arange(count) % 3 == 0
    elif "int" in dtype:
        limits = np.iinfo(dtype)
        made = np.resize(np.array([limits.min, limits.max, 1, 0, 7], dtype), count)
    else:
        made = np.resize(np.array([0.1, -0.0, np.inf, np.nan, -3e4]), count).astype(dtype)
        made = made * (1 + 2j) if "complex" in dtype else made
    return made.astype(dtype).reshape(5, *shape)


EVERY = {f"s_{dtype}": values(dtype) for dtype in DTYPES} | {f"t_{d}": values(d, 2, 3) for d in DTYPES}
KINDS = {
    f"{form}_{dtype}": f"{'int' if form == 's' and dtype in AS_INT else 'raw'} {dtype} {shape}"
    for dtype in DTYPES
    for form, shape in (("s", ""), ("t", "2 3"))
}
LAYOUTS = {
    "C order": lambda array: array,
    "Fortran order": np.asfortranarray,
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "every second row": lambda array: np.repeat(array, 2, axis=0)[::2],
}


def laid(layout):
    return {name: LAYOUTS[layout](array) for name, array in EVERY.items()}


def chunks(found):
    return lambda: ({name: array[a : a + 2] for name, array in found.items()} for a in range(0, 5, 2))


def compressed(found):
    file = io.BytesIO()
    np.savez_compressed(file, **found)
    return file.getvalue()


def files(found):
    return {f"{name}.npy": array for name, array in found.items()}


ALL = stored(by_row(**EVERY), features=KINDS)
DTYPE_ROWS = [
    *(row(f"in memory, {layout}", {}, arrays(lambda layout=layout: laid(layout)), ALL) for layout in LAYOUTS),
    *(row(f"npy, {layout}", files(laid(layout)), arrays(*files(EVERY)), ALL) for layout in ("C order",
        "Fortran order", "big-endian")),
    row("npz", {"a.npz": laid("big-endian")}, arrays("a.npz"), ALL),
    row("npz, compressed", {"a.npz": compressed(laid("Fortran order"))}, arrays("a.npz"), ALL),
    *(row(f"chunks, {layout}", {}, arrays(chunks(laid(layout))), ALL) for layout in ("C order",
        "big-endian")),
]  # fmt: skip

TEXTS = {
    "bytes": np.array([b"", b"\xff\0a", b"cat"]), "text": np.array(["", "Straße", "猫"]),
    "big": np.array(["", "猫", "b"], ">U3"), "not_utf8": np.array(["caf\udce9", "a", "b"]),
    "lists": np.array([[b"a", b"bc"], [b"", b"d"], [b"e", b""]]),
    "fortran": np.asfortranarray([["a", "b"], ["c", "ü"], ["e", "f"]]),
    "table": np.array([[["a"], ["ü"]], [["b"], ["c"]], [["d"], ["e"]]]),
}  # fmt: skip
LISTS = {
    "bool": np.array([[True, False], [False, False], [True, True]]),
    "uint8": np.array([[[0, 255]], [[1, 2]], [[3, 4]]], np.uint8),
    "int64": np.array([-(2**63), 2**63 - 1, 0]),
    "float16": np.array([[0.5, -0.0], [np.inf, 1], [np.nan, 2]], np.float16),
    "float32": np.array([0.1, -np.inf, 3e38], np.float32), "empty": np.zeros((3, 0), np.int32),
}  # fmt: skip
LIST_KINDS = {"bool": "int bool 2", "uint8": "int uint8 1 2", "int64": "int int64",
"float16": "float float16 2",
              "float32": "float float32", "empty": "int int32 0"}  # fmt: skip
BFLOAT = np.array([[0.1, -0.0], [np.inf, -3e38]], ml_dtypes.bfloat16)
X3, X4 = np.arange(3) + 10, np.arange(4) + 10
SPLITS = np.array(["test", "train", "val", "train"])


def labels(array, *names, x=X4, **more):
    """Return rows of ``x`` and a label, with the names or numbers of their classes."""
    return stored(by_row(x=x[: len(array)], label=list(array)), *names, **more)


def in_splits(**rows_of_split):
    """Return the rows of ``X4`` that each split has."""
    return {split: {str(r): {"x": X4[r]} for r in rows} for split, rows in rows_of_split.items()}


def pair(**found):
    return lambda: {"x": X4[: len(next(iter(found.values())))], **found}


VALUE_ROWS = [
    row("text", {}, arrays(lambda: TEXTS), stored(by_row(**{n: [*a.tolist()] for n, a in TEXTS.items()}),
        features={"text": "bytes bytes", "fortran": "bytes bytes 2", "table": "bytes bytes 2 1"})),
    row("lists", {}, arrays(lambda: LISTS, roles=dict.fromkeys(LISTS, "list")), stored(by_row(**LISTS),
        features=LIST_KINDS)),
    row("bfloat16", {}, arrays(lambda: {"x": BFLOAT}),
        stored(by_row(x=BFLOAT), features={"x": "raw bfloat16 2"})),
    row("bfloat16 as a list", {}, arrays(lambda: {"x": BFLOAT}, roles={"x": "list"}), stored(by_row(x=BFLOAT),
        features={"x": "float bfloat16 2"})),
    row("more rows than ten", {"x.npy": np.arange(12) * 3}, arrays("x.npy"),
        stored(by_row(x=np.arange(12) * 3))),
    row("a name for a file", {"x.npy": X3}, arrays("a=x.npy", "b=x.npy"), stored(by_row(a=X3, b=X3))),
    row("an equals sign in a name", {"b=c.npy": X3}, arrays("a=b=c.npy"), stored(by_row(a=X3))),
    row("members in order", {"a.npz": {"b": X3, "a/w": X3 + 1, "ä": X3 + 2}}, arrays("a.npz"),
        stored(by_row(b=X3, **{"a/w": X3 + 1, "ä": X3 + 2}))),
    row("an empty chunk", {}, arrays(lambda: iter([{"x": np.zeros(0)}, {"x": np.arange(2.0)},
        {"x": np.ones(1)}])), stored(by_row(x=np.array([0.0, 1, 1])))),
    row("class numbers", {}, arrays(pair(label=np.array([2, 0, 2, 1], np.uint8))), labels([2, 0, 2, 1],
        features={"label": "label uint8"})),
    row("big-endian class numbers", {"x.npy": X4, "label.npy": np.array([2, 0, 2, 1], ">i4")},
        arrays("x.npy", "label.npy"), labels([2, 0, 2, 1])),
    row("class numbers in uint64", {}, arrays(pair(label=np.array([2, 0, 2, 1], np.uint64))),
        labels([2, 0, 2, 1])),
    row("truth values as classes", {}, arrays(pair(label=np.array([True, False, True, True]))),
        labels([1, 0, 1, 1])),
    row("negative labels are numbers", {}, arrays(pair(label=np.array([2, -1, 0, 1]))), labels(np.array([2,
        -1, 0, 1]), features={"label": "int int64"})),
    row("a declared label of -1 is no class", {}, arrays(pair(label=np.array([2, -1, 0, 1])),
        roles={"label": "label"}), labels([2, -1, 0, 1], features={"label": "label int64"})),
    row("fractions are no classes", {}, arrays(pair(label=np.array([2.0, 1.0, 0.0, 1.0]))),
        labels(np.array([2.0, 1.0, 0.0, 1.0]), features={"label": "raw float64"})),
    row("one-hot rows are no classes", {}, arrays(pair(label=np.eye(4, dtype=np.int64))), labels(np.eye(4,
        dtype=np.int64), features={"label": "raw int64 4"})),
    row("uint64 above int64", {}, arrays(pair(label=np.array([2, 2**63, 1], np.uint64))), labels(np.array([2,
        2**63, 1], np.uint64), features={"label": "raw uint64"})),
    row("text as classes", {}, arrays(pair(label=np.array(["ä", "B", "a", "B"]))), labels("äBaB", "B", "a",
        "ä")),
    row("bytes as classes", {"x.npy": X3, "label.npy": np.array([b"\xff", b"a", b"a"])}, arrays("x.npy",
        "label.npy"), labels(["\udcff", "a", "a"], "a", "\udcff", x=X3)),
    row("two spellings of one class", {}, arrays(pair(label=np.array(["é", "\udcc3\udca9", "z"]))),
        labels(["é", "é", "z"], "z", "é")),
    row("lists of text are no classes", {}, arrays(pair(label=np.array([["a"], ["b"]]))), labels([["a"],
        ["b"]], features={"label": "bytes bytes 1"})),
    row("given class names", {"x.npy": X4, "label.npy": np.array(["b", "a", "b", "b"])}, arrays("x.npy",
        "label.npy", class_names=["b", "c", "a"]), labels("babb", "b", "c", "a")),
    row("given names of numbers", {}, arrays(pair(label=np.array([1, 0, 1], ">i8")), class_names=["b", "a"]),
        labels("aba", "b", "a")),
    *(row(f"label found as {name}", {"x.npy": X3, f"{name}.npy": np.array([1, 0, 1])}, arrays("x.npy",
        f"{name}.npy"),
        stored(by_row(**{"x": X3, name: [1, 0, 1]}), features={name: "label int64"})) for name in ("labels",
        "y", "Y", "LABEL")),
    row("label before y", {}, arrays(lambda: {"y": X3, "label": np.array([1, 0, 1])}), stored(by_row(y=X3,
        label=[1, 0, 1]), features={"label": "label int64", "y": "int int64"})),
    row("a declared label", {"x.npy": X3, "species.npy": np.array([1, 0, 1])}, arrays("x.npy", "species.npy",
        roles={"species": "label"}),
        stored(by_row(x=X3, species=[1, 0, 1]), features={"species": "label int64"})),
    row("no label is wanted", {"y.npy": np.array([1, 0, 1])}, arrays("y.npy", roles={"": "label"}),
        stored(by_row(y=np.array([1, 0, 1])), features={"y": "int int64"})),
    row("an array of splits", {"x.npy": X4, "split.npy": SPLITS}, arrays("x.npy", "split.npy"),
        stored(in_splits(train=[1, 3], val=[2], test=[0]))),
    row("numbers of folds", {"x.npy": X4, "fold.npy": np.array([1, 0, 1, 0])}, arrays("x.npy", "fold.npy",
        roles={"fold": "split"}), stored({"0": in_splits(a=[1, 3])["a"], "1": in_splits(a=[0, 2])["a"]})),
    row("no split is wanted", {}, arrays(pair(split=SPLITS), roles={"": "split"}), stored(by_row(x=X4,
        split=[*SPLITS]))),
    row("an array that names no splits", {}, arrays(pair(split=np.zeros(4))), stored(by_row(x=X4,
        split=np.zeros(4)))),
    row("x_train and y_test", {"a.npz": {"x_train": X4, "y_train": np.array([0, 1, 1, 0]), "x_test": X3 + 50,
        "y_test": np.array([2, 0, 1])}}, arrays("a.npz"), stored(by_row(x=X4, y=[0, 1, 1, 0]) | by_row("test",
        4, x=X3 + 50, y=[2, 0, 1]))),
    row("train_images and test_labels", {"train_images.npy": X4, "train_labels.npy": np.array(["b", "a", "b",
        "c"]), "test_images.npy": X3, "test_labels.npy": np.array(["c", "a", "a"])}, arrays("test_images.npy",
        "train_images.npy", "test_labels.npy", "train_labels.npy"),
        stored(by_row(images=X4, labels=list("babc")) | by_row("test", 4, images=X3, labels=list("caa")), "a",
        "b", "c")),
]  # fmt: skip

PHOTO = np.random.default_rng(0).integers(0, 256, (4, 12, 9, 3), np.uint8)
HALF = PHOTO.astype(np.uint16) * 200
IMAGE_ROWS = [
    row("images in an array", {"image.npy": PHOTO}, arrays("image.npy"), stored(by_row(image=PHOTO),
        features={"image": "raw uint8 12 9 3"})),
    row("declared images", {"a.npy": PHOTO, "b.npy": HALF[..., 0]},
        arrays("a.npy", "b.npy", roles={"a": "image", "b": "image"}), stored(by_row(a=PHOTO, b=HALF[..., 0]),
        features={"a": "raw uint8 12 9 3 raw", "b": "raw uint16 12 9 raw"})),
    row("images of one channel", {"a.npy": PHOTO[..., :1]}, arrays("a.npy", roles={"a": "image"}),
        stored(by_row(a=PHOTO[..., :1]), features={"a": "raw uint8 12 9 1 raw"})),
]  # fmt: skip


def npy(shape, descr="|u1", data=b"", version=b"\1\0"):
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    length = struct.pack("<H", len(header)) if version == b"\1\0" else struct.pack("<I", len(header))
    return b"\x93NUMPY" + version + length + header + data


HOSTILE = {
    "cut": npy((4,), data=b"abc"), "longer than memory": npy((2**40,)), "rows of nothing": npy((10**12, 0)),
    "more elements than fit": npy((1, 0, 2**62, 2**62)), "a negative length": npy((-1, -1), data=b"a"),
    "half a row": npy((1.5,), data=b"a"), "objects": npy((1,), "|O", b"\x80\x04N."),
    "an unknown dtype": npy((1,), "zzz"), "a huge dtype": npy((1,), ("<f4", (2**40,))),
    "no magic": b"PK\3\4 and so on", "nothing": b"", "another version": npy((1,), version=b"\4\0"),
    "a header beyond its file": b"\x93NUMPY\2\0" + b"\xff" * 8, "a header that is cut": npy((1,))[:20],
}  # fmt: skip


SOUND = npy((2,), data=b"ab")


def archive(*members, data=SOUND, method=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as found:
        for name in members:
            found.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


def no_values(**found):
    return arrays(lambda: found)


REFUSALS = [
    *(row(f"npy {name}", {"x.npy": data}, arrays("x.npy"),
        refused(InputError, None, "rows" if "rows of" in name else "x")) for name, data in HOSTILE.items()),
    *(row(f"npz {name}", {"a.npz": archive("x.npy", data=HOSTILE[name])}, arrays("a.npz"), refused(InputError,
        None, "x")) for name in ("cut", "longer than memory", "objects", "nothing")),
    *(row(f"member {name}", {"a.npz": archive(name)}, arrays("a.npz"), refused(InputError, None, "a.npz"))
        for name in ("../x.npy", "/x.npy", "a/../../x.npy", "readme.txt")),
    row("a bomb",
        {"a.npz": archive("x.npy", data=npy((1 << 23,), data=bytes(1 << 22)), method=zipfile.ZIP_DEFLATED)},
        arrays("a.npz"), refused(InputError, None, "a.npz")),
    row("an archive of nothing", {"a.npz": archive()}, arrays("a.npz"), refused(InputError, None, "a.npz")),
    row("an archive that is none", {"a.npz": b"PK but no more"}, arrays("a.npz"), refused(InputError, None,
        "a.npz")),
    row("no file", {}, arrays("gone.npy"), refused(InputError, None, "gone.npy")),
    row("no archive", {}, arrays("gone.npz"), refused(InputError, None, "gone.npz")),
    row("a folder", {"x.npy": None}, arrays("x.npy"), refused(InputError, None, "x.npy")),
    row("another type of file", {"x.txt": ""}, arrays("x.txt"), refused(OptionsError, None, "x.txt")),
    row("no name", {"x.npy": X3}, arrays("=x.npy"), refused(OptionsError, None, "=x.npy")),
    row("a name for an archive", {"a.npz": {"x": X3}}, arrays("x=a.npz"), refused(OptionsError, None,
        "x=a.npz")),
    row("a name twice", {"x.npy": X3, "y.npy": X3}, arrays("x.npy", "x=y.npy"), refused(OptionsError, None,
        "'x'")),
    row("the name of the key", {"key.npy": X3}, arrays("key.npy"), refused(OptionsError, None, "key")),
    row("the name of the key in memory", {}, no_values(key=X3), refused(InputError, None, "key")),
    row("a name with a newline", {}, no_values(**{"a\n": X3}), refused(InputError, None, r"a\n")),
    row("an empty name", {}, no_values(**{"": X3}), refused(InputError)),
    row("no arrays", {}, no_values(), refused(OptionsError)),
    row("other lengths", {"x.npy": X3, "y.npy": X4}, arrays("x.npy", "y.npy"), refused(InputError, None, "x",
        "y", "3", "4")),
    row("no rows", {}, no_values(x=np.zeros((0, 2))), refused(InputError)),
    row("rows without values", {}, no_values(x=np.zeros((3, 0))), refused(InputError)),
    row("a single value", {}, no_values(x=np.array(3)), refused(InputError, None, "x")),
    row("objects in memory", {}, no_values(x=np.array([{}, []], object)), refused(InputError, None, "x")),
    row("dates", {}, no_values(x=np.array(["2024-01-01"], "M8[D]")), refused(InputError, "array-dtype", "x",
        "datetime64")),
    row("long doubles", {}, no_values(x=np.zeros(2, np.longdouble)), refused(InputError, "array-dtype", "x")),
    row("bytes without a meaning", {}, no_values(x=np.zeros(2, "V7")), refused(InputError, "array-dtype",
        "x")),
    row("a masked array", {}, no_values(x=np.ma.masked_equal([1, 2], 2)), refused(InputError, None, "x")),
    row("33 dimensions", {}, no_values(x=np.zeros((2,) + (1,) * 33)), refused(InputError, None, "x")),
    row("text that is not Unicode", {}, no_values(x=np.array(["\ud800"])), refused(BuildError, None, "x")),
    *(row(f"a list of {dtype}", {"x.npy": np.zeros((2, 2), dtype)}, arrays("x.npy", roles={"x": "list"}),
        refused(InputError, None, "'x'")) for dtype in ("uint64", "float64", "S3", "U3")),
    *(row(f"chunks {name}", {}, arrays(lambda found=found: iter(found)), refused(InputError)) for name,
        found in {"none": [], "of other names": [{"x": X3}, {"y": X3}], "of another dtype": [{"x": X3},
        {"x": X3 * 1.5}], "of another shape": [{"x": np.zeros((2, 3))}, {"x": np.zeros((2, 4))}],
        "a value": [{"x": np.float32(1)}], "of objects": [{"x": np.array([None])}]}.items()),
    row("a label that is missing", {"x.npy": X3}, arrays("x.npy", roles={"z": "label"}), refused(InputError,
        None, "z")),
    row("a declared label of fractions", {"x.npy": X3 / 2}, arrays("x.npy", roles={"x": "label"}),
        refused(InputError, None, "'x'")),
    row("a declared split of fractions", {"x.npy": X3 / 2}, arrays("x.npy", roles={"x": "split"}),
        refused(InputError, None, "x")),
    row("too many splits", {"x.npy": np.arange(101)}, arrays("x.npy", roles={"x": "split"}),
        refused(InputError, None, "x", "101")),
    row("a name that is no split", {"x.npy": X3, "split.npy": np.array(["train", "a/b", "a/b"])},
        arrays("x.npy", "split.npy"), refused(InputError, None, "split", "1", "a/b")),
    row("splits of other arrays", {"a.npz": {"x_train": X4, "y_train": X4, "x_test": X3}}, arrays("a.npz"),
        refused(InputError, None, "y", "test")),
    row("splits of other lengths", {"a.npz": {"x_train": X4, "y_train": X3, "x_test": X3, "y_test": X3}},
        arrays("a.npz"), refused(InputError, None, "train")),
    row("an empty class", {}, no_values(label=np.array(["b", "a", ""])), refused(InputError, None, "label",
        "2")),
    *(row(f"labels {name}", {}, arrays(pair(label=np.array(found)), class_names=["a", "b"]),
        refused(InputError, None, "label", *names)) for name, (found, names) in {"beyond the names": ([0, 1,
        2, 5], ("2",)), "below 0": ([0, -1], ("1",)), "unknown": (["a", "c"], ("c",)), "of fractions": ([0.0,
        1.0], ()), "of rows": ([[0, 1], [1, 0]], ())}.items()),
    row("class names without a label", {"x.npy": X3 * 0.5}, arrays("x.npy", class_names=["a", "b"]),
        refused(InputError)),
    row("class names twice", {}, arrays(pair(label=np.array(["a", "b"])), class_names=["a", "b", "a"]),
        refused(OptionsError, None, "'a'")),
    row("labels alone are no content", {"label.npy": np.arange(4) % 2},
        arrays("label.npy", duplicates="drop"), refused(InputError)),
    row("images of the wrong dtype", {"x.npy": PHOTO / 2}, arrays("x.npy", roles={"x": "image"}),
        refused(InputError, None, "'x'")),
    row("images that are missing", {"x.npy": PHOTO}, arrays("x.npy", roles={"z": "image"}),
        refused(InputError, None, "z")),
    row("a group that is missing", {"x.npy": X4}, arrays("x.npy", splits={"a": "1/2", "b": "1/2"},
        group_by="z"), refused(InputError, None, "z")),
    row("a group of rows", {"x.npy": np.zeros((4, 2))}, arrays("x.npy", splits={"a": "1/2", "b": "1/2"},
        group_by="x"), refused(InputError, None, "x")),
]  # fmt: skip


@pytest.mark.parametrize(("files", "call", "expected"), [*DTYPE_ROWS, *VALUE_ROWS, *IMAGE_ROWS, *REFUSALS])
def test_arrays_become_what_they_hold_or_are_refused(files, call, expected):
    check(files, call, expected)
