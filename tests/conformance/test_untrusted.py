"""Sources that somebody else wrote: nothing outside of them is read or quoted, and no parser runs away."""

import os

import pytest

from tests.conformance.calls import coco, table, yolo
from tests.conformance.inputs import SECRET, Link
from tests.conformance.rows import by_row, refused, row, stored
from tests.conformance.runner import check
from tests.conformance.test_annotations import NAMES, boxed, named, objects
from tfshards.schemas import InputError

# a folder of YOLO, a folder next to it, and a file that nobody may read
AROUND = {"in/images/1.png": 0, "in/images/1.txt": "0 .5 .5 .1 .1", "other/1.png": 0,
          "other/1.txt": "0 .5 .5 .1 .1", "secret.txt": f"{SECRET}\n{SECRET}\n"}  # fmt: skip
# what YOLO names outside of its folder, and the path that the refusal quotes
YOLO = {
    "a list elsewhere": ({"in/data.yaml": "train: images\nval: /etc/passwd"}, "passwd'"),
    "a relative list": ({"in/data.yaml": "train: images\nval: ../secret.txt"}, "'../secret.txt'"),
    "a link to a list": ({"in/list.txt": Link("../secret.txt"), "in/data.yaml": "train: list.txt"},
        "'list.txt'"),
    "a path elsewhere": ({"in/data.yaml": "path: ../other\ntrain: ."}, "'../other'"),
    "a folder elsewhere": ({"in/data.yaml": "train: ../other"}, "'../other'"),
    "a link to a folder": ({"in/link": Link("../other"), "in/data.yaml": "train: link"}, "'link'"),
    "an image of a list": ({"in/list.txt": "../other/1.png\n", "in/data.yaml": "train: list.txt"},
        "'../other/1.png'"),
    "a linked data.yaml": ({"in/data.yaml": Link("../secret.txt")}, "'in/data.yaml'"),
    "linked names": ({"in/classes.txt": Link("../secret.txt")}, "'in/classes.txt'"),
}  # fmt: skip


def of_coco(file_name):
    return {"images": [{"id": 1, "file_name": file_name}], "categories": [], "annotations": []}


# files with an image outside of the source, and the source
COCO = {
    "a relative path": ({"in/a.json": of_coco("../other/1.png")}, "in/a.json"),
    "an absolute path": ({"in/a.json": of_coco("/etc/passwd")}, "in/a.json"),
    "a linked file": ({"x/instances_train.json": of_coco("1.png"),
        "in/annotations/instances_train.json": Link("../../x/instances_train.json")}, "in"),
    "a linked folder": ({"in/annotations/instances_train.json": of_coco("1.png"),
        "in/train": Link("../other")}, "in"),
}  # fmt: skip
OUTSIDE = [
    *(row(f"YOLO with {name} outside", AROUND | files, yolo(), refused(InputError, "outside", f"{shown} is",
        "root=")) for name, (files, shown) in YOLO.items()),
    *(row(f"COCO with {name} outside", AROUND | files, coco(source), refused(InputError, "outside"))
        for name, (files, source) in COCO.items()),
    row("a folder of YOLO outside that is followed", AROUND | {"in/data.yaml": "train: ../other\nnames: [a]"},
        yolo(follow_links=True), stored({"train": boxed("../other", "a", {"1.png": "0 .5 .5 .1 .1"})}, "a")),
    row("a folder of YOLO below a root",
        AROUND | {"in/data.yaml": "train: other\nval: in/images\nnames: [a]"}, yolo(root="."),
        stored({split: boxed(folder, "a", {"1.png": "0 .5 .5 .1 .1"}) for split, folder in {"train": "other",
        "val": "in/images"}.items()}, "a")),
    row("images of COCO outside that are followed", named(lambda name, n: f"../other/{name}", "other"),
        coco("in/any.json", follow_links=True), stored({"train": objects("../other/")}, *NAMES)),
    row("images above a folder that is not called annotations", {"in/1.png": 1, "in/any/a.json":
        of_coco("1.png")}, coco("in/any/a.json"), refused(InputError, "1.png", "in/any")),
    *(row(f"a linked {name}", {f"in/{name}": Link("../secret.txt"), "secret.txt": secret}, table("in"),
        refused(InputError, "outside", f"'in/{name}' is outside in")) for name, secret in (("metadata.csv",
        f"{SECRET}\n1\n"), ("metadata.jsonl", f'{{"{SECRET}": 1}}\n'))),
    row("a linked table that is named", {"in.csv": Link("t.txt"), "t.txt": "x\n1\n2\n"}, table(),
        stored(by_row(x=[1, 2]))),
]  # fmt: skip
ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
# by file: small files that would take a parser forever, or all memory
BOMBS = {
    "aliases": ("data.yaml", f"{ALIASES}train: images\nnames: *a9\n"),
    "deep YAML": ("data.yaml", f"names: {'[' * 100_000}{']' * 100_000}"),
    "a long number": ("data.yaml", f"names: 1{':59' * 300_000}"),
    "long YAML": ("data.yaml", "x: y\n" * 300_000),
    "deep COCO": ("a.json", f"{'[' * 100_000}{']' * 100_000}"),
    "deep JSON lines": ("m.jsonl", f'{{"x": {"[" * 50_000}{"]" * 50_000}}}'),
}
READ = {"data.yaml": yolo(), "a.json": coco("in/a.json"), "m.jsonl": table("in/m.jsonl")}
PARSED = [
    *(row(f"a bomb of {name}", {"in/images/1.png": 0, f"in/{file}": text}, READ[file], refused(InputError,
        f"in/{file}")) for name, (file, text) in BOMBS.items()),
    row("brackets in text are not nested", {"in.jsonl": [{"x": "[" * 5000 + '"'}]}, table("in.jsonl"),
        stored(by_row(x=["[" * 5000 + '"']))),
]  # fmt: skip


@pytest.mark.parametrize(("files", "call", "expected"), [*OUTSIDE, *PARSED])
def test_what_somebody_else_wrote_is_neither_followed_nor_believed(files, call, expected):
    check(files, call, expected)


def test_a_pipe_among_parquet_files_is_refused():
    os.mkdir("in")
    os.mkfifo("in/x.parquet")
    check({}, table("in/*.parquet"), refused(InputError, "in/x.parquet", "not a regular file"))
