"""Sources that somebody else wrote: nothing outside of them is read or quoted, and no parser runs away."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.errors import raises
from tests.surface.command import run
from tests.tables import mostly_nightly
from tfshards.prep import Coco, Table, Yolo, build, plan
from tfshards.schemas import InputError

SECRET = "root:x:0:0"
QUIET = {"shards": 1, "log": lambda _: None}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working directory: a YOLO folder ``ds`` with one image, and next to it a file that is not of it."""
    (tmp_path / "ds" / "images").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    for folder in ("ds/images", "other"):
        Image.new("RGB", (4, 4)).save(tmp_path / folder / "1.png")
        (tmp_path / folder / "1.txt").write_text("0 .5 .5 .1 .1\n")
    (tmp_path / "secret.txt").write_text(f"{SECRET}\n{SECRET}\n")
    monkeypatch.chdir(tmp_path)


def yaml(**lines):
    Path("ds/data.yaml").write_text("\n".join(f"{name}: {value}" for name, value in lines.items()))


def linked(name, target):
    Path(name).symlink_to(os.path.abspath(target))


YOLO = {
    "a list elsewhere": (lambda: yaml(train="images", val=os.path.abspath("secret.txt")), "secret.txt'"),
    "a relative list": (lambda: yaml(train="images", val="../secret.txt"), "'../secret.txt'"),
    "a link to a list": (lambda: (linked("ds/list.txt", "secret.txt"), yaml(train="list.txt")), "'list.txt'"),
    "a path elsewhere": (lambda: yaml(path="../other", train="."), "'../other'"),
    "a folder elsewhere": (lambda: yaml(train="../other"), "'../other'"),
    "a link to a folder": (lambda: (linked("ds/link", "other"), yaml(train="link")), "'link'"),
    "an image of a list": (
        lambda: (Path("ds/list.txt").write_text("../other/1.png\n"), yaml(train="list.txt")),
        "'../other/1.png'",
    ),
    "a linked data.yaml": (lambda: linked("ds/data.yaml", "secret.txt"), "'ds/data.yaml'"),
    "linked names": (lambda: linked("ds/classes.txt", "secret.txt"), "'ds/classes.txt'"),
    "linked boxes": (
        lambda: (Path("ds/images/1.txt").unlink(), linked("ds/images/1.txt", "secret.txt")),
        "'ds/images/1.txt'",
    ),
}


@pytest.mark.parametrize(("prepare", "shown"), YOLO.values(), ids=YOLO)
def test_what_yolo_names_outside_of_the_source_is_neither_read_nor_quoted(prepare, shown, here):
    prepare()
    ended = run("build yolo ds out")
    assert (ended.status, ended.out) == (1, "")
    assert f"{shown} is outside ds; " in ended.err
    assert "--root" in ended.err
    assert "root:" not in ended.err


def test_the_user_may_name_a_root_or_allow_links(here):
    yaml(train="../other", val="images", names="[a]")
    allowed = Yolo("ds", follow_links=True)
    assert build(allowed, "one", **QUIET).num_examples == 2
    yaml(train="other", val="ds/images", names="[a]")
    named = Yolo("ds", root=".")
    assert build(named, "two", **QUIET).num_examples == 2


def coco(path, file_name):
    document = {"images": [{"id": 1, "file_name": file_name}], "categories": [], "annotations": []}
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text(json.dumps(document))


COCO = {
    "a relative path": (lambda: coco("ds/a.json", "../other/1.png"), "ds/a.json"),
    "an absolute path": (lambda: coco("ds/a.json", os.path.abspath("other/1.png")), "ds/a.json"),
    "a linked file": (
        lambda: (
            (coco("x/instances_train.json", "1.png"), os.mkdir("ds/annotations"))
            + (linked("ds/annotations/instances_train.json", "x/instances_train.json"),)
        ),
        "ds",
    ),
    "a linked folder": (
        lambda: (linked("ds/train", "other"), coco("ds/annotations/instances_train.json", "1.png")),
        "ds",
    ),
}


@pytest.mark.parametrize(("prepare", "source"), COCO.values(), ids=COCO)
def test_images_of_coco_outside_of_the_source_are_refused(prepare, source, here):
    prepare()
    with raises(InputError, "outside"):
        build(Coco(source), "out", **QUIET)
    build(Coco(source, follow_links=True), "out", **QUIET)


def test_the_folder_above_annotations_alone_is_searched(here):
    coco("ds/any/a.json", "images/1.png")
    with pytest.raises(InputError, match=r"images/1\.png.*ds/any"):
        build(Coco("ds/any/a.json"), "out", **QUIET)
    coco("ds/annotations/a.json", "images/1.png")
    build(Coco("ds/annotations/a.json"), "out", **QUIET)


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl"])
def test_a_linked_table_of_a_folder_is_refused(name, here):
    Path("secret.txt").write_text(f'{{"{SECRET}": 1}}\n' if name.endswith("jsonl") else f"{SECRET}\n1\n")
    linked(f"ds/{name}", "secret.txt")
    ended = run("build table ds out")
    assert ended.status == 1
    assert f"'ds/{name}' is outside ds" in ended.err
    assert SECRET not in ended.err
    assert run(f"build table ds/{name} out").status == 0


def test_a_pipe_among_parquet_files_is_refused(here):
    os.mkfifo("ds/x.parquet")
    ended = run("build table ds/*.parquet out")
    assert (ended.status, "ds/" in ended.err, "not a regular file" in ended.err) == (1, True, True)


def nested(opened, closed, count):
    return opened * count + closed * count


ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
BOMBS = {
    "aliases": ("data.yaml", f"{ALIASES}train: images\nnames: *a9\n", "names must be a list of texts"),
    "deep YAML": ("data.yaml", f"names: {nested('[', ']', 100_000)}", "it is nested too deeply"),
    "a long number": ("data.yaml", f"names: 1{':59' * 300_000}", "names must be a list of texts"),
    "long": ("data.yaml", "x: y\n" * 300_000, "has 1500000 bytes; a file of options has at most 1048576"),
    "deep TOML": ("c.toml", f"seed = {nested('[', ']', 50_000)}", "it is nested too deeply"),
    "deep": ("c.toml", f"seed = {nested('[', ']', 300)}", r"seed is \[{100}\.\.\., must be text or a number"),
    "a long key": ("c.toml", f"a{'.a' * 50_000} = 1", "a line has more than 1,000 dots"),
    "a long TOML": ("c.toml", "# \n" * 500_000, "has 1500000 bytes; a file of options has at most 1048576"),
    "deep COCO": ("a.json", nested("[", "]", 100_000), "it is nested too deeply"),
    "deep JSONL": ("m.jsonl", f'{{"x": {nested("[", "]", 50_000)}}}', "in 64 levels at most"),
}
COMMANDS = {
    "data.yaml": ["yolo", "ds", "out"],
    "c.toml": ["images", "ds", "out", "--config", "ds/c.toml"],
    "a.json": ["coco", "ds/a.json", "out"],
    "m.jsonl": ["table", "ds/m.jsonl", "out"],
}


@pytest.mark.parametrize("bomb", mostly_nightly(BOMBS, ["aliases", "deep TOML", "deep COCO", "deep JSONL"]))
def test_a_bomb_is_an_error_at_once(bomb, here):
    name, content, message = BOMBS[bomb]
    Path("ds", name).write_text(content)
    command = [sys.executable, "-m", "tfshards", "build", *COMMANDS[name]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode in (1, 2), ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith("tfshards: ds/")
    assert len(line) < 300
    assert re.search(message, line), line


def test_brackets_in_strings_are_not_nested(here):
    Path("ds/m.jsonl").write_text(json.dumps({"x": "[" * 5000 + '"'}))
    assert plan(Table("ds/m.jsonl"), "out").listing.schema.names == ("x", "key")
