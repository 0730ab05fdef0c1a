"""Every verb as data: a right line, the keys of its JSON, and its flags with values that are refused.

The names of flags are here and nowhere else in the generic tests: a flag that changes is one line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


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


OUTPUT = {
    "--config": file(),
    "--jobs": COUNT,
    "--json": SWITCH,
    "--quiet": SWITCH,
    "--verbose": SWITCH,
}
ENGINE = {"--engine": choice("local")}
SHARDS = {
    "--shards": Flag(("many", "=2", "val=0", "0")),
    "--shard-size": Flag(("1XB", "0", "-1")),
    "--compression": choice("gzip"),
    "--name": Flag(("a/b", "a b")),
}
PLAN = {
    **SHARDS,
    "--class-names": file(),
    "--seed": Flag(("x", "1.5")),
    "--splits": Flag(("train", "train=x", "train=0"), named="train"),
    "--stratify": SWITCH,
    "--group-by": TEXT,
    "--duplicates": choice("drop"),
}
BUILD = {"--overwrite": SWITCH, "--checksum": SWITCH, **ENGINE}
REJECTED = {"--max-rejected": Flag(("some", "101%", "-1"))}
PIXELS = {
    "--check": choice("decode"),
    "--channels": choice("keep"),
    "--depth": choice("keep"),
    "--mask-depth": Flag(("9",)),
    "--alpha": choice("white"),
    "--animation": choice("first"),
    "--resize": Flag(("x", "short=0", "5x")),
    "--format": choice("jpeg"),
    "--jpeg-quality": Flag(("x", "0", "101")),
    "--max-pixels": COUNT,
    "--for-training": COUNT,
}
IMAGES = {
    **PIXELS,
    **REJECTED,
    "--follow-links": SWITCH,
    "--split-folders": Flag(("train", "=x"), named="split"),
    "--include": TEXT,
    "--exclude": TEXT,
    "--mask-dir": Flag((GONE,), 1, GONE),
    "--mask-name": Flag(("{x}",)),
    "--split-list": Flag((f"train={GONE}",), 1, GONE),
    "--as-is": SWITCH,
}
ARRAYS = {
    "--roles": Flag(("size", "size=x"), named="size"),
}
TABLE = {
    **PIXELS,
    **REJECTED,
    "--root": Flag((GONE,), 1, GONE),
    "--follow-links": SWITCH,
    "--outside-boxes": choice("clip"),
    "--boxes-in": choice("file"),
    "--label-separator": TEXT,
    "--roles": Flag(("size", "size=x"), named="size"),
}
ANNOTATIONS = {
    **PIXELS,
    **REJECTED,
    "--root": Flag((GONE,), 1, GONE),
    "--follow-links": SWITCH,
    "--segmentations": SWITCH,
    "--outside-boxes": choice("clip"),
    "--boxes-in": choice("file"),
    "--roles": Flag(("size", "size=x"), named="size"),
}
MANIFEST = ("format_version", "name", "build_id", "schema", "compression", "splits", "totals", "options")


@dataclass(frozen=True)
class Line:
    """A verb, or a verb with its kind of source."""

    verb: str
    paths: str
    """Its positional arguments in the folder of the fixture."""
    flags: dict[str, Flag]
    keys: tuple[str, ...]
    """Keys of its JSON document."""
    options: str = ""
    """Options of the right line."""
    inputs: tuple[int, ...] = (0,)
    """Which of the positional arguments must exist."""
    missing: int = 1
    """Exit status if one does not: 2 where its name shows that it cannot."""
    output: int | None = None
    """Which of the positional arguments is a new folder."""
    makes: str = ""
    """A file that the right line makes, changes or removes; "" if it changes nothing."""

    def own_flags(self) -> dict[str, Flag]:
        """Return the flags, but without those of another verb or kind that the same code adds to both."""
        shared = {}
        if self.verb in ("build table", "build coco", "build yolo"):
            shared = {**PIXELS, **PLAN, **BUILD, **OUTPUT}
        if self.verb.startswith("plan "):
            shared = {**PLAN, **IMAGES, **ARRAYS, **TABLE, **ANNOTATIONS, **OUTPUT}
        return {name: flag for name, flag in self.flags.items() if name not in shared}

    def with_path(self, index: int, path: str) -> list[str]:
        """Return the words of the command line with another positional argument."""
        paths = self.paths.split()
        return [*self.verb.split(), *paths[:index], path, *paths[index + 1 :], *self.options.split()]


def kinds(verb: str, more: dict[str, Flag], **what: object) -> list[Line]:
    """Return the lines of a verb for each kind of source."""
    common = {**OUTPUT, **PLAN, **more}
    given = {"output": 1, **what}
    return [
        Line(f"{verb} images", "photos new", {**common, **IMAGES}, **given),
        Line(f"{verb} arrays", "x.npy new", {**common, **ARRAYS}, **given, missing=2),
        Line(f"{verb} table", "t.csv new", {**common, **TABLE}, **given),
        Line(f"{verb} coco", "coco.json new", {**common, **ANNOTATIONS}, **given),
        Line(f"{verb} yolo", "yolo new", {**common, **ANNOTATIONS}, **given),
    ]


def line(verb: str, paths: str, flags: dict[str, Flag], keys: object = MANIFEST, **what: object) -> Line:
    """Return the line of a verb with the options that most verbs have."""
    return Line(verb, paths, {**OUTPUT, **flags}, keys, **what)


LINES = [
    *kinds("build", BUILD, keys=MANIFEST, makes="new/dataset.json"),
    *kinds("plan", {}, keys=("schema", "splits", "skipped")),
    line("info", "data", {"--all-classes": SWITCH}),
    line("show", "data cat/0.png", {"--first": COUNT, "--save": TEXT}, ()),
    line(
        "verify",
        "data",
        {"--deep": SWITCH, "--decode": SWITCH, "--repair": SWITCH},
        (),
    ),
    line(
        "audit",
        "data",
        {
            "--distance": Flag(("x", "-1", "49", "٣")),
            "--fail-on": choice("leak"),
            "--keys": TEXT,
            "--keys-of": choice("leak"),
        },
        ("num_examples", "label_counts", "findings", "notes"),
    ),
    line(
        "report",
        "data",
        {
            "--output": TEXT,
            "--audit": SWITCH,
            "--no-audit": SWITCH,
            "--seed": Flag(("x",)),
            "--source": Flag((GONE,), 1, GONE),
        },
        ("page",),
        options="--output page.html --no-audit",
        makes="page.html",
    ),
    line("diff", "data data", {}, ("is_same", "num_same", "added", "removed", "changed"), inputs=(0, 1)),
    line("generations", "data", {}, ()),
    line("restore", "data OLD", {}, makes="data/dataset.json"),
    line(
        "prune",
        "data",
        {"--dry-run": SWITCH},
        (),
        makes="data/OLD",
    ),
    line(
        "reshard",
        "data new",
        {**SHARDS, **ENGINE, "--overwrite": SWITCH},
        output=1,
        makes="new/dataset.json",
    ),
    line(
        "merge",
        "a=data b=new-ones new",
        {**SHARDS, **ENGINE, "--overwrite": SWITCH, "--as-splits": SWITCH},
        options="--as-splits",
        inputs=(),
        output=2,
        makes="new/dataset.json",
    ),
    line(
        "append",
        "photos data",
        {
            **ENGINE,
            **REJECTED,
            "--shards": SHARDS["--shards"],
            "--follow-links": SWITCH,
            "--new-classes": SWITCH,
        },
        inputs=(0, 1),
    ),
    line(
        "remove",
        "data",
        {**ENGINE, "--keys": file()},
        options="--keys keys",
        makes="data/dataset.json",
    ),
    line(
        "relabel",
        "data",
        {**ENGINE, "--labels": file(), "--new-classes": SWITCH},
        options="--labels labels.csv",
        makes="data/dataset.json",
    ),
    line(
        "export",
        "data new",
        {
            **ENGINE,
            "--to": choice("parquet"),
            "--select": Flag(("z",), 2, "z"),
            "--as-bytes": Flag(("z",), 2, "z"),
        },
        ("directory", "to", "num_examples", "files"),
        options="--to webdataset",
        output=1,
        makes="new",
    ),
    line(
        "adopt",
        "found",
        {
            "--name": Flag(("a/b", "a b"), named="a"),
            "--splits": Flag(("train",)),
            "--class-names": file(),
            "--label": Flag(("z",), 1, "z"),
            "--overwrite": SWITCH,
        },
        makes="found/dataset.json",
    ),
    line(
        "bench",
        "numbers",
        {
            "--split": Flag(("z",), 1, "z"),
            "--batch-size": COUNT,
            "--select": Flag(("z",), 2, "z"),
            "--shuffle": Flag(("x",)),
            "--size": Flag(("x", "5x5")),
            "--crop": choice("center"),
            "--cache": Flag(("x",)),
            "--seconds": Flag(("x", "0", "-1")),
        },
        ("limit", "advice"),
        options="--batch-size 2 --seconds 0.01",
    ),
    line(
        "which",
        "data position.json",
        {
            "--step": Flag(("x", "1:x"), named="x"),
            "--epoch": Flag(("x", "-1")),
            "--workers": Flag(("x", "0")),
            "--take": Flag(("x", "0")),
            "--classes": Flag(("z",), 2, "z"),
        },
        (),
        options="--step 0",
    ),
    line(
        "when",
        "data position.json cat/0.png",
        {
            "--workers": Flag(("x", "0")),
            "--epochs": Flag(("x", "1:x"), named="x"),
            "--take": Flag(("x", "0")),
            "--classes": Flag(("z",), 2, "z"),
        },
        (),
    ),
    line("completion", "bash", {}, (), inputs=()),
]
