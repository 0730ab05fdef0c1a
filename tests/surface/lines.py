"""Every verb as data: a right line, the keys of its JSON, and its flags with values that are refused.

The names of flags are here and nowhere else in the generic tests: a flag that changes is one line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from tests.surface.command import run


class Flag(NamedTuple):
    """A flag and its wrong values."""

    wrong: tuple[str, ...] = ()
    """Values that are refused, in a message that names the flag."""
    status: int = 2
    named: str = ""
    """What the message names instead of the flag."""
    choice: str = ""
    """One of the choices, which a hint names when it is misspelled."""


# a path that does not exist
GONE = "gone.txt"
SWITCH = Flag(("x",))
# any text, or checked by a row of its own in test_refusals.py
TEXT = Flag()
COUNT = Flag(("x", "0", "-1"))


def choice(right: str) -> Flag:
    """Return a flag with choices."""
    return Flag((f"{right}{right[-1]}",), choice=right)


def file(status: int = 1) -> Flag:
    """Return a flag whose value is a path, which must exist."""
    return Flag((GONE,), status, GONE)


# the flags of every verb
OUTPUT = {
    "--config": file(2),
    "--jobs": COUNT,
    "--json": SWITCH,
    "--quiet": SWITCH,
    "--verbose": SWITCH,
}
FLAGS = {
    **OUTPUT,
    "--check": choice("decode"),
    "--channels": Flag(("2",)),
    "--depth": Flag(("9",)),
    "--mask-depth": Flag(("9",)),
    "--animation": choice("first"),
    "--resize": Flag(("x", "short=0", "5x")),
    "--format": choice("jpeg"),
    "--jpeg-quality": Flag(("x", "0", "101")),
    "--max-pixels": COUNT,
    "--for-training": COUNT,
    "--all-classes": SWITCH,
    "--as-bytes": Flag(("z",), 2, "z"),
    "--as-is": SWITCH,
    "--as-splits": SWITCH,
    "--audit": SWITCH,
    "--batch-size": COUNT,
    "--boxes-in": choice("file"),
    "--cache": Flag(("x",)),
    "--checksum": SWITCH,
    "--class-names": file(),
    "--classes": Flag(("z",), 2, "z"),
    "--compression": choice("gzip"),
    "--crop": choice("center"),
    "--decode": SWITCH,
    "--deep": SWITCH,
    "--distance": Flag(("x", "-1", "49", "٣")),
    "--dry-run": SWITCH,
    "--duplicates": choice("drop"),
    "--epoch": Flag(("x", "-1")),
    "--epochs": Flag(("x", "1:x"), named="x"),
    "--exclude": TEXT,
    "--fail-on": choice("leak"),
    "--first": COUNT,
    "--follow-links": SWITCH,
    "--group-by": TEXT,
    "--include": TEXT,
    "--keys": file(),
    "--keys-of": choice("leak"),
    "--label": Flag(("z",), 1, "z"),
    "--label-separator": TEXT,
    "--labels": file(),
    "--mask-dir": Flag((GONE,), 1, GONE),
    "--mask-name": Flag(("{x}",)),
    "--max-rejected": Flag(("some", "101%", "-1")),
    "--name": Flag(("a/b", "a b"), named="a"),
    "--new-classes": SWITCH,
    "--no-audit": SWITCH,
    "--outside-boxes": choice("clip"),
    "--output": TEXT,
    "--overwrite": SWITCH,
    "--repair": SWITCH,
    "--roles": Flag(("size", "size=x"), named="size"),
    "--root": Flag((GONE,), 1, GONE),
    "--save": TEXT,
    "--seconds": Flag(("x", "0", "-1")),
    "--seed": Flag(("x", "1.5")),
    "--segmentations": SWITCH,
    "--select": Flag(("z",), 2, "z"),
    "--shard-size": Flag(("1XB", "0", "-1")),
    "--shards": Flag(("many", "=2", "val=0", "0")),
    "--shuffle": Flag(("x",)),
    "--size": Flag(("x", "5x5")),
    "--split": Flag(("z",), 1, "z"),
    "--split-folders": Flag(("train", "=x"), named="split"),
    "--split-list": Flag((f"train={GONE}",), 1, GONE),
    "--splits": Flag(("train", "train=x"), named="train"),
    "--step": Flag(("x", "1:x"), named="x"),
    "--stratify": SWITCH,
    "--take": Flag(("x", "0")),
    "--to": choice("parquet"),
    "--workers": Flag(("x", "0")),
}
# audit writes the file, and any glob is one of a split
OF_VERB = {("audit", "--keys"): TEXT, ("adopt", "--splits"): Flag(("train",))}
MANIFEST = ("format_version", "name", "build_id", "schema", "compression", "splits", "totals", "options")


@cache
def _flags_of(verb: str) -> list[str]:
    """Return the flags that the help of a verb explains."""
    found = re.findall(r"^  (?:-\w, )?(--[a-z-]+)(?:, (--[a-z-]+))?", run(f"{verb} --help").out, re.MULTILINE)
    return [flag for pair in found for flag in pair if flag and flag != "--help"]


@dataclass(frozen=True)
class Line:
    """A verb, or a verb with its kind of source."""

    verb: str
    paths: str
    """Its positional arguments in the folder of the fixture."""
    keys: tuple[str, ...] = MANIFEST
    """Keys of its JSON document."""
    options: str = ""
    """Options of the right line."""
    inputs: tuple[int, ...] = (0,)
    """Which of the positional arguments must exist."""
    missing: int = 1
    """Exit status if one does not: 2 where its name shows that it cannot."""
    makes: str = ""
    """A file that the right line makes, changes or removes; "" if it changes nothing."""

    @property
    def flags(self) -> dict[str, Flag]:
        """The flags."""
        return {name: OF_VERB.get((self.verb, name), FLAGS[name]) for name in _flags_of(self.verb)}

    def own_flags(self) -> dict[str, Flag]:
        """Return the flags, but without those of another verb or kind that the same code adds to both."""
        shared: set[str] = set()
        if self.verb in ("build table", "build coco", "build yolo"):
            shared = {*_flags_of("build images")}
        if self.verb.startswith("plan "):
            shared = {*_flags_of(self.verb.replace("plan", "build"))}
        return {name: flag for name, flag in self.flags.items() if name not in shared}

    def with_path(self, index: int, path: str) -> list[str]:
        """Return the words of the command line with another positional argument."""
        paths = self.paths.split()
        return [*self.verb.split(), *paths[:index], path, *paths[index + 1 :], *self.options.split()]


def kinds(verb: str, **what: object) -> list[Line]:
    """Return the lines of a verb for each kind of source."""
    return [
        Line(f"{verb} images", "photos new", **what),
        Line(f"{verb} arrays", "x.npy new", **what, missing=2),
        Line(f"{verb} table", "t.csv new", **what),
        Line(f"{verb} coco", "coco.json new", **what),
        Line(f"{verb} yolo", "yolo new", **what),
    ]


LINES = [
    *kinds("build", makes="new/dataset.json"),
    *kinds("plan", keys=("schema", "splits", "skipped")),
    Line("info", "data"),
    Line("show", "data cat/0.png", ()),
    Line("verify", "data", ()),
    Line("audit", "data", ("num_examples", "label_counts", "findings", "notes")),
    Line("report", "data", ("page",), options="--output page.html --no-audit", makes="page.html"),
    Line("diff", "data data", ("is_same", "num_same", "added", "removed", "changed"), inputs=(0, 1)),
    Line("generations", "data", ()),
    Line("restore", "data OLD", makes="data/dataset.json"),
    Line("prune", "data", (), makes="data/OLD"),
    Line("reshard", "data new", makes="new/dataset.json"),
    Line("merge", "a=data b=new-ones new", options="--as-splits", inputs=(), makes="new/dataset.json"),
    Line("append", "photos data", inputs=(0, 1)),
    Line("remove", "data", options="--keys keys", makes="data/dataset.json"),
    Line("relabel", "data", options="--labels labels.csv", makes="data/dataset.json"),
    Line(
        "export",
        "data new",
        ("directory", "to", "num_examples", "files"),
        options="--to webdataset",
        makes="new",
    ),
    Line("adopt", "found", makes="found/dataset.json"),
    Line("bench", "numbers", ("limit", "advice"), options="--batch-size 2 --seconds 0.01"),
    Line("which", "data position.json", (), options="--step 0"),
    Line("when", "data position.json cat/0.png", ()),
    Line("completion", "bash", (), inputs=()),
]
