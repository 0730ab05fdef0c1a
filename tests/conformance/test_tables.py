"""Tables: text and Parquet, types of columns, roles, classes, splits, and images by path or inside."""

import datetime
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tests.conformance.calls import table
from tests.conformance.inputs import HF_IMAGE, Link, encoded, hf_table, jpeg, pixels, png
from tests.conformance.rows import by_row, refused, row, stored
from tests.conformance.runner import check
from tfshards.schemas import BuildError, InputError, OptionsError

PARQUET, JSONL, TSV = "in.parquet", "in.jsonl", "in.tsv"


def f64(*numbers):
    return np.array(numbers, np.float64)


def columns(**values):
    return {PARQUET: {name.replace("__", "/"): column for name, column in values.items()}}


def lists_of(values, kind):
    return pa.array(values, pa.list_(kind))


def stream(**values):
    """Return a function that returns a stream of Arrow, as data frames are."""

    class Frame:
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.table(values).__arrow_c_stream__(requested_schema)

    return Frame


# Text: the same rows in each format

WORDS = ["plain", 'with "quotes", commas\nand lines', "", "Käse 猫\t"]
NUMBERS = [1, -5, 2**63 - 1, 0]
REALS = [0.1, -7.5, 1e-300, 2.0]
RECORDS = [{"n": n, "x": x, "s": s} for n, x, s in zip(NUMBERS, REALS, WORDS, strict=True)]
SAME = by_row(n=np.array(NUMBERS), x=f64(*REALS), s=WORDS)


def quoted(separator):
    lines = [["n", "x", "s"], *([str(v) for v in r.values()] for r in RECORDS)]
    return "".join(separator.join(f'"{v}"'.replace('"', '""')[1:-1] for v in line) + "\n" for line in lines)


TEXT = {
    "byte order mark and line ends of Windows": (b"\xef\xbb\xbfa,b\r\nx,z\r\n\r\ny,z\r\n", ["x", "y"]),
    "no newline at the end": (b"a,b\nx,z\ny,z", ["x", "y"]),
    "a newline inside a value": (b'a,b\n"x\r\n",z\n"",z\n', ["x\r\n", ""]),
    "a quote after a newline": (b'a,b\n"x\n""",z\n', ['x\n"']),
    "words for missing values elsewhere": (b"a,b\nNA,z\nnull,z\nx,z\n", ["NA", "null", "x"]),
    "dates": (b"a,b\n2020-01-01,z\n2021-12-31,z\n", ["2020-01-01", "2021-12-31"]),
    "times": (b"a,b\n12:30,z\n", ["12:30"]), "leading zeros": (b"a,b\n007,z\n8,z\n", ["007", "8"]),
    "hexadecimal numbers": (b"a,b\n0x10,z\n", ["0x10"]),
    "beyond int64": (b"a,b\n18446744073709551615,z\n1,z\n", ["18446744073709551615", "1"]),
    "a large integer among fractions": (b"a,b\n9007199254740993,z\n0.5,z\n", ["9007199254740993", "0.5"]),
    "the smallest int64": (b"a,b\n-9223372036854775808,z\n0,z\n", np.array([-(2**63), 0])),
    "fractions": (b"a,b\n0.5,z\n-2.25,z\n", f64(0.5, -2.25)),
    "fractions as Python writes them": (b"a,b\n0.0001,z\n-0.0,z\n1234567.1234567,z\n12,z\n1e-05,z\n", f64(
        0.0001, -0.0, 1234567.1234567, 12, 1e-05)),
    "fractions of many digits": (b"a,b\n0.1,z\n0.30000000000000004,z\n-7,z\n", f64(0.1, 0.1 + 0.2, -7)),
    "a small fraction": (b"a,b\n0.5,z\n0.00001,z\n", ["0.5", "0.00001"]),
    "a negative zero": (b"a,b\n0.5,z\n-0,z\n", ["0.5", "-0"]),
    "a fraction and a new line": (b'a,b\n0.5,z\n"1.5\n",z\n', ["0.5", "1.5\n"]),
    "infinity": (b"a,b\n0.5,z\n-inf,z\n", ["0.5", "-inf"]), "one value": (b"a,b\n5,z\n", np.array([5])),
}  # fmt: skip
FORMS = [
    row("csv", {"in.csv": quoted(",")}, table(), stored(SAME)),
    row("tsv", {TSV: quoted("\t")}, table(TSV), stored(SAME)),
    row("jsonl", {JSONL: RECORDS}, table(JSONL), stored(SAME)),
    row("ndjson", {"in.ndjson": "".join(f'{{"n": {n}}}\n' for n in NUMBERS)}, table("in.ndjson"),
        stored(by_row(n=np.array(NUMBERS)))),
    row("parquet", columns(n=NUMBERS, x=REALS, s=WORDS), table(PARQUET), stored(SAME)),
    row("suffix in capitals", {"IN.CSV": b"a\nx\n"}, table("IN.CSV"), stored(by_row(a=["x"]))),
    row("a folder with metadata", {"in/metadata.csv": "n,s\n1,x\n"}, table("in"),
        stored(by_row(n=np.array([1]), s=["x"]))),
    *(row(f"csv {name}", {"in.csv": content}, table(), stored(by_row(a=values, b=["z"] * len(values))))
        for name, (content, values) in TEXT.items()),
    row("a number that is kept as text is reported", {"in.csv": "id,x\n007,1\n8,2\n"}, table(),
        stored(by_row(id=["007", "8"], x=np.array([1, 2])), warns=("'id'",))),
    row("a stray text among numbers", {"in.csv": "n\n" + "\n".join(map(str, range(10))) + "\nx\n"},
        table(), stored(by_row(n=[*map(str, range(10)), "x"]))),
    row("more lines than ten", {"in.csv": "x\n" + "".join(f"{n * n}\n" for n in range(12))}, table(),
        stored(by_row(x=np.arange(12) ** 2))),
    row("json of nested values", {JSONL: [{"x": 1, "meta": {"date": "2020-01-02", "place": {"lat": 0.5}},
        "n": [2, 3]}, {"x": 2, "meta": {"date": "b", "place": {"lat": 1.5}}, "n": [4]}]}, table(JSONL),
        stored(by_row(x=np.array([1, 2]), **{"meta/date": ["2020-01-02", "b"], "meta/place/lat": f64(0.5,
        1.5), "n": [np.array([2, 3]), np.array([4])]}))),
]  # fmt: skip

# Columns of every type

UTC2 = datetime.timezone(datetime.timedelta(hours=2))
# by type: the column, its feature, and what is stored if it is not what Python shows
TYPES = {
    "int8": (pa.array([-128, 127], pa.int8()), "int int8", None),
    "int64": (pa.array([-(2**63), 2**63 - 1]), "int int64", None),
    "uint32": (pa.array([0, 2**32 - 1], pa.uint32()), "int uint32", None),
    "uint64": (pa.array([0, 2**64 - 1], pa.uint64()), "raw uint64", [np.uint64(0), np.uint64(2**64 - 1)]),
    "bool": (pa.array([True, False]), "int bool", None),
    "float16": (pa.array(np.array([1.5, -2], np.float16)), "raw float16", None),
    "float32": (pa.array([0.5, math.inf], pa.float32()), "raw float32", None),
    "float64": (pa.array([0.1, math.nan]), "raw float64", None),
    "text": (pa.array(["", "Käse\n猫"]), "bytes bytes", None),
    "bytes": (pa.array([b"\xff\x00", b""]), "bytes bytes", None),
    "bytes of one length": (pa.array([b"ab", b"cd"], pa.binary(2)), "bytes bytes", None),
    "a dictionary": (pa.array(["a", "b"]).dictionary_encode(), "bytes bytes", None),
    "decimals": (pa.array([Decimal("1.50"), Decimal("-3.00")]), "bytes bytes", ["1.50", "-3.00"]),
    "dates": (pa.array([datetime.date(2020, 2, 29), datetime.date(1, 1, 1)]), "bytes bytes", ["2020-02-29",
        "0001-01-01"]),
    "times": (pa.array([datetime.datetime(2020, 7, 1, 12, tzinfo=UTC2)] * 2, pa.timestamp("s",
        "Europe/Berlin")), "bytes bytes", ["2020-07-01 12:00:00.000+0200"] * 2),
    "lists of one length": (pa.array([[1, 2], [3, 4]]), "int int64 2", None),
    "lists that differ": (pa.array([[1], [2**40, 3]]), "int int64 ?", None),
    "an empty list": (pa.array([[1], []]), "int int64 ?", [[1], np.array([], int)]),
    "a missing list": (pa.array([None, [1, 2]]), "int int64 ?", [np.array([], int), [1, 2]]),
    "only empty lists": (lists_of([[], []], pa.int32()), "int int32 ?", [np.array([], np.int32)] * 2),
    "fixed lists": (pa.array([[0.1, 2], [3, 4]], pa.list_(pa.float64(), 2)), "raw float64 2", None),
    "large lists of text": (pa.array([["a"], ["", "é"]], pa.large_list(pa.string())), "bytes bytes ?", None),
    "lists of bool": (pa.array([[True], [False, True]]), "int bool ?", None),
    "lists of float32": (lists_of([[1.5], [2.5, 3]], pa.float32()), "float float32 ?", None),
    "lists of doubles": (pa.array([[0.5], [2, 3.5]]), "float float32 ?", None),
    "lists of a dictionary": (lists_of([["a"], ["b", "a"]], pa.dictionary(pa.int8(), pa.string())),
        "bytes bytes ?", None),
    "rows": (lists_of([[[1, 2]], None], pa.list_(pa.int64())), "int int64 ? 2", [[[1, 2]], np.zeros((0, 2),
        int)]),
    "fixed rows": (lists_of([[[True, False]], [[False, False]] * 2], pa.list_(pa.bool_(), 2)), "int bool ? 2",
        None), "rows of doubles": (pa.array([[[0.5, 2]], [[3, 4]] * 2]), "float float32 ? 2", None),
}  # fmt: skip
TYPE_ROWS = [
    *(row(f"type {name}", columns(x=column, y=[1, 2]), table(PARQUET),
        stored(by_row(x=expected or column.to_pylist(), y=np.array([1, 2])),
        features={"x": feature})) for name, (column, feature, expected) in TYPES.items()),
    row("struct", columns(m=pa.array([{"a": 1, "b": {"c": "x"}}, {"a": 2, "b": {"c": "y"}}])), table(PARQUET),
        stored(by_row(**{"m/a": np.array([1, 2]), "m/b/c": ["x", "y"]}))),
    row("list of structs", columns(o=pa.array([[{"a": 1, "b": "x"}], [{"a": 2, "b": "y"}, {"a": 3,
        "b": "z"}]])), table(PARQUET), stored(by_row(**{"o/a": [np.array([1]), np.array([2, 3])],
        "o/b": [["x"], ["y", "z"]]}))),
    row("a dropped column", columns(x=[1, 2], y=["a", "b"]), table(PARQUET, {"y": "drop"}),
        stored(by_row(x=np.array([1, 2])))),
    row("the index of pandas", {"in.csv": ",x\n0,5\n1,6\n"}, table(roles={"": "drop"}),
        stored(by_row(x=np.array([5, 6])))),
    row("a dropped struct", columns(x=[1, 2], m=pa.array([{"a": 1}, {"a": 2}])), table(PARQUET,
        {"m": "drop"}), stored(by_row(x=np.array([1, 2])))),
]  # fmt: skip

# Classes and splits

X = {"x": [7, 8, 9]}
N = np.array([7, 8, 9])


def label_row(name, values, expected, *names, roles=None, feature="label int64", warns=(), **given):
    wanted = by_row(x=N[: len(expected)], label=expected)
    files = columns(x=X["x"][: len(expected)], label=values)
    more = {"features": {"label": feature}, "warns": warns}
    return row(f"label {name}", files, table(PARQUET, roles, **given), stored(wanted, *names, **more))


HALVES = {"a": "1/2", "b": "1/2"}
NONE = np.array([], np.int64)
NAMES = {"_type": "ClassLabel", "names": ["cat", "dog", "猫"]}
LABELS = [
    label_row("text", ["dog", "ant", "dog"], ["dog", "ant", "dog"], "ant", "dog"),
    label_row("text sorted by bytes", ["ä", "B", "a"], ["ä", "B", "a"], "B", "a", "ä"),
    label_row("not UTF-8", pa.array([b"\xff", b"a", b"a"]), ["\udcff", "a", "a"], "a", "\udcff"),
    label_row("a dictionary", pa.array(["b", "a", "b"]).dictionary_encode(), ["b", "a", "b"], "a", "b"),
    label_row("integers", [2, 0, 2], [2, 0, 2], warns=("classes without rows: 1 of 3",)),
    label_row("small integers", pa.array([2, 0, 2], pa.uint8()), [2, 0, 2]),
    label_row("uint64", pa.array([2, 0, 2], pa.uint64()), [2, 0, 2]),
    label_row("truth values", [True, False, True], ["true", "false", "true"], "false", "true"),
    label_row("lists of text", [["b", "a"], [], ["a"]], [["b", "a"], [], ["a"]], "a", "b",
        feature="label int64 ?"),
    label_row("lists of integers", [[3], [], [0, 3]], [[3], NONE, [0, 3]], feature="label int64 ?"),
    label_row("two in each row", [["b", "a"], ["a", "b"], ["a", "a"]], [["b", "a"], ["a", "b"], ["a", "a"]],
        "a", "b", feature="label int64 ?"),
    label_row("a missing list", pa.array([["b"], None, ["a", "b"]]), [["b"], [], ["a", "b"]], "a", "b",
        feature="label int64 ?"),
    label_row("null text", pa.array(["b", None, "a"]), ["b", None, "a"], "a", "b", warns=("'label'", "-1")),
    label_row("empty text", ["b", "", "a"], ["b", None, "a"], "a", "b", warns=("'label'", "-1")),
    label_row("null integers", pa.array([3, None, 0]), [3, -1, 0], warns=("'label'", "-1")),
    label_row("null truth", pa.array([True, None, False]), ["true", None, "false"], "false", "true",
        warns=("-1",)),
    label_row("stored as fractions", [0.5, 1.5, 2.5], f64(0.5, 1.5, 2.5), roles={"label": "value"},
        feature="raw float64"),
    label_row("no class as -1", [-1, 1, 0], [-1, 1, 0], warns=("'label'", "-1")),
    label_row("stored as text", ["b", "a", "b"], ["b", "a", "b"], roles={"label": "value"},
        feature="bytes bytes"),
    label_row("given names", ["b", "a", "b"], ["b", "a", "b"], "b", "c", "a", class_names=["b", "c", "a"],
        warns=("'label'",)),
    label_row("given names of numbers", [0, 1, 0], ["b", "a", "b"], "b", "a", class_names=["b", "a"]),
    label_row("given names in lists", [["a"], ["b", "a"], []], [["a"], ["b", "a"], []], "b", "a",
        class_names=["b", "a"], feature="label int64 ?"),
    label_row("given names of truth values", [True, False, True], ["true", "false", "true"], "true", "false",
        class_names=["true", "false"]),
    label_row("separated", ["dog|cat", "", "cat"], [["dog", "cat"], [], ["cat"]], "cat", "dog",
        label_separator="|", feature="label int64 ?"),
    label_row("separated by two characters", ["dog, cat", "bird", "cat"], [["dog", "cat"], ["bird"], ["cat"]],
        "bird", "cat", "dog", label_separator=", ", feature="label int64 ?"),
    label_row("with names that look alike", ["Cat", "cat", "dog"], ["Cat", "cat", "dog"], "Cat", "cat", "dog",
        warns=("'Cat'",)),
    row("another label", columns(y=["b", "a"], label=[1, 2]), table(PARQUET, {"y": "label"}),
        stored(by_row(y=["b", "a"], label=np.array([1, 2])), "a", "b", features={"label": "int int64",
        "y": "label int64"})),
    row("class names of Hugging Face", {PARQUET: hf_table({"x": [1, 2], "fine": [2, 0]}, {"fine": NAMES})},
        table(PARQUET, {"fine": "label"}),
        stored(by_row(x=np.array([1, 2]), fine=["猫", "cat"]), "cat", "dog", "猫")),
    row("class names of objects",
        {PARQUET: hf_table({"o": [{"c": [2]}, {"c": [0, 2]}]},
        {"o": {"_type": "Sequence", "feature": {"c": NAMES}}})}, table(PARQUET, {"o/c": "label"}),
        stored(by_row(**{"o/c": [["猫"], ["cat", "猫"]]}), "cat", "dog", "猫",
        features={"o/c": "label int64 ?"})),
    row("a row of Hugging Face without a class", {PARQUET: hf_table({"label": [2, -1]}, {"label": NAMES})},
        table(PARQUET), stored(by_row(label=["猫", None]), "cat", "dog", "猫", warns=("-1",))),
    row("given names translate those of the file", {PARQUET: hf_table({"y": [0, 1, 2, -1]}, {"y": NAMES})},
        table(PARQUET, {"y": "label"}, class_names=["猫", "dog", "cat"]),
        stored(by_row(y=["cat", "dog", "猫", None]), "猫",
        "dog", "cat")),
    row("a column of splits", {"in.csv": "x,split\n7,test\n8,train\n9,odd\n10,validation\n"}, table(),
        stored({"train": {"1": {"x": 8}}, "validation": {"3": {"x": 10}}, "test": {"0": {"x": 7}},
        "odd": {"2": {"x": 9}}})),
    row("split names that look alike", {"in.csv": "x,split\n7,Train\n8,train\n"}, table(),
        stored({"train": {"1": {"x": 8}}, "Train": {"0": {"x": 7}}}, warns=("'Train'",))),
    row("numbered splits", columns(x=[7, 8, 9], fold=[1, 0, 1]), table(PARQUET, {"fold": "split"}),
        stored({"0": {"1": {"x": 8}}, "1": {"0": {"x": 7}, "2": {"x": 9}}})),
    row("no splits are wanted", columns(x=[7, 8], split=["train", "test"]),
        table(PARQUET, {"split": "value"}),
        stored(by_row(x=np.array([7, 8]), split=["train", "test"]))),
    row("labels of splits are numbered together", {"in.csv": "label,split\nb,train\nc,val\na,val\nb,train\n"},
        table(), stored({"train": {"0": {"label": "b"}, "3": {"label": "b"}}, "val": {"1": {"label": "c"},
        "2": {"label": "a"}}}, "a", "b", "c")),
]  # fmt: skip


def parts(*names, **given):
    files = {f"in/{name}.parquet": {"x": [n * 10, n * 10 + 1]} for n, name in enumerate(names)}
    return row(f"parts {names[0]}", files, table("in"), stored(**given))


SHARDS = ("test-00000-of-00001", "train-00000-of-00002", "train-00001-of-00002")
PARTS = [
    parts(*SHARDS, splits={**by_row("train", 2, x=np.array([10, 11, 20, 21])), **by_row("test",
        x=np.array([0, 1]))}),
    parts("test", "train", splits={**by_row("train", 2, x=np.array([10, 11])), **by_row("test",
        x=np.array([0, 1]))}),
    parts("part-0", "part-1", splits=by_row(x=np.array([0, 1, 10, 11]))),
    parts("test/0000", "train/0000", splits={**by_row("train", 2, x=np.array([10, 11])), **by_row("test",
        x=np.array([0, 1]))}),
    row("a column of splits before the names of files", {"in/train.parquet": {"x": [1], "split": ["val"]},
        "in/test.parquet": {"x": [2], "split": ["val"]}}, table("in"), stored(by_row("val", x=np.array([2,
        1])))),
]  # fmt: skip

# Images

ODD = (
    "007",
    "a b.png",
    "deep/er/c.png",
    "Käse.png",
    'quo"te,.png',
    "line\nend.png",
    "100%25.png",
    "a+b%20.png",
)


def pictures(*names, **more):
    return {f"in/{name}": number for number, name in enumerate(names)} | more


def named(*names, feature="image"):
    return {"train": {name: {feature: number} for number, name in enumerate(names)}}


def listed(*lines, files=("a.png", "b.png"), head="file_name"):
    return pictures(*files) | {"in/metadata.csv": "".join(f"{line}\n" for line in (head, *lines))}


def text_of(names):
    return "\n".join(["file_name", *('"' + name.replace('"', '""') + '"' for name in names)]) + "\n"


INSIDE = pa.array([{"bytes": png(3), "path": "x/3.png"}, {"bytes": jpeg(4), "path": "x/4.jpg"}], HF_IMAGE)
BARE = pa.array([{"bytes": png(3), "path": None}, {"bytes": jpeg(4), "path": None}], HF_IMAGE)
MASK = np.arange(30, dtype=np.uint8).reshape(5, 6) % 4
TAKEN = {"in/a.png": 0, "in/m.png": MASK, "in/in.csv": "file_name,seg\na.png,m.png\n"}
IMAGES = [
    row("paths of csv", pictures(*ODD, **{"in/metadata.csv": text_of(ODD)}), table("in"),
        stored(named(*ODD))),
    row("paths of jsonl", pictures(*ODD, **{"in/metadata.jsonl": [{"file_name": n} for n in ODD]}),
        table("in"), stored(named(*ODD))),
    row("paths of parquet", pictures(*ODD, **{"in/metadata.parquet": {"file_name": [*ODD]}}), table("in"),
        stored(named(*ODD))),
    row("rows in another order than keys", listed("b.png,5", "a.png,6", head="file_name,x"), table("in"),
        stored({"train": {"a.png": {"image": 0, "x": 6}, "b.png": {"image": 1, "x": 5}}})),
    row("images without a row", listed("b.png"), table("in"), stored({"train": {"b.png": {"image": 1}}},
        warns=("a.png",))),
    row("label and image", listed("b.png,cat", "a.png,dog", head="file_name,label"), table("in"),
        stored({"train": {"a.png": {"image": 0, "label": "dog"}, "b.png": {"image": 1, "label": "cat"}}},
        "cat", "dog")),
    row("a root elsewhere", pictures("a.png", "b.png", **{"t/in.csv": "file_name\nb.png\na.png\n"}),
        table("t/in.csv", root="in"), stored(named("a.png", "b.png"))),
    row("an image column by its role",
        pictures("a.png", "b.png", **{"in/in.csv": "photo,x\nb.png,1\na.png,2\n"}), table("in/in.csv",
        {"photo": "image"}), stored({"train": {"a.png": {"photo": 0, "x": 2}, "b.png": {"photo": 1,
        "x": 1}}})),
    row("two images",
        pictures("a.png", "b.png", **{"in/in.csv": "file_name,left_file_name\na.png,b.png\nb.png,a.png\n"}),
        table("in/in.csv", {"left_file_name": "image"}),
        stored({"train": {"a.png": {"image": 0, "left": 1}, "b.png": {"image": 1,
        "left": 0}}})),
    row("rows of one image", listed("b.png,0", "a.png,1", "b.png,2", head="file_name,x"), table("in"),
        stored({"train": {"0": {"image": 1, "x": 0}, "1": {"image": 0, "x": 1}, "2": {"image": 1, "x":
        2}}})),
    row("a template",
        {"in/train/0007.png": 7, "in/train/0003.png": 3, "in/in.csv": "id,label\n7,cat\n3,dog\n"},
        table("in/in.csv", {"train/{id:04d}.png": "image"}), stored({"train": {"train/0007.png": {"image": 7,
        "label": "cat", "id": 7}, "train/0003.png": {"image": 3, "label": "dog", "id": 3}}}, "cat", "dog")),
    row("a template of text", {"in/a_x.png": 1, "in/b_y.png": 2, "in/in.csv": "s,t\na,x\nb,y\n"},
        table("in/in.csv", {"{s}_{t}.png": "image", "t": "drop"}), stored({"train": {"a_x.png": {"image": 1,
        "s": "a"}, "b_y.png": {"image": 2, "s": "b"}}})),
    row("folders as splits",
        pictures("train/a.png", "val/b.png", **{"in/in.csv": "file_name\nval/b.png\ntrain/a.png\n"}),
        table("in/in.csv"), stored({"train": {"train/a.png": {"image": 0}},
        "val": {"val/b.png": {"image": 1}}})),
    row("folders of splits and a column of one split", pictures("train/a.png", "val/b.png",
        **{"in/in.csv": "file_name,split\nval/b.png,all\ntrain/a.png,all\n"}), table("in/in.csv"),
        stored({"all": {"train/a.png": {"image": 0}, "val/b.png": {"image": 1}}})),
    row("folders of splits and ratios", pictures("train/a.png", "val/b.png",
        **{"in/in.csv": "file_name\nval/b.png\ntrain/a.png\n"}), table("in/in.csv", splits={"all": 1}),
        refused(InputError, "the source already", "train, val", "a column 'split'", "splits=")),
    row("a link inside",
        pictures("a.png", **{"in/l.png": Link("a.png"), "in/in.csv": "file_name\nl.png\na.png\n"}),
        table("in/in.csv"), stored({"train": {"a.png": {"image": 0}, "l.png": {"image": 0}}})),
    row("a link outside that is followed",
        {"in/l.png": Link("../b.png"), "b.png": 5, "in/in.csv": "file_name\nl.png\n"}, table("in/in.csv",
        follow_links=True), stored({"train": {"l.png": {"image": 5}}})),
    row("missing files are counted", listed("b.png", "none.png", "a.png"), table("in", max_rejected="50%"),
        stored(named("a.png", "b.png"), rejected={"missing": 1})),
    row("a row without a path is counted",
        pictures("a.png", "b.png", **{"in/in.parquet": {"file_name": ["a.png", None, "b.png"]}}),
        table("in/in.parquet", max_rejected="50%"), stored({"train": {"0": {"image": 0}, "2": {"image": 1}}},
        rejected={"missing": 1})),
    row("a damaged file is counted",
        pictures("a.png", "b.png", **{"in/c.png": "text", "in/in.csv": text_of(["a.png", "c.png", "b.png"])}),
        table("in/in.csv", max_rejected="50%"), stored(named("a.png", "b.png"), rejected={"unreadable": 1})),
    row("images inside", {PARQUET: {"image": INSIDE, "n": [1, 2]}}, table(PARQUET),
        stored({"train": {"x/3.png": {"image": png(3), "n": 1}, "x/4.jpg": {"image": jpeg(4), "n": 2}}})),
    row("images inside without paths", {PARQUET: {"image": BARE}}, table(PARQUET),
        stored(by_row(image=[png(3), jpeg(4)]))),
    row("images inside under another name", {PARQUET: {"view": BARE}}, table(PARQUET,
        {"view": "image"}),
        stored(by_row(view=[png(3), jpeg(4)]))),
    row("images as bytes", {PARQUET: {"p": [png(3), jpeg(4)]}}, table(PARQUET, {"p": "image"}),
        stored(by_row(p=[png(3), jpeg(4)]))),
    row("a missing image inside is counted", {PARQUET: {"image": pa.array([{"bytes": png(3), "path": None},
        None], HF_IMAGE)}}, table(PARQUET, max_rejected="50%"), stored({"train": {"0": {"image": 3}}},
        rejected={"missing": 1})),
    row("paths in structs", pictures("a.png", "b.png", **{"in/in.parquet": {"image": pa.array([{"bytes": None,
        "path": "b.png"}, {"bytes": None, "path": "a.png"}], HF_IMAGE)}}), table("in/in.parquet"),
        stored(named("a.png", "b.png"))),
    row("images that differ are converted",
        {"in/a.bmp": encoded(".bmp", pixels(1)), "in/in.csv": "file_name\na.bmp\n"}, table("in/in.csv"),
        stored({"train": {"a.bmp": {"image": pixels(1)}}}, conversions={"re-encoded": 1})),
    row("a mask", TAKEN, table("in/in.csv", {"seg": "mask"}), stored({"train": {"a.png": {"image": 0,
        "seg": MASK}}}, features={"seg": "mask uint8 ? ? 1"})),
    row("a mask by its name",
        {"in/a.png": 0, "in/m.png": MASK, "in/in.csv": "file_name,mask_file_name\na.png,m.png\n"},
        table("in/in.csv", {"mask_file_name": "mask"}), stored({"train": {"a.png": {"image": 0,
        "mask": MASK}}}, features={"mask": "mask uint8 ? ? 1"})),
    row("a mask inside", {PARQUET: {"image": INSIDE[:1], "m": pa.array([{"bytes": encoded(".png",
        np.ones((8, 6), np.uint8)), "path": None}], HF_IMAGE)}}, table(PARQUET, {"m": "mask"}),
        stored({"train": {"x/3.png": {"image": 3, "m": np.ones((8, 6), np.uint8)}}})),
]  # fmt: skip

# What is refused

BAD_TEXT = {
    "empty": ("in.csv", b""), "empty json": (JSONL, b""), "a row too long": ("in.csv", b"a,b\n1,2,3\n"),
    "a row too short": ("in.csv", b"a,b\n1,2\n1\n"), "a key twice": (JSONL, b'{"a":1,"a":2}\n'),
    "an open quote": ("in.csv", b'a,b\n1,"x\n2,y\n3,z\n'), "UTF-16": ("in.csv", b"\xff\xfea\x00\n"),
    "a list": (JSONL, b'[{"a": 1}]'), "two types": (JSONL, b'{"a":1}\n{"a":"x"}\n'),
    "half a line": (JSONL, b'{"a":1}\n{"a":'), "not Parquet": (PARQUET, b"PAR1 this is not a table"),
    "a header only": ("in.csv", b"a,b\n"), "a deep list": (JSONL, b'{"a":' + b"[" * 500 + b"]" * 500 + b"}"),
}  # fmt: skip
BAD_COLUMNS = {
    "a missing integer": pa.array([1, None, 2]), "missing text": pa.array([None, "a", "b"]),
    "a missing truth value": pa.array([True, None, True]),
    "a missing integer in a list": pa.array([[1], [None], [2]]),
    "missing text in a list": pa.array([["a"], [None], ["b"]]), "nothing at all": pa.nulls(3),
    "nothing in lists": pa.array([[], [], []]),
    "a map": pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
    "lists of uint64 that differ": lists_of([[1], [1, 2], []], pa.uint64()),
    "rows of text": pa.array([[["a"]], [], []]), "three levels": pa.array([[[[1]]], [], []]),
    "what float32 cannot hold": pa.array([[1.0], [1e300, 2.0], []]),
    "rows of other lengths": pa.array([[[1, 2, 3]], [[1, 2]], []]),
    "empty rows": lists_of([[[]], [], []], pa.list_(pa.int64())),
    "a missing row": pa.array([[[1], None], [], []]),
}  # fmt: skip
BAD_LABELS = {
    "beyond int64": pa.array([2**63, 1], pa.uint64()), "missing in a list": pa.array([["a"], ["a", None]]),
    "empty in a list": pa.array([["a"], ["a", ""]]), "fractions": pa.array([0.5, 1.0]),
    "less than -1": pa.array([0, -2]), "lists of lists": pa.array([[[1, 2]], [[3, 4]]]),
}  # fmt: skip
BAD_SPLITS = {"no name": ["train", "a/b"], "empty": ["train", ""], "missing": ["train", None],
"fractions": [0.5, 1.0],
              "lists": [["train"], ["val"]]}  # fmt: skip
OUTSIDE = {"absolute": "/etc/passwd", "above": "../o.png", "around": "sub/../../o.png", "a link": "l.png",
           "through a link": "d/o.png", "above a link": "d/../o.png", "the folder above": ".."}  # fmt: skip
AROUND = {
    "in/a.png": 1, "in/sub": None, "o.png": 2, "e/o.png": 3, "in/l.png": Link("../o.png"),
    "in/d": Link("../e"),
}  # fmt: skip
TEMPLATES = {"no column": "{x}.png", "digits of text": "{name:04d}.png", "an attribute": "{id.__class__}.png",
             "a format": "{id:>9}.png", "a conversion": "{id!r}.png", "a brace": "{id.png"}  # fmt: skip
ROLES = {
    "of no column": {"z": "image"}, "label of no column": {"z": "label"}, "drop of no column": {"z": "drop"},
    "split of no column": {"z": "split"},
}  # fmt: skip
REFUSALS = [
    *(row(f"text {name}", {file: content}, table(file), refused(InputError, "" if "deep" in name
        else file)) for name, (file, content) in BAD_TEXT.items()),
    row("a column twice", {"in.csv": "a,a\n1,2\n"}, table(), refused(InputError, "'a'")),
    *(row(f"text that is not UTF-8 in {name}", {"in.csv": f"n,{name}\n1,a\n2,caf\udce9\n"}, table(),
        refused(InputError, "in.csv:3: ", "UTF-8")) for name in ("note", "file_name")),
    row("a name that is not UTF-8", {"in.csv": "caf\udce9,n\n1,2\n"}, table(), refused(InputError,
        "in.csv")),
    row("a name of json that is not UTF-8", {JSONL: '{"a\\ud800": 1}\n'}, table(JSONL), refused(InputError,
        JSONL)),
    row("paths of json that are numbers", {JSONL: '{"file_name": 1}\n'}, table(JSONL), refused(InputError,
        "image paths must be text", "'file_name'")),
    row("text of json that is not UTF-8", {JSONL: '{"n": 1, "note": "th\udce9"}\n'}, table(JSONL),
        refused(InputError, f"{JSONL}:1: ")),
    row("half a character in json", {JSONL: '{"file_name": "\\ud800.png"}\n'}, table(JSONL),
        refused(InputError, f"{JSONL}:1: ", "'file_name'")),
    *(row(f"many rows of json without {name}", {JSONL: line * 256 + '{"y": 2}\n'}, table(JSONL, roles),
        refused(InputError, JSONL, "y")) for name, line, roles in (("a value", "{}\n", {}), ("another value",
        '{"x": 1}\n', {"x": "drop"}))),
    row("a large integer of json", {JSONL: '{"a":[1]}\n{"a":[18446744073709551615]}\n'}, table(JSONL),
        refused(InputError, f"{JSONL}:2", "18446744073709551615")),
    row("a large integer among fractions of json", {JSONL: '{"a":0.5}\n{"a":9007199254740993}\n'},
        table(JSONL), refused(InputError, "'a'", "9007199254740993")),
    row("no file", {}, table("gone.csv"), refused(InputError, "gone.csv")),
    row("another suffix", {"in.xlsx": ""}, table("in.xlsx"), refused(OptionsError, "in.xlsx")),
    row("a folder without a table", {"in/a.txt": ""}, table("in"), refused(InputError, "in")),
    row("two tables in a folder", {"in/metadata.csv": "a\n1\n", "in/metadata.jsonl": "{}"}, table("in"),
        refused(InputError, "in")),
    *(row(f"column with {name}", columns(x=column, y=[1, 2, 3]), table(PARQUET), refused(InputError,
        "'x'")) for name, column in BAD_COLUMNS.items()),
    row("the row of a missing value", {"in.csv": "x,y\n0.5,1\n,2\n"}, table(), refused(InputError,
        "'x'", "2", "dropna")),
    *(row(f"label of {name}", columns(x=[1, 2], y=values), table(PARQUET, {"y": "label"}), refused(InputError,
        "'y'")) for name, values in BAD_LABELS.items()),
    row("too many classes", {"in.csv": "label\n" + "".join(f"t{n}\n" for n in range(10_001))}, table(),
        refused(InputError, "'label'")),
    row("a class that is not in the names", columns(label=["a", "b", "c"]), table(PARQUET, class_names=["a",
        "b"]), refused(InputError, "'c'")),
    row("a number beyond the names", columns(label=[0, 2]), table(PARQUET, class_names=["a", "b"]),
        refused(InputError, "2")),
    row("a number beyond the names of the file", {PARQUET: hf_table({"label": [0, 3]}, {"label": NAMES})},
        table(PARQUET), refused(InputError, "3")),
    row("names of the file twice", {PARQUET: hf_table({"y": [0, 1]}, {"y": {"_type": "ClassLabel",
        "names": ["a", "a"]}})}, table(PARQUET), refused(InputError, "'a'")),
    row("names without a label", columns(x=[1]), table(PARQUET, class_names=["a"]), refused(InputError)),
    *(row(f"a list as text {texts[0]}", columns(label=texts), table(PARQUET), refused(InputError,
          texts[0][:6], "frame['label'].map(ast.literal_eval)", "{'label': 'value'}")) for texts in
        (["['dog', 'cat']", '["cat"]'], ["['a']"], ["[1, 2]", "[3]"])),
    row("a separator of numbers", columns(label=[1, 2]), table(PARQUET, label_separator="|"),
        refused(InputError, "label")),
    *(row(f"split {name}", columns(x=[1, 2], split=values), table(PARQUET), refused(InputError,
        "split")) for name, values in BAD_SPLITS.items()),
    row("ratios and a column of splits", columns(x=[1, 2], split=["train", "val"]), table(PARQUET,
        splits=HALVES), refused(InputError, "train", "val")),
    *(row(f"a role {name}", columns(x=[1]), table(PARQUET, roles), refused(InputError, "its columns are",
        "z")) for name, roles in ROLES.items()),
    *(row(f"a struct as {role}", {PARQUET: {"o": [{"box": [[1, 2, 3, 4]], "n": 1}], "x": [1]}}, table(PARQUET,
        {"o": role}), refused(InputError, "'o'", "o/box, o/n")) for role in
        ("xywh", "label", "image", "mask", "list", "split", "key")),
    row("a stream with a struct as boxes", {}, table(stream(o=[{"box": [1, 2, 3, 4]}]), {"o": "xyxy"}),
        refused(InputError, "'o'", "o/box")),
    *(row(f"a stream {name}", {}, table(stream(**values)), refused(InputError,
        "roles={'x': 'drop'}")) for name, values in {"with a missing number":
        {"x": pa.array([1, None])}, "of durations": {"x": pa.array([1], pa.duration("s"))}}.items()),
    row("a stream of undeclared images", {}, table(stream(x=["a.png"])), refused(InputError,
        "this Frame", "roles={'x': 'image'}", "roles={'x': 'value'}")),
    row("a role that does not exist", columns(x=[1]), table(PARQUET, {"x": "picture"}), refused(OptionsError,
        "picture")),
    *(row(f"a role {typo}", columns(x=[1]), table(PARQUET, {"x": typo}), refused(OptionsError,
          "'x'", typo, role)) for typo, role in {"lable": "label", "imgae": "image",
        "xywh-normalised": "xywh-normalized"}.items()),
    row("group by a typo", columns(x=[1, 2], patient=["a", "b"]), table(PARQUET, splits=HALVES,
        group_by="patint"), refused(InputError, "'patint'", "patient")),
    row("two columns of one feature", {"in.csv": "image,file_name\n1,a.png\n"}, table(), refused(InputError,
        "image")),
    row("only keys", columns(key=[1]), table(PARQUET), refused(InputError)),
    row("a name with an escape", {PARQUET: {"a\x1b": [1]}}, table(PARQUET), refused(InputError,
        r"a\x1b")),
    row("an empty name", {"in.csv": ",x\n0,5\n"}, table(), refused(InputError, "''")),
    row("nothing to store", columns(x=[1]), table(PARQUET, {"x": "drop"}), refused(InputError)),
    row("only splits", columns(split=["train"]), table(PARQUET), refused(InputError)),
    *(row(f"columns between {name}", {"in.csv": f"file_name{sign}caption\na{sign}b\n"}, table(),
        refused(InputError, "in.csv")) for name, sign in {"semicolons": ";", "bars": "|",
        "tabs": "\t"}.items()),
    row("numbers as paths", columns(file_name=[1, 2]), table(PARQUET), refused(InputError,
        "file_name")),
    *(row(f"a path {name}", AROUND | {"in/in.parquet": {"file_name": ["a.png", path]}},
        table("in/in.parquet"), refused(InputError, path)) for name, path in OUTSIDE.items()),
    *(row(f"a template with {name}", {"in/a.png": 1, "in/in.csv": "id,name\n7,x\n3,y\n"}, table("in/in.csv",
        {template: "image"}), refused(InputError)) for name, template in TEMPLATES.items()),
    row("a template of a missing value", {"in/x.png": 1, "in/in.csv": "id,name\n7,x\n3,\n"},
        table("in/in.csv", {"{name}.png": "image"}), refused(InputError, "'name'")),
    row("too many missing files", listed("a.png", "none.png"), table("in"), refused(BuildError,
        "none.png")),
    row("a root that is no folder", listed("a.png"), table("in/metadata.csv", root="none"),
        refused(InputError, "none")),
    row("options of images without images", columns(x=[1, 2]), table(PARQUET, resize="8x8"),
        refused(OptionsError, "resize")),
    row("lists of images", columns(v=[[png(1), png(2)], [png(3)]], n=[0, 1]), table(PARQUET, {"v": "image"}),
        refused(InputError, "'v'")),
    row("lists of paths of images", pictures("a.png", "b.png", **{"in/in.parquet": {"v": [["a.png", "b.png"],
        ["a.png"]]}}), table("in/in.parquet", {"v": "image"}), refused(InputError, "'v'")),
    row("parts of other columns", {"in/a.parquet": {"a": [1]}, "in/b.parquet": {"b": [1]}}, table("in"),
        refused(InputError, "b")),
    row("a part without a split",
        {"in/train-00000-of-00001.parquet": {"x": [1]}, "in/extra.parquet": {"x": [1]}}, table("in"),
        refused(InputError, "extra")),
    row("parts that are missing",
        {"in/train-00000-of-00003.parquet": {"x": [1]}, "in/test-00000-of-00001.parquet": {"x": [1]}},
        table("in"), refused(InputError, "train")),
    row("parts of other class names", {"in/train.parquet": hf_table({"y": [0]}, {"y": NAMES}),
        "in/test.parquet": hf_table({"y": [0]}, {"y": {"_type": "ClassLabel", "names": ["dog", "cat"]}})},
        table("in"), refused(InputError)),
    *(row(f"group by {name}", columns(x=[1, 2, 3], g=values), table(PARQUET, splits=HALVES, group_by=by),
        refused(InputError, by)) for name, by, values in [("missing text", "g", ["a", "", "b"]),
        ("lists", "g", [["a"], ["b"], ["c"]]), ("no column", "h", [1, 2, 3])]),
]  # fmt: skip

# Files, columns and metadata that are rare

CAT_DOG = {"_type": "ClassLabel", "names": ["cat", "dog", "猫"]}
OBJECTS = [{"c": [2]}, {"c": [0, 2]}]
IN_OBJECTS = {"o/c": [["猫"], ["cat", "猫"]]}
# by form of the metadata: a column, what Hugging Face says of it, and its values if it has classes
METADATA = {
    "a feature": ({"o": OBJECTS}, {"o": {"feature": {"id": {"_type": "Value"}, "c": CAT_DOG}}}, IN_OBJECTS),
    "a list": ({"o": [[{"c": 2}], [{"c": 0}, {"c": 2}]]}, {"o": [{"c": CAT_DOG}]}, IN_OBJECTS),
    "no class in any row": ({"label": [-1, -1]}, {"label": CAT_DOG}, {"label": [None, None]}),
    "one of two": ({"f": [2, 0], "g": [0, 1]}, {"f": CAT_DOG, "g": CAT_DOG}, None),
    "no names": ({"f": [2, 0]}, {"f": {"_type": "ClassLabel", "num_classes": 3}}, None),
    "text": ({"f": [2, 0]}, "features", None),
}  # fmt: skip
PHOTO = png(1)
# values of a column x whose images nobody declared, and whether there is a column of images, too
UNDECLARED = {
    "paths": (["a.png", "b.png"], False), "paths of no files": (["no/a.JPG", "no/b.tif"], False),
    "one of them a path": (["a.png", "a cat", "a dog"], False),
    "structs": (BARE, False), "paths and nothing": (["a.png", "", "", ""], False),
    "paths next to images": (["a.png", "b.png"], True),
    "categories": (pa.array(["a.png", "a.png"]).dictionary_encode(), False),
    "URLs": (["s3://b/a.png", "gs://b/a.png"], True), "addresses": (["https://h/a.png"] * 2, False),
    "images": ([PHOTO, PHOTO], False), "images next to images": ([PHOTO, PHOTO], True),
    "lists": ([["a.png"], []], False),
}  # fmt: skip
PLAIN_VALUES = {
    "text": (["x/y.txt", "a cat"], False), "ids": (["a", "b"], False),
    "addresses": (["https://h/a", "HTTP"], True),
    "bytes": ([b"\0\1", b"\2"], False), "nothing": (["", ""], False),
}  # fmt: skip
NO_FILE = {"a folder": "sub", "the root": ".", "below a file": "a.png/b.png", "too long": "x" * 300 + ".png",
           "a NUL": "a\0b", "nothing": "", "backslashes": "sub\\b.png"}  # fmt: skip
EACH = pa.array([{"bytes": png(7), "path": "0.png"}, {"bytes": None, "path": "b.png"}, {"bytes": None,
    "path": "c.png"}, {"bytes": None, "path": None}], HF_IMAGE)  # fmt: skip


def beside(values, has_images):
    """Return a table of a column x, next to two pictures that a column may name."""
    more = {"file_name": ["a.png", "b.png"]} if has_images else {}
    return pictures("a.png", "b.png", **{"in/in.parquet": {"x": values, "n": [*range(len(values))], **more}})


def by_folder(*names):
    return pictures(*names, **{"in/metadata.jsonl": [{"file_name": name} for name in names]})


def in_folders(*names):
    found = {}
    for number, name in enumerate(names):
        found.setdefault(name.split("/")[-2], {})[name] = {"image": number}
    return {split: found[split] for split in ("train", "test") if split in found}


RARE = [
    *(row(f"metadata of {name}", {PARQUET: hf_table(found, features)}, table(PARQUET,
        dict.fromkeys(values or (), "label")), stored(by_row(**(values or {n: np.array(each) for n, each in
        found.items()})), *(CAT_DOG["names"]
        if values else ()))) for name, (found, features, values) in METADATA.items()),
    row("a file in a folder of a value", {"year=2020/in.parquet": {"x": [1]}}, table("year=2020/in.parquet"),
        stored(by_row(x=np.array([1]), year=np.array([2020])))),
    row("separators of others in a name", {"in.csv": "a;b,c\n1;2,3\n"}, table(), stored(by_row(**{"a;b":
        ["1;2"], "c": np.array([3])}))),
    row("a row of three megabytes", {"in.csv": f"a,b\n{'x' * (3 << 20)},1\n"}, table(),
        stored(by_row(a=["x" * (3 << 20)], b=np.array([1])))),
    *(row(f"no header above {first}", {"in.csv": f"{first}\nb.png,b.png\n"}, table(), refused(InputError,
        "the first row")) for first in ("a.png,0", "0,./a.PNG")),
    row("a large integer in a struct", {JSONL: [{"x": {"n": [[0.5], [2**60 + 1]]}}]}, table(JSONL),
        refused(InputError, "x", str(2**60 + 1))),
    label_row("nothing", pa.nulls(2), [-1, -1], warns=("-1",)),
    label_row("missing in a dictionary", pa.array(["b", None]).dictionary_encode(), ["b", None], "b"),
    label_row("missing small integers", pa.array([3, None], pa.uint8()), [3, -1]),
    *(label_row(f"with {mark!r}", ["dog", text, "dog"], ["dog", text, "dog"], *sorted(["dog", text]))
        for mark, text in {"|": "cat|dog", ";": "Effusion; Mass"}.items()),
    label_row("half a list", ["['dog'", "['cat']"], ["['dog'", "['cat']"], "['cat']", "['dog'"),
    label_row("a list that is one class", ["['dog']", "['cat']"], ["['dog']", "['cat']"], "['cat']",
        "['dog']", label_separator=""),
    label_row("of other Unicode forms", ["caf\u00e9", "cafe\u0301"], ["caf\u00e9", "cafe\u0301"],
        "cafe\u0301", "caf\u00e9", warns=("'caf\u00e9'",)),
    row("a separator without labels", columns(x=[1]), table(PARQUET, label_separator="|"),
        refused(InputError, "label_separator")),
    *(row(f"group by {name}", columns(x=[1, 2, 3], g=values), table(PARQUET, splits=HALVES, group_by="g"),
        refused(InputError, "g")) for name, values in {"a missing number": [1, None, 2],
        "NaN": [0.5, 1, math.nan]}.items()),
    row("a part without rows", {"in/train-00000-of-00002.parquet": {"x": [1, 2]},
        "in/train-00001-of-00002.parquet": {"x": np.array([], int)}}, table("in"),
        stored(by_row(x=np.array([1, 2])))),
    row("parts without rows", {f"in/train-0000{n}-of-00002.parquet": {"x": np.array([], int)} for n in (0,
        1)}, table("in"), refused(InputError, "has no rows")),
    *(row(f"named parts {name}", {"in/train-00001-of-00002.parquet": {"x": [1]}}, table(f"in/{name}"),
        stored(by_row(x=np.array([1])), warns=("train-*-of-00002",))) for name in ("train-*.parquet",
        "train-00001-of-00002.parquet")),
    row("metadata in the folders of splits", {f"in/{split}/{name}": given for split in ("train", "test") for
        name, given in (("0.png", 0), ("metadata.jsonl", [{"file_name": "0.png"}]))}, table("in"),
        refused(InputError, "none of the image", "'0.png' in")),
    row("a column called image",
        pictures("a.png", "b.png", **{"in/in.csv": "note,image\nx,b.png\ny,a.png\n"}),
        table("in/in.csv"), stored({"train": {"a.png": {"image": 0, "note": "y"},
        "b.png": {"image": 1,
        "note": "x"}}})),
    row("paths that look like numbers", pictures("007", "1", **{"in/in.csv": "image,n\n007,1\n1,2\n"}),
        table("in/in.csv"), stored({"train": {"007": {"image": 0, "n": 1}, "1": {"image": 1, "n": 2}}})),
    row("a mask called image", {"in/a.png": 0, "in/m.png": MASK, "in/in.csv": "image,photo\nm.png,a.png\n"},
        table("in/in.csv", {"image": "mask", "photo": "image"}), stored({"train": {"m.png": {"photo": 0,
        "image": MASK}}})),
    *(row(f"{name} called image", pictures("a.png", **{"in/in.parquet": {"image": values, "n": [1, 2]}}),
        table("in/in.parquet"), refused(InputError, code)) for name, (values, code) in {"text": (["a car",
        "a cat"], "none of the image"), "numbers": ([7, 8], "image paths must be text"),
        "lists of numbers": ([[0, 1], [2]], "image paths must be text"), "lists of paths": ([["a.png"]] * 2,
        "image paths must be text")}.items()),
    *(row(f"undeclared {name}", beside(*found), table("in/in.parquet"), refused(InputError,
        "'x'", "{'x': 'image'}", "{'x': 'value'}"))
        for name, found in UNDECLARED.items()),
    *(row(f"{name} that are no images", beside(values, has_images), table("in/in.parquet"),
        stored({"train": {f"{'ab'[n]}.png" if has_images else str(n): {"x": value, "n": n} | ({"image": n}
        if has_images else {}) for n, value in enumerate(values)}}, features={"x": "bytes bytes"})) for name,
        (values, has_images) in PLAIN_VALUES.items()),
    row("paths that are declared as values", pictures("a.png", **{"in/in.csv": "image,x\na car,a.png\n"}),
        table("in/in.csv", {"image": "value", "x": "value"}), stored(by_row(image=["a car"], x=["a.png"]))),
    *(row(f"a column of images without files {name}", pictures("a.png", **{"in/in.csv": f"{name},n\nz,1\n"}),
        table("in/in.csv", roles), refused(InputError, "none of the image", f"'{name}'",
        f"{{'{{{name}}}.jpg': 'image'}}", f"{{{name!r}: 'drop'}}"))
        for name, roles in (("file_name", None), ("x", {"x": "image"}))),
    row("a template without files", pictures("a.png", **{"in/in.csv": "id\n7\n"}), table("in/in.csv",
        {"x/{id}.png": "image"}), refused(InputError, "none of the image", "x/7.png", "template",
        "root=DIR")),
    *(row(f"ids without suffix in {name}", {"in/7.jpg": jpeg(7), "in/in.csv": f"{name},n\n7,1\n"},
        table("in/in.csv", {f"{{{name}}}.jpg": "image", name: "drop"}), stored({"train": {"7.jpg": {"image":
        jpeg(7), "n": 1}}})) for name in ("id", "image", "file_name")),
    *(row(f"a path to {name}", pictures("a.png", "sub/b.png", **{"in/in.parquet": {"file_name": ["a.png",
        path, "sub/b.png"]}}), table("in/in.parquet", max_rejected="50%"),
        stored({"train": {key: {"image": n} for n, key in enumerate(("0", "2") if name in ("a NUL",
        "nothing") else ("a.png", "sub/b.png"))}}, rejected={"missing": 1})) for name,
        path in NO_FILE.items()),
    row("images inside or by path", pictures("a.png", "b.png", **{"in/in.parquet": {"image": EACH}}),
        table("in/in.parquet", max_rejected="90%"), stored({"train": {"0": {"image": 7}, "1": {"image": 1}}},
        rejected={"missing": 2})),
    *(row(f"text that is a path {name}", pictures("GIF89a1.png", **{"in/in.parquet": {"x": pa.array(
        ["GIF89a1.png"], kind)}}), table("in/in.parquet", {"x": "image"}), stored(named("GIF89a1.png",
        feature="x"))) for name, kind in {"that begins like an image": pa.string(),
        "of a large type": pa.large_string(), "in a view": pa.string_view()}.items()),
    row("bytes of which one is a path", {PARQUET: {"image": [b"a.png", png(1)]}}, table(PARQUET,
        max_rejected="50%"), stored({"train": {"1": {"image": 1}}}, rejected={"unreadable": 1})),
    row("an image in two splits", listed("a.png,train", "./a.png,val", "b.png,train", head="file_name,split"),
        table("in"), stored({"train": {"a.png": {"image": 0}, "b.png": {"image": 1}},
        "val": {"./a.png": {"image": 0}}})),
    row("folders of paths are splits", by_folder("train/0.png", "./test/0.png", "train/1.png"), table("in"),
        stored(in_folders("train/0.png", "./test/0.png", "train/1.png"))),
    row("folders that are not all splits", by_folder("train/0.png", "test/0.png", "x/0.png"), table("in"),
        refused(InputError, "test, train", "'x'", "split")),
    row("one folder is no split", by_folder("train/0.png", "train/1.png"), table("in"),
        stored(named("train/0.png", "train/1.png"))),
]  # fmt: skip


# Boxes that nobody declared, next to images: by name, and a column for each value
BOXED = {
    "a box": {"bbox": [[1, 2, 3, 4]] * 2}, "boxes": {"Boxes": [[[1.0, 2, 3, 4]], []]},
    "fixed lists": {"gt_box": pa.array([[1, 2, 3, 4]] * 2, pa.list_(pa.float32(), 4))},
    "boxes of objects": {"objects/bbox": [[[1, 2, 3, 4]], [[1, 2, 3, 4]] * 2]},
}  # fmt: skip
SIDES = [("xmin", "ymin", "xmax", "ymax"), ("X_Min", "Y_Min", "X_Max", "Y_Max"), ("x1", "y1", "x2", "y2"),
         ("Left", "Top", "Right", "Bottom")]  # fmt: skip
NO_BOXES = {
    "four numbers of another name": {"pose": [[1, 2, 3, 4]] * 2}, "three numbers": {"box": [[1, 2, 3]] * 2},
    "a number": {"box": [1, 2]}, }  # fmt: skip


def sides_of(sides, values=(1, 2)):
    return {name: [*values] for name in sides}


def next_to_images(values):
    return pictures("a.png", "b.png", **{"in/in.parquet": {"file_name": ["a.png", "b.png"], **values}})


def rows_of(values):
    """Return what is stored of two rows with images and other columns."""
    return {"train": {f"{'ab'[n]}.png": {"image": n, **{name: column[n] for name, column in values.items()}}
        for n in range(2)}}  # fmt: skip


IN_PARQUET = table("in/in.parquet")
BOXES = [
    *(row(f"undeclared {name}", next_to_images(values), IN_PARQUET, refused(InputError,
          f"{{{next(iter(values))!r}: 'xywh'}}", f"{{{next(iter(values))!r}: 'value'}}")) for name,
        values in BOXED.items()),
    *(row(f"undeclared sides {sides[0]}", next_to_images(sides_of(sides)), IN_PARQUET, refused(InputError,
        "{'bbox': 'xyxy'}", f"{{{sides[0]!r}: 'value'}}", "frame['bbox']")) for sides in SIDES),
    row("undeclared sides in another order", next_to_images(sides_of(SIDES[1][::-1])), IN_PARQUET,
        refused(InputError, "['X_Min', 'Y_Min', 'X_Max', 'Y_Max']", "{'X_Min': 'value'}")),
    *(row(f"no boxes: {name}", next_to_images(values), IN_PARQUET, stored(rows_of(values))) for name,
        values in NO_BOXES.items()),
    row("boxes that are values", next_to_images(BOXED["a box"]), table("in/in.parquet", {"bbox": "value"}),
        stored(rows_of(BOXED["a box"]), features={"bbox": "int int64 4"})),
    *(row(f"no boxes: {name}", next_to_images(values), IN_PARQUET, stored(rows_of(values))) for name,
        values in {"three sides": sides_of(SIDES[0][:3]), "text": sides_of(SIDES[0], "ab")}.items()),
    row("sides of which one is a value", next_to_images(sides_of(SIDES[0])), table("in/in.parquet",
        {"xmin": "value"}), stored(rows_of(sides_of(SIDES[0])))),
    row("boxes without images", columns(bbox=[[1, 2, 3, 4]] * 2), table(PARQUET), stored(by_row(bbox=[[1, 2,
        3, 4]] * 2))),
]  # fmt: skip

# Tables as other programs write them


def two_parts(first, second):
    """Return two files of a column x with these values, next to a column of numbers."""
    return {"in/a.parquet": {"x": first, "y": [1]}, "in/b.parquet": {"y": [2], "x": second}}


def valued(*folders, suffix="parquet"):
    rows = "x\n{0}\n{1}\n".format if suffix == "csv" else lambda *each: {"x": [*each]}
    return {f"in/{name}/p.{suffix}": rows(n * 10, n * 10 + 1) for n, name in enumerate(folders)}


LIKE = [("label", name) for name in ("Label", "LABEL", " label", "label ")]
LIKE += [("split", name) for name in ("Split", "SPLIT", " split")]
USUAL_ROLE = {"file_name": "image"}
LIKE += [("file_name", "File_Name"), ("key", "Key"), ("image", " image")]
NO_NUMBERS = ("713752e1", "1234e567", "+49170", "00007", "1.10", "12E4", "0e1", "1e05", "nan", "-0")
NO_BOOLS = (["0", "1", "true"], ["true", "1", "false"], ["True", "False", "True"], ["true", "0.5", "1"])
JOINED = {
    "text": (pa.array(["a"]), pa.array(["b"], pa.large_string()), ["a", "b"]),
    "a dictionary": (pa.array(["a"]), pa.array(["b"]).dictionary_encode(), ["a", "b"]),
    "bytes": (pa.array([b"a"]), pa.array([b"b"], pa.large_binary()), ["a", "b"]),
    "views": (pa.array(["a"], pa.string_view()), pa.array(["b"]), ["a", "b"]),
    "lists": (pa.array([[1, 2]]), pa.array([[3, 4]], pa.large_list(pa.int64())), [[1, 2], [3, 4]]),
    "lists of nothing": (pa.array([[1]]), pa.array([[]], pa.list_(pa.null())), [[1], NONE]),
}  # fmt: skip
APART = {
    "integers and fractions": (pa.array([1]), pa.array([0.5]), ("int64", "double")),
    "text and bytes": (pa.array(["a"]), pa.array([b"a"]), ("string", "binary")),
    "integers of two sizes": (pa.array([1], pa.int32()), pa.array([1]), ("int32", "int64")),
    "lists and numbers": (pa.array([[1]]), pa.array([1]), ("list", "int64")),
}  # fmt: skip
NO_LINES = {"a list": '[{"a": 1}, {"a": 2}]\n', "commas": '{"a": 1},\n{"a": 2},\n', "text": '"a"\n',
            "two in a line": '{"a": 1} {"a": 2}\n', "a line in two": '{"a":\n1}\n'}  # fmt: skip
ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32")
FORMS_OF_UNICODE = [("caf\u00e9", "cafe\u0301"), ("cafe\u0301", "caf\u00e9"), ("\uac00", "\u1100\u1161"),
                    ("d\u00e9/\u00e9", "de\u0301/e\u0301")]  # fmt: skip
SAME_PATH = {
    PARQUET: {"image": pa.array([{"bytes": png(n), "path": "image.png"} for n in range(4)], HF_IMAGE)}
}
TWICE = listed("b.png,0", "a.png,1", "b.png,2", "a.png,3", head="file_name,x")
OTHERS = [
    row("the folder of a split", valued("split=test", "split=train"), table("in/split=test"),
        stored(by_row("test", x=np.array([0, 1])))),
    row("a pattern in the folder of a split", valued("split=test"), table("in/split=test/*.parquet"),
        stored(by_row("test", x=np.array([0, 1])))),
    row("the folders of a label and a year", valued("label=cat/year=2020", suffix="csv"),
        table("in/label=cat/year=2020"), stored(by_row(x=np.array([0, 1]), label=["cat"] * 2,
        year=np.array([2020] * 2)), "cat")),
    row("a folder above the last without a value", valued("n=1/m"), table("in/n=1/m"),
        stored(by_row(x=np.array([0, 1])))),
    row("folders of splits", valued("split=train", "split=test"), table("in"), stored({"train": {"2": {"x":
        0}, "3": {"x": 1}}, "test": {"0": {"x": 10}, "1": {"x": 11}}})),
    row("folders of labels", valued("label=cat", "label=a%20dog"), table("in"), stored(by_row(x=np.array([10,
        11, 0, 1]), label=["a dog", "a dog", "cat", "cat"]), "a dog", "cat")),
    row("folders of years and months", valued("year=2023/month=01", "year=2024/month=12"), table("in"),
        stored(by_row(x=np.array([0, 1, 10, 11]), year=np.array([2023, 2023, 2024, 2024]), month=["01", "01",
        "12", "12"]), warns=("'month'",))),
    row("tables of several folders with paths of images", {f"in/{one}/{name}": given for one in "ab" for name,
        given in (("0.png", 0), ("t.csv", "file_name\n0.png\n"))}, table("in/*/t.csv"), refused(InputError,
        "in several folders", "'file_name'")),
    row("a pattern of folders of values", valued("n=1", "n=2"), table("in/*/*.parquet"),
        stored(by_row(x=np.array([0, 1, 10, 11]), n=np.array([1, 1, 2, 2])))),
    row("a pattern of folders of values in the current folder", {"n=1/p.csv": "x\n7\n"}, table("*/*.csv"),
        stored(by_row(x=np.array([7]), n=np.array([1])))),
    row("folders of csv", valued("n=1", "n=2", suffix="csv"), table("in"), stored(by_row(x=np.array([0, 1, 10,
        11]), n=np.array([1, 1, 2, 2])))),
    row("a folder of no label", valued("label=__HIVE_DEFAULT_PARTITION__", "label=b"), table("in"),
        stored(by_row(x=np.array([0, 1, 10, 11]), label=[None, None, "b", "b"]), "b", warns=("-1",))),
    row("a folder of a column in the file", valued("x=1", "x=2"), table("in"), refused(InputError,
        "'x'")),
    row("a folder without a value", valued("n=1", "m"), table("in"), refused(InputError, "n=")),
    row("a list of files", {}, table(lambda: ["a.csv", "b.csv"]), refused(OptionsError, "not list", "*.csv")),
    *(row(f"{name!r} is nearly {usual}", {"in.csv": f"n,{name}\n1,train\n"}, table(), refused(InputError,
        f"{name!r}: {USUAL_ROLE.get(usual, usual)!r}", f"{name!r}: 'value'")) for usual, name in LIKE),
    *(row(f"{name!r} is declared", {"in.csv": f"n,{name}\n1,train\n"}, table(roles={name: "label"}),
        stored(by_row(n=np.array([1]), **{name: ["train"]}), "train")) for name in ("Label", "LABEL",
        " label")),
    row("a name like label is a value", {"in.csv": "n,Label\n1,a\n"}, table(roles={"Label": "value"}),
        stored(by_row(n=np.array([1]), Label=["a"]))),
    *(row(f"no number {text}", {"in.csv": f"n,x\n1,7\n2,{text}\n"}, table(), stored(by_row(n=np.array([1, 2]),
        x=["7", text]), warns=("'x'",))) for text in NO_NUMBERS),
    row("numbers of two lengths", {"in.csv": "x\n1.1\n1.10\n"}, table(), stored(by_row(x=["1.1", "1.10"]),
        warns=("'1.10'",))),
    row("labels that look like numbers", {"in.csv": "label\n1E2\n2E1\n"}, table(), stored(by_row(label=["1E2",
        "2E1"]), "1E2", "2E1")),
    *(row(f"no truth values {', '.join(texts)}", {"in.csv": "n,x\n" + "".join(f"{n},{text}\n" for n, text in
        enumerate(texts))}, table(), stored(by_row(n=np.arange(3), x=texts))) for texts in NO_BOOLS),
    row("classes 0, 1 and true", {"in.csv": "label\n0\n1\ntrue\n"}, table(), stored(by_row(label=["0", "1",
        "true"]), "0", "1", "true")),
    *(row(f"durations in {unit}", columns(x=[1], t=pa.array([1], pa.duration(unit))), table(PARQUET),
        refused(InputError, "'t'", f"duration[{unit}]")) for unit in ("s", "ms", "us", "ns")),
    row("a tensor of Arrow", {}, table(stream(x=[1, 2], t=pa.FixedShapeTensorArray.from_numpy_ndarray(
        np.arange(8).reshape(2, 2, 2)))), refused(InputError, "'t'", "tensor")),
    row("lists of durations", columns(x=[1], t=lists_of([[1]], pa.duration("s"))), table(PARQUET),
        refused(InputError, "'t'", "duration[s]")),
    row("durations that are dropped", columns(x=[1], t=pa.array([1], pa.duration("s"))), table(PARQUET,
        {"t": "drop"}), stored(by_row(x=np.array([1])))),
    *(row(f"parts of {name}", two_parts(first, second), table("in"), stored(by_row(x=values, y=np.array([1,
        2])))) for name, (first, second, values) in JOINED.items()),
    row("parts of a dictionary of labels", {"in/a.parquet": {"label": pa.array(["b",
        "a"]).dictionary_encode()}, "in/b.parquet": {"label": ["c"]}}, table("in"), stored(by_row(label=["b",
        "a", "c"]), "a", "b", "c")),
    *(row(f"parts of {name}", two_parts(first, second), table("in"), refused(InputError, "'x'", *types))
        for name, (first, second, types) in APART.items()),
    row("parts of csv", {"in/a.csv": "x,y\n1,a\n", "in/b.csv": "y,x\n007,2\n"}, table("in"),
        stored(by_row(x=np.array([1, 2]), y=["a", "007"]))),
    row("parts of jsonl", {"in/train.jsonl": [{"x": 1}], "in/test.jsonl": [{"x": 2}]}, table("in"),
        stored({"train": {"1": {"x": 1}}, "test": {"0": {"x": 2}}})),
    *(row(f"parts of two kinds {source}", {"in/a.csv": "x\n1\n", "in/b.parquet": {"x": [2]}}, table(source),
        refused(InputError, "a.csv", "b.parquet", pattern)) for source, pattern in {"in":
        "'in/**/*.parquet'", "in/*": "'in/*.parquet'", "*/[ab].*": "'*/*.parquet'"}.items()),
    *(row(f"annotations of COCO in {source}", {"in/annotations/instances_train.json": "{}"}, table(source),
        refused(InputError if source == "in" else OptionsError, "tfshards build coco")) for source in
        ("in", "in/annotations/instances_train.json")),
    row("rows that save_to_disk wrote", {"in/data-00000-of-00001.arrow": ""}, table("in"), refused(InputError,
        "to_parquet")),
    row("files of splits in capitals", {"in/Train.parquet": {"x": [1]}, "in/TEST.parquet": {"x": [2]}},
        table("in"), stored({"train": {"1": {"x": 1}}, "test": {"0": {"x": 2}}})),
    row("folders of splits in capitals", by_folder("Train/0.png", "TEST/0.png"), table("in"),
        stored({"train": {"Train/0.png": {"image": 0}}, "test": {"TEST/0.png": {"image": 1}}})),
    row("images inside of one path", SAME_PATH, table(PARQUET, splits={"a": "0.75", "b": "0.25"}, shards=1),
        stored({split: {key: {"image": int(key)} for key in keys} for split, keys in (("a", "023"), ("b",
        "1"))}, conversions={})),
    row("images inside of one path in groups", {PARQUET: SAME_PATH[PARQUET] | {"g": [1, 1, 2, 2]}},
        table(PARQUET, splits=HALVES, group_by="g", shards=1), stored({"a": {"2": {"image": 2, "g": 2}, "3":
        {"image": 3, "g": 2}}, "b": {"0": {"image": 0, "g": 1}, "1": {"image": 1, "g": 1}}})),
    row("rows of one image are not divided", TWICE, table("in", splits=HALVES), refused(InputError,
        "file_name")),
    row("rows of one image in groups", TWICE, table("in", splits=HALVES, group_by="file_name", shards=1),
        stored({"a": {"0": {"image": 1, "x": 0}, "2": {"image": 1, "x": 2}}, "b": {"1": {"image": 0, "x": 1},
        "3": {"image": 0, "x": 3}}})),
    *(row(f"{code} in {name}", {name: content.encode(code)}, table(name), refused(InputError, "UTF-16"
        if "16" in code else "UTF", "UTF-8")) for name, content in (("in.csv", "a,label\n1,x\n"), (JSONL,
        '{"a": 1}\n'), (TSV, "a\tb\n1\t2\n")) for code in ENCODINGS),
    row("a byte order mark in json", {JSONL: b'\xef\xbb\xbf{"a": 1}\n'}, table(JSONL),
        stored(by_row(a=np.array([1])))),
    *(row(f"no lines of json: {name}", {JSONL: content}, table(JSONL), refused(InputError, f"{JSONL}:1",
        "one object per line")) for name, content in NO_LINES.items()),
    row("a fault in the second line", {JSONL: '{"a": 1}\n{"a": }\n'}, table(JSONL), refused(InputError,
        f"{JSONL}:2")),
    *(row(f"a line of another type, {name}", {JSONL: content}, table(JSONL), refused(InputError,
        f"{JSONL}:{line}: ", "'a'")) for name, (content, line) in {"text":
        ('{"a": 1}\n\n{"b": 2}\n{"a": "x"}\n', 4), "in a list":
        ('{"a": [1]}\n{"a": [2, "x"]}\n{"a": 3}\n', 2), "far below":
        ('{"a": 1}\n' * 700 + '{"a": true}\n' + '{"a": 1}\n' * 700, 701), "a list":
        ('{"a": null}\n{"a": 1}\n{"a": [1]}\n', 3)}.items()),
    row("a line of another type in the second file", {"in/a.jsonl": [{"a": 1}] * 3, "in/b.jsonl": [{"a": 2},
        {"a": "x"}]}, table("in"), refused(InputError, "in/b.jsonl:2: ", "'a'")),
    *(row(f"a number of json beyond float64: {value}", {JSONL: f'{{"a": {value}}}\n'}, table(JSONL),
        refused(InputError, f"{JSONL}:1", "'a'", "inf")) for value in ("1e400", "[[0.5, -1e400]]")),
    row("integers and fractions of json", {JSONL: '{"a": 1}\n{"a": 0.5}\n'}, table(JSONL),
        stored(by_row(a=f64(1, 0.5)))),
    *(row(f"{one} and {other} of json", {JSONL: f'{{"a": {one}}}\n{{"a": {other}}}\n'}, table(JSONL),
        refused(InputError, "'a'")) for one, other in [("true", 1), (1, "true"), ("true", 0.5), (0.5,
        "true")]),
    *(row(f"truth values among numbers of json {name}", {JSONL: "".join(f'{{"a": {value}}}\n' for value in
        values)}, table(JSONL), refused(InputError, f"{JSONL}:{len(values)}: ", "'a'")) for name, values
        in {"in a list": ("[0.5]", "[0.5, true]"), "in lists of two rows": ("[0.5]", "null", "[true]"),
        "in lists of lists": ("[[0.5]]", "[[false]]"), "in objects": ('{"b": 0.5}', '{"b": true}'),
        "in lists of objects": ('[{"b": 0.5}]', '[{"c": 1, "b": 2}, {"b": true}]'), "in a list of one row":
        ("[0.5, true]",), "after integers in a list": ("[1]", "[0.5, 1]", "[2, true]")}.items()),
    *(row(f"a path in another Unicode form {given!r}", {f"in/{held}.png": 1, "in/in.parquet": {"file_name":
        [f"{given}.png"]}}, table("in/in.parquet"), stored({"train": {f"{given}.png": {"image": 1}}})) for
        given, held in FORMS_OF_UNICODE),
    row("a path in both Unicode forms", {"in/\u00e9.png": 1, "in/e\u0301.png": 2, "in/in.csv":
        "file_name\n\u00e9.png\ne\u0301.png\n"}, table("in/in.csv"), stored({"train": {"\u00e9.png": {"image":
        1}, "e\u0301.png": {"image": 2}}})),
    row("keys of text", columns(key=["b", "a"], x=[1, 2]), table(PARQUET), stored({"train": {"a": {"x": 2},
        "b": {"x": 1}}})),
    row("keys of numbers", columns(n=[10, 9], x=[1, 2]), table(PARQUET, {"n": "key"}), stored({"train": {"10":
        {"x": 1}, "9": {"x": 2}}})),
    row("keys before paths", pictures("a.png", "b.png", **{"in/in.csv": "file_name,key\nb.png,1\nb.png,2\n"}),
        table("in/in.csv"), stored({"train": {"1": {"image": 1}, "2": {"image": 1}}})),
    *(row(f"keys that are {name}", columns(key=keys, x=[1, 2]), table(PARQUET), refused(InputError,
        "'key'", where)) for name, keys, where in (("repeated", ["a", "a"], "row 2"), ("empty", ["a", ""],
        "row 2"), ("missing", ["a", None], "row 2"), ("fractions", [0.5, 1.5], "float64"), ("with NUL",
        ["a\0b", "c"], "row 1"))),
    row("declared lists of any length", columns(x=[[1, 2], [3, 4]]), table(PARQUET, {"x": "list"}),
        stored(by_row(x=[[1, 2], [3, 4]]), features={"x": "int int64 ?"})),
    row("lists next to boxes, which a crop may remove", {PARQUET: {"o": [{"box": [[1, 2, 3, 4]], "n": [n],
        "w": [n / 2]} for n in (5, 6)]}}, table(PARQUET, {"o/box": "xywh"}), stored(by_row(**{"o/box":
        [[[1, 2, 3, 4]]] * 2, "o/n": [[5], [6]], "o/w": [[2.5], [3.0]]}), features={"o/n": "int int64 ?",
        "o/w": "float float32 ?"})),
    row("no lists", columns(x=[1, 2]), table(PARQUET, {"x": "list"}), refused(InputError, "'x'")),
    row("two labels", columns(x=[1], y=[2]), table(PARQUET, {"x": "label", "y": "label"}),
        refused(OptionsError, "'x'", "'y'")),
    row("a column that is meant", columns(breed=["a"]), table(PARQUET, {"bread": "label"}),
        refused(InputError, "its columns are breed")),
    row("a stream", {}, table(stream(x=[1, 2], label=["b", "a"])), stored(by_row(x=np.array([1, 2]),
        label=["b", "a"]), "a", "b")),
    row("a stream of images", {}, table(stream(image=INSIDE, n=[1, 2])), stored({"train": {"x/3.png":
        {"image": png(3), "n": 1}, "x/4.jpg": {"image": jpeg(4), "n": 2}}})),
    row("a stream of text and categories in views", {}, table(stream(t=pa.array(["a", "b"], pa.string_view()),
        label=pa.DictionaryArray.from_arrays(pa.array([1, None], pa.uint32()), pa.array(["c", "d"],
        pa.string_view())))), stored(by_row(t=["a", "b"], label=["d", None]), "d", warns=("-1",))),
    row("a rare image of bytes", {PARQUET: {"image": pa.array([None] * 200 + [png(1)], pa.binary())}},
        table(PARQUET, max_rejected="100%", shards=1), stored({"train": {"200": {"image": 1}}},
        rejected={"missing": 200})),
]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "call", "expected"),
    [*FORMS, *TYPE_ROWS, *LABELS, *PARTS, *IMAGES, *REFUSALS, *RARE, *BOXES, *OTHERS],
)
def test_a_table_becomes_what_it_holds_or_is_refused(files, call, expected):
    check(files, call, expected)


@pytest.mark.parametrize("source", [".", "p.csv", "./p.csv", "*.csv", "../split=test", "../../*/*/p.csv"])
def test_names_of_the_current_folder_are_values_however_the_source_is_written(source, tmp_path, monkeypatch):
    folder = tmp_path / "label=cat" / "split=test"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    expected = stored(by_row("test", x=np.array([7, 8]), label=["cat"] * 2), "cat")
    check({"p.csv": "x\n7\n8\n"}, table(source), expected)
