"""Arrays in memory and in files: every dtype, layout and role, and what cannot be stored."""

import io
import math
import struct
import zipfile
import zlib

import ml_dtypes
import numpy as np
import pytest

from tests.conformance.calls import arrays
from tests.conformance.rows import by_row, refused, row, stored
from tests.conformance.runner import check
from tfshards.schemas import InputError, OptionsError

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


# Values that are no classes, and the features that they become.
NO_LABELS = {
    "fractions": (np.array([2.0, 1.0, 0.0]), "raw float64"),
    "one-hot rows": (np.eye(3, dtype=np.int64), "raw int64 3"),
    "rows of one": (np.array([[0], [1], [1]]), "raw int64 1"),
    "negative numbers": (np.array([2, -2, 0]), "int int64"),
    "uint64 above int64": (np.array([2, 2**63, 1], np.uint64), "raw uint64"),
    "lists of text": ([["a"], ["b"]], "bytes bytes 1"),
    "complex numbers": (np.array([1j, 0, 2]), "raw complex128"),
}  # fmt: skip


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
    row("a label of -1 is no class", {}, arrays(pair(label=np.array([2, -1, 0, 1]))), labels([2, -1, 0, 1],
        features={"label": "label int64"}, warns=("without a class (-1): 1",))),
    row("a label of -1 has none of the names", {}, arrays(pair(label=np.array([0, -1])), class_names=["a",
        "b"]), labels(["a", None], "a", "b")),
    row("an empty text is no class", {}, arrays(pair(label=np.array(["b", "a", ""]))), labels(["b", "a",
        None], "a", "b", warns=("without a class (-1): 1",))),
    *(row(f"labels of {name} as they are", {}, arrays(pair(label=np.array(found)), roles={"label": "value"}),
        labels(found, features={"label": kind})) for name, (found, kind) in NO_LABELS.items()),
    row("text as classes", {}, arrays(pair(label=np.array(["ä", "B", "a", "B"]))), labels("äBaB", "B", "a",
        "ä")),
    row("bytes as classes", {"x.npy": X3, "label.npy": np.array([b"\xff", b"a", b"a"])}, arrays("x.npy",
        "label.npy"), labels(["\udcff", "a", "a"], "a", "\udcff", x=X3)),
    row("two spellings of one class", {}, arrays(pair(label=np.array(["é", "\udcc3\udca9", "z"]))),
        labels(["é", "é", "z"], "z", "é")),
    row("given class names", {"x.npy": X4, "label.npy": np.array(["b", "a", "b", "b"])}, arrays("x.npy",
        "label.npy", class_names=["b", "c", "a"]), labels("babb", "b", "c", "a")),
    row("given names of numbers", {}, arrays(pair(label=np.array([1, 0, 1], ">i8")), class_names=["b", "a"]),
        labels("aba", "b", "a")),
    *(row(f"{name} is no label by its name", {"x.npy": X3, f"{name}.npy": np.array([1, 0, 1])},
        arrays("x.npy", f"{name}.npy"), stored(by_row(**{"x": X3, name: np.array([1, 0, 1])}),
        features={name: "int int64"})) for name in ("labels", "y", "Y")),
    row("a declared label goes before one by name", {}, arrays(lambda: {"y": np.array([0, 2, 1]),
        "label": X3}, roles={"y": "label"}), stored(by_row(y=[0, 2, 1], label=X3),
        features={"y": "label int64", "label": "int int64"})),
    row("a declared label", {"x.npy": X3, "species.npy": np.array([1, 0, 1])}, arrays("x.npy", "species.npy",
        roles={"species": "label"}),
        stored(by_row(x=X3, species=[1, 0, 1]), features={"species": "label int64"})),
    row("an array of splits", {"x.npy": X4, "split.npy": SPLITS}, arrays("x.npy", "split.npy"),
        stored(in_splits(train=[1, 3], val=[2], test=[0]))),
    row("numbers of folds", {"x.npy": X4, "fold.npy": np.array([1, 0, 1, 0])}, arrays("x.npy", "fold.npy",
        roles={"fold": "split"}), stored({"0": in_splits(a=[1, 3])["a"], "1": in_splits(a=[0, 2])["a"]})),
    row("no split is wanted", {}, arrays(pair(split=SPLITS), roles={"split": "value"}),
        stored(by_row(x=X4, split=[*SPLITS]))),
    *(row(f"keys that are {name}", {}, arrays(pair(key=np.array(found))), stored({"train": {key: {"x": X4[r]}
        for r, key in enumerate(keys)}})) for name, (found, keys) in {"text": (["b", "a", "ä"], "baä"),
        "numbers": ([30, 4, 5], ["30", "4", "5"])}.items()),
    row("keys order splits, labels and text", {}, arrays(lambda: {"x": X3, "id": np.array(["b", "c", "a"]),
        "split": SPLITS[:3], "label": np.array(["v", "u", "w"]), "name": np.array(["k", "l", "m"])},
        roles={"id": "key"}), stored({"train": {"c": {"x": X3[1], "label": "u", "name": "l"}}, "val": {"a":
        {"x": X3[2], "label": "w", "name": "m"}}, "test": {"b": {"x": X3[0], "label": "v", "name": "k"}}},
        "u", "v", "w")),
    row("an array that is dropped", {"x.npy": X3, "y.npy": b"not read"}, arrays("x.npy", "y.npy",
        roles={"y": "drop"}), stored(by_row(x=X3))),
    row("x_train and y_test", {"a.npz": {"x_train": X4, "y_train": np.array([0, 1, 1, 0]), "x_test": X3 + 50,
        "y_test": np.array([2, 0, 1])}}, arrays("a.npz", roles={"y": "label"}),
        stored(by_row(x=X4, y=[0, 1, 1, 0]) | by_row("test", 4, x=X3 + 50, y=[2, 0, 1]))),
    row("train_images and test_labels", {"train_images.npy": X4, "train_labels.npy": np.array(["b", "a", "b",
        "c"]), "test_images.npy": X3, "test_labels.npy": np.array(["c", "a", "a"])}, arrays("test_images.npy",
        "train_images.npy", "test_labels.npy", "train_labels.npy", roles={"labels": "label"}),
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
        refused(InputError, "rows" if "rows of" in name else "x")) for name, data in HOSTILE.items()),
    *(row(f"npz {name}", {"a.npz": archive("x.npy", data=HOSTILE[name])}, arrays("a.npz"), refused(InputError,
        "x")) for name in ("cut", "longer than memory", "objects", "nothing")),
    row("a member that is no array", {"a.npz": archive("x.npy", "readme.txt")}, arrays("a.npz"),
        refused(InputError, "a.npz", "'readme.txt'")),
    row("a member of an array that lost its suffix", {"a.npz": archive("x.NPY")}, arrays("a.npz"),
        refused(InputError, "a.npz", "'x.NPY'")),
    row("a bomb",
        {"a.npz": archive("x.npy", data=npy((1 << 23,), data=bytes(1 << 22)), method=zipfile.ZIP_DEFLATED)},
        arrays("a.npz"), refused(InputError, "a.npz")),
    row("an archive of nothing", {"a.npz": archive()}, arrays("a.npz"), refused(InputError)),
    row("an archive that is none", {"a.npz": b"PK but no more"}, arrays("a.npz"), refused(InputError,
        "a.npz")),
    row("no file", {}, arrays("gone.npy"), refused(InputError, "gone.npy")),
    row("no archive", {}, arrays("gone.npz"), refused(InputError, "gone.npz")),
    row("a folder", {"x.npy": None}, arrays("x.npy"), refused(InputError, "x.npy")),
    row("another type of file", {"x.txt": ""}, arrays("x.txt"), refused(OptionsError, "x.txt")),
    row("no name", {"x.npy": X3}, arrays("=x.npy"), refused(OptionsError, "=x.npy")),
    row("a name for an archive", {"a.npz": {"x": X3}}, arrays("x=a.npz"), refused(OptionsError,
        "x=a.npz")),
    row("a name twice", {"x.npy": X3, "y.npy": X3}, arrays("x.npy", "x=y.npy"), refused(OptionsError,
        "'x'")),
    row("the name of the key", {"key.npy": X3}, arrays("key.npy", roles={"key": "value"}), refused(InputError,
        "key")),
    *(row(f"keys that are {name}", {}, no_values(x=X3, key=np.array(found)), refused(InputError, "key",
        *names)) for name, (found, names) in {"repeated": (["a", "b", "a"], ("3", "'a'")), "empty": (["a", "",
        "b"], ("2",)), "fractions": ([0.5, 1.5, 2.5], ()), "pairs": ([[1, 2], [3, 4], [5, 6]],
        ("(2,)",))}.items()),
    row("nothing but keys", {}, no_values(key=X3), refused(InputError)),
    row("a name with a newline", {}, no_values(**{"a\n": X3}), refused(InputError, r"a\n")),
    row("an empty name", {}, no_values(**{"": X3}), refused(InputError)),
    row("no arrays", {}, no_values(), refused(OptionsError)),
    row("a name that is a number", {}, arrays(lambda: {1: X3}), refused(OptionsError, "1")),
    row("lists of two lengths", {}, no_values(x=[[1], [2, 3]]), refused(InputError, "'x'", "Examples")),
    row("other lengths", {"x.npy": X3, "y.npy": X4}, arrays("x.npy", "y.npy"), refused(InputError, "x",
        "y", "3", "4")),
    row("no rows", {}, no_values(x=np.zeros((0, 2))), refused(InputError)),
    row("rows without values", {}, no_values(x=np.zeros((3, 0))), refused(InputError)),
    row("a single value", {}, no_values(x=np.array(3)), refused(InputError, "x")),
    row("objects in memory", {}, no_values(x=np.array([{}, []], object)), refused(InputError, "x")),
    row("dates", {}, no_values(x=np.array(["2024-01-01"], "M8[D]")), refused(InputError, "x",
        "datetime64")),
    row("long doubles", {}, no_values(x=np.zeros(2, np.longdouble)), refused(InputError, "x")),
    row("bytes without a meaning", {}, no_values(x=np.zeros(2, "V7")), refused(InputError,
        "x")),
    row("a masked array", {}, no_values(x=np.ma.masked_equal([1, 2], 2)), refused(InputError, "x")),
    row("33 dimensions", {}, no_values(x=np.zeros((2,) + (1,) * 33)), refused(InputError, "x")),
    row("text that is not Unicode", {}, no_values(x=np.array(["\ud800"])), refused(InputError, "x")),
    *(row(f"a list of {dtype}", {"x.npy": np.zeros((2, 2), dtype)}, arrays("x.npy", roles={"x": "list"}),
        refused(InputError, "'x'")) for dtype in ("uint64", "float64")),
    *(row(f"chunks {name}", {}, arrays(lambda found=found: iter(found)), refused(InputError)) for name,
        found in {"none": [], "of other names": [{"x": X3}, {"y": X3}], "of another dtype": [{"x": X3},
        {"x": X3 * 1.5}], "of another shape": [{"x": np.zeros((2, 3))}, {"x": np.zeros((2, 4))}],
        "a value": [{"x": np.float32(1)}], "of objects": [{"x": np.array([None])}]}.items()),
    row("a label that is missing", {"x.npy": X3}, arrays("x.npy", roles={"z": "label"}), refused(InputError,
        "z")),
    row("a declared label of fractions", {"x.npy": X3 / 2}, arrays("x.npy", roles={"x": "label"}),
        refused(InputError, "'x'")),
    row("a declared split of fractions", {"x.npy": X3 / 2}, arrays("x.npy", roles={"x": "split"}),
        refused(InputError, "x")),
    row("too many splits", {"x.npy": np.arange(101)}, arrays("x.npy", roles={"x": "split"}),
        refused(InputError, "x", "101")),
    row("a name that is no split", {"x.npy": X3, "split.npy": np.array(["train", "a/b", "a/b"])},
        arrays("x.npy", "split.npy"), refused(InputError, "split", "2", "a/b")),
    row("splits of other arrays", {"a.npz": {"x_train": X4, "y_train": X4, "x_test": X3}}, arrays("a.npz"),
        refused(InputError, "y", "test")),
    row("splits of other lengths", {"a.npz": {"x_train": X4, "y_train": X3, "x_test": X3, "y_test": X3}},
        arrays("a.npz"), refused(InputError, "train")),
    *(row(f"labels of {name}", {}, arrays(pair(label=np.array(found))), refused(InputError, "'label'",
        "roles={'label': 'value'}")) for name, (found, _) in NO_LABELS.items()),
    *(row(f"an array named {name!r}", {}, no_values(x=X3, **{name: X3}), refused(InputError, repr(name),
        f"roles={{{name!r}: {role!r}}}")) for name, role in {"Label": "label", "LABEL": "value", " split":
        "split", "KEY": "key"}.items()),
    *(row(f"the role {role}", {"x.npy": X3}, arrays("x.npy", roles={"x": role}), refused(OptionsError,
        "'x'", role)) for role in ("mask", "xywh", "boxes")),
    row("two labels", {}, arrays(lambda: {"x": X3, "y": X3}, roles={"x": "label", "y": "label"}),
        refused(OptionsError, "'x'", "'y'")),
    *(row(f"named labels {name}", {}, arrays(pair(label=np.array(found)), class_names=["a", "b"]),
        refused(InputError, *names)) for name, (found, names) in {"beyond the names": ([0, 1,
        2, 5], ("2",)), "unknown": (["a", "c"], ("'c'",)), "of fractions": ([0.0,
        1.0], ("label",)), "of rows": ([[0, 1], [1, 0]], ("label",))}.items()),
    row("class names without a label", {"x.npy": X3 * 0.5}, arrays("x.npy", class_names=["a", "b"]),
        refused(InputError)),
    row("class names twice", {}, arrays(pair(label=np.array(["a", "b"])), class_names=["a", "b", "a"]),
        refused(OptionsError, "'a'")),
    row("labels alone are no content", {"label.npy": np.arange(4) % 2},
        arrays("label.npy", duplicates="drop"), refused(InputError)),
    row("images of the wrong dtype", {"x.npy": PHOTO / 2}, arrays("x.npy", roles={"x": "image"}),
        refused(InputError, "'x'")),
    row("images that are missing", {"x.npy": PHOTO}, arrays("x.npy", roles={"z": "image"}),
        refused(InputError, "z")),
    *(row(f"10,001 labels of {dtype}", {}, no_values(label=np.arange(10_001).astype(dtype)),
        refused(InputError, "'label'", "10,000", "roles={'label': 'value'}")) for dtype in ("int",
        "S5")),
    row("a group that is missing", {"x.npy": X4}, arrays("x.npy", splits={"a": "1/2", "b": "1/2"},
        group_by="z"), refused(InputError, "z")),
    row("a group of rows", {"x.npy": np.zeros((4, 2))}, arrays("x.npy", splits={"a": "1/2", "b": "1/2"},
        group_by="x"), refused(InputError, "x")),
]  # fmt: skip

# Headers and directories that are wrong in one place


def with_header(header, version=b"\1\0"):
    length = struct.pack("<H", len(header)) if version == b"\1\0" else struct.pack("<I", len(header))
    return b"\x93NUMPY" + version + length + header


def in_directory(data, place, layout, *found):
    """Overwrite fields of the first entry in the directory of an archive; ``place`` is the offset in it."""
    edited = bytearray(data)
    struct.pack_into(layout, edited, data.index(b"PK\1\2") + place, *found)
    return bytes(edited)


def zip64(size):
    """Return an archive whose directory has the sizes of its member in a zip64 field."""
    data = archive("x.npy")
    start, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    entry = bytearray(data[start:end] + struct.pack("<HHQQ", 1, 16, size, size))
    struct.pack_into("<II", entry, 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", entry, 30, 20)
    last = bytearray(data[end:])
    struct.pack_into("<I", last, 12, len(entry))
    return data[:start] + entry + last


def linked():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as found:
        info = zipfile.ZipInfo("x.npy")
        info.external_attr = 0o120777 << 16
        found.writestr(info, b"/etc/passwd")
    return file.getvalue()


def overlapping():
    data = bytearray(archive("x.npy", "y.npy"))
    struct.pack_into("<I", data, data.rindex(b"PK\1\2") + 42, 0)
    return bytes(data)


def as_declared(data, size, checksum):
    """Return an archive of one member whose directory has this size and this checksum."""
    found = archive("x.npy", data=data, method=zipfile.ZIP_DEFLATED)
    return in_directory(in_directory(found, 16, "<I", checksum), 24, "<I", size)


LONGER = SOUND.replace(b"(2,)", b"(9,)")
WRONG_HEADERS = {
    "padded": npy((4,), data=b"abcde"), "more rows than an index": npy((2**70, 0)),
    "no axis of rows": npy((), data=b"a"),
    "void of two bytes": npy((1,), "<V2", b"ab"), "a number for a character": npy((1,), "<U1", b"\xff" * 4),
    "10,001 bytes": with_header(b" " * 10_001, b"\2\0"), "a list": with_header(b"[]\n"),
    "mixed keys": with_header(b"{1: 2, 'a': 3}\n"), "brackets": with_header(b"{" * 500 + b"\n"),
    "octals": with_header(b"{'shape': (01,)}\n"),
}  # fmt: skip
WRONG_ARCHIVES = {
    **{f"a name {n}": archive(n) for n in ("a/", "a.npy/", "x.txt")}, "a link": linked(),
    "a name twice": archive("x.npy", "z.npy").replace(b"z.npy", b"x.npy"),
    "encryption": in_directory(archive("x.npy"), 8, "<H", 1),
    **{f"method {n}": in_directory(archive("x.npy"), 10, "<H", n) for n in (12, 93)},
    "members that share bytes": overlapping(),
    **{f"a size of {n} bytes": in_directory(archive("x.npy"), 24, "<I", n) for n in (len(SOUND) - 1,
        len(SOUND) + 1, 2**32 - 2)},
}  # fmt: skip
WRONG_MEMBERS = {
    "that is short": as_declared(SOUND, len(SOUND) + 1, zlib.crc32(SOUND)),
    "that is long": as_declared(SOUND + b"x", len(SOUND), zlib.crc32(SOUND + b"x")),
    "that lacks data": as_declared(LONGER, len(LONGER) + 7, zlib.crc32(LONGER)),
    "with another checksum": as_declared(SOUND, len(SOUND), 0),
}  # fmt: skip
AB = np.array([97, 98], np.uint8)
FIELDS = np.zeros(4, [("number", "<i4"), ("box", "<f4", (2, 2))])
FILE_ROWS = [
    *(row(f"format version {version[0]}", {"x.npy": npy((2,), data=b"ab", version=version)}, arrays("x.npy"),
        stored(by_row(x=AB))) for version in (b"\2\0", b"\3\0")),
    row("sizes in zip64 fields", {"a.npz": zip64(len(SOUND))}, arrays("a.npz"), stored(by_row(x=AB))),
    row("numbers in names that are no parts", {"y-3.npy": X3, "z_0.npy": X3, "z_1.npy": X3, "part*.npy": X3},
        arrays("y-3.npy", "z_0.npy", "z_1.npy", "part*.npy"), stored(by_row(**dict.fromkeys(("y-3",
        "z_0", "z_1", "part*"), X3)))),
    *(row(f"a header of {file} with {name}", {"x.npy": data, "a.npz": archive("x.npy", data=data)},
        arrays(file), refused(InputError, "x")) for name, data in WRONG_HEADERS.items()
        for file in ("x.npy", "a.npz")),
    # by the directory, before anything is unpacked
    *(row(f"an archive with {name}", {"a.npz": data}, arrays("a.npz"), refused(InputError,
        "a.npz")) for name, data in WRONG_ARCHIVES.items()),
    row("an archive with an impossible size", {"a.npz": as_declared(bytes(10**6), 2**31, 0)},
        arrays("a.npz"), refused(InputError, "a.npz", str(2**31))),
    *(row(f"a member {name}", {"a.npz": data}, arrays("a.npz"), refused(InputError, "a.npz"))
        for name, data in WRONG_MEMBERS.items()),
    row("a pattern of files", {"x-0.npy": X3}, arrays("x-*.npy"), refused(InputError, "x-*.npy")),
    row("a list of text", {}, arrays(lambda: {"x": ["a", "b"]}), refused(InputError, "'x'")),
    row("an array without a name", {}, arrays(lambda: X3), refused(OptionsError)),
    row("a chunk without a name", {}, arrays(lambda: iter([X3])), refused(InputError)),
    *(row(f"fields {name}", {"x.npy": FIELDS, "a.npz": {"x": FIELDS}}, arrays(source), refused(InputError,
        "number, box")) for name, source in {"in memory": lambda: {"x": FIELDS},
        "of a record array": lambda: {"x": FIELDS.view(np.recarray)}, "in npy": "x.npy", "in npz": "a.npz",
        "in chunks": lambda: iter([{"x": FIELDS}])}.items()),
]  # fmt: skip

# Splits in the names of arrays: names, and the splits and features that they give
BY_NAME = {
    "split last": (["x_train", "x_val", "x_test"], ["train", "val", "test"], ["x"]),
    "split first": (["val_images", "val_texts", "train_images", "train_texts"], ["train", "val"], ["images",
        "texts"]),
    "capitals": (["X_Train", "X_TEST"], ["train", "test"], ["X"]),
    "several words": (["my_x_train", "my_x_dev"], ["train", "dev"], ["my_x"]),
    "a colon": (["layer:0", "layer:1"], ["train"], ["layer:0", "layer:1"]),
    "only one split": (["x_train", "y_train"], ["train"], ["x_train", "y_train"]),
    "not all are of splits": (["x_train", "x_test", "other"], ["train"], ["x_train", "x_test", "other"]),
    "no array": (["train", "test"], ["train"], ["train", "test"]),
    "no name": (["_train", "_test"], ["train"], ["_train", "_test"]),
    "other words": (["x_left", "x_right"], ["train"], ["x_left", "x_right"]),
}  # fmt: skip
WRONG_SPLITS = {
    "dtypes": ({"x_train": X3, "x_test": X3 / 2}, ("'x'", "float64")),
    "shapes": ({"x_train": X3, "x_test": np.zeros((3, 2), int)}, ("'x'", "(2,)")),
    "bytes and text": ({"x_train": X3.astype("S"), "x_test": X3.astype("U")}, ("'x'",)),
    "one array twice": ({"x_train": X3, "train_x": X3, "x_test": X3}, ("x",)),
}  # fmt: skip
KERAS = {"x_train": X4, "y_train": np.array([0, 1, 1, 0]), "x_test": X3, "y_test": np.array([2, 0, 1])}
INT16 = np.arange(24, dtype=np.int16).reshape(4, 2, 3)
NAME_ROWS = [
    *(row(f"splits by {name}", {}, arrays(lambda names=names: dict.fromkeys(names, X3 / 2)),
        stored({split: examples for n, split in enumerate(splits) for examples in by_row(split, 3 * n,
        **dict.fromkeys(features, X3 / 2)).values()})) for name, (names, splits,
        features) in BY_NAME.items()),
    row("splits of other layouts", {"n_train.npy": INT16[:1].astype(">i2"), "n_test.npy": np.asfortranarray(
        INT16[1:]), "s_train.npy": np.array(["a"]), "s_test.npy": np.array(["猫", "bcd", ""], ">U3")},
        arrays("n_test.npy", "n_train.npy", "s_test.npy", "s_train.npy"), stored(by_row(n=INT16[:1], s=["a"])
        | by_row("test", 1, n=INT16[1:], s=["猫", "bcd", ""]))),
    row("a split without rows", {}, arrays(lambda: {"x_train": X3, "x_test": X3[:0]}), stored(by_row(x=X3),
        warns=("'test'",))),
    row("labels of one split", {"a.npz": {n.replace("y_", "d_"): each for n, each in KERAS.items()}},
        arrays("a.npz", roles={"d": "label"}), stored(by_row(x=X4, d=[0, 1, 1, 0]) | by_row("test", 4,
        x=X3, d=[2, 0, 1]), features={"d": "label int64"})),
    row("names that look alike", {}, arrays(lambda: {"label": np.array(["cat", " cat", "dog"]),
        "split": np.array(["Train", "train", "val"])}), stored({"train": {"1": {"label": " cat"}},
        "val": {"2": {"label": "dog"}}, "Train": {"0": {"label": "cat"}}}, " cat", "cat", "dog",
        warns=("' cat'", "'Train'"))),
    *(row(f"splits of other {name}", {}, arrays(lambda found=found: found), refused(InputError, *names))
        for name, (found, names) in WRONG_SPLITS.items()),
    row("an array of splits by name", {}, arrays(lambda: {f"{name}_{split}": X3 for name in ("x", "fold")
        for split in ("train", "test")}, roles={"fold": "split"}), refused(InputError,
        "'fold'")),
    row("ratios next to splits by name", {"a.npz": KERAS}, arrays("a.npz", splits={"a": 1}),
        refused(InputError, "the source already")),
    row("the label of one split that is none", {"a.npz": KERAS}, arrays("a.npz", roles={"z_train": "label"}),
        refused(InputError, "z_train")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "call", "expected"), [*DTYPE_ROWS, *VALUE_ROWS, *IMAGE_ROWS, *REFUSALS, *FILE_ROWS, *NAME_ROWS]
)
def test_arrays_become_what_they_hold_or_are_refused(files, call, expected):
    check(files, call, expected)
