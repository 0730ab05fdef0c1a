"""Every command and snippet of the documentation is run by a test, or says here why it is not."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import shutil
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.command import VERBS
from tfshards.prep import append, build, verify
from tfshards.prep.cli import main as cli
from tfshards.prep.cli.parser import make_parser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
HOW_TO = (ROOT / "docs" / "how-to.md").read_text()
# page with Python -> the tests that run it
PYTHON = {
    "README.md": "tests/test_readme.py",
    "audit.md": "tests/test_snippets.py",
    "how-to.md": "tests/test_snippets.py",
    "reference.md": "tests/test_snippets.py",
    "storage.md": "tests/storage/test_storage_page.py",
}
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))


def sections(text):
    """Return the body of each section by its heading."""
    parts = re.split(r"^#{2,3} (.+)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(text):
    """Return the words of each command in a text; without comments, redirections and options of Beam."""
    shells = "\n".join(re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S))
    lines = [
        *re.findall(r"^ {4}tfshards ((?:[^\n\\]|\\\n|\\.)+)$", text, re.M),
        *re.findall(r"^tfshards ((?:[^\n\\]|\\\n|\\.)+)$", shells, re.M),
    ]
    found = [shlex.split(line.replace("\\\n", " "), comments=True) for line in lines]
    return [[*itertools.takewhile(lambda word: word not in ("--", ">", "||"), words)] for words in found]


def python(text):
    """Return the lines of Python in a section of docs/how-to.md."""
    blocks = re.findall(r"(?:^(?: {4}.*)?\n)+", text, re.M)
    code = [textwrap.dedent(block) for block in blocks if block.strip()]
    return "\n".join(block for block in code if not block.lstrip().startswith(("tfshards", "pip ")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_command_line_accepts_every_command_of_a_page(page):
    parser = make_parser(VERBS)
    for words in commands(page.read_text()):
        # their other arguments come from files
        if "--config" not in words and words[:2] != ["build", "--from"]:
            parser.parse_args(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_compiles(page):
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S):
        ast.parse(block)


def test_the_python_of_each_page_has_a_test():
    found = {page.name for page in PAGES if re.search(r"^(?:```python$| {4}from )", page.read_text(), re.M)}
    assert found == {*PYTHON}
    for page, path in PYTHON.items():
        assert f'"{page}"' in (ROOT / path).read_text()


def photos(*names):
    for number, name in enumerate(names):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (8, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)


def run(line):
    assert cli.main(shlex.split(line)) == 0, line


def two_classes(folder="photos", count=90, start=0):
    photos(*(f"{folder}/{('cat', 'dog')[n % 2]}/{n + start}.png" for n in range(count)))


def class_files():
    two_classes(count=4)
    two_classes("new_photos", count=4)
    Path("classes.txt").write_text("dog\ncat\n")


def tables():
    photos("photos/1.png", "photos/2.png")
    Image.new("L", (12, 8)).save("photos/mask.png")
    Path("photos/metadata.csv").write_text("file_name,label\n1.png,a\n2.png,b\n")
    rows = {
        "left": ["1.png", "2.png"],
        "outline": ["mask.png"] * 2,
        "species": ["a", "b"],
        "comment": ["", ""],
    }
    pa.parquet.write_table(pa.table(rows), "rows.parquet")


def dataset():
    two_classes()
    run("build images photos data/photos --split train=0.9 --split val=0.1")


def large_dataset():
    two_classes(count=720)
    run("build images photos data/photos --split train=0.9 --split val=0.1")


def dataset_and_table():
    dataset()
    Path("list.jsonl").write_text('{"file_name": "cat/0.png"}\n{"file_name": "dog/1.png"}\n')
    run("build table list.jsonl data/list --root photos")


def dataset_table_and_arrays():
    dataset_and_table()
    for name in ("IMAGES", "LABELS"):
        np.save(f"{name}.npy", np.arange(6))
    run("build arrays image=IMAGES.npy label=LABELS.npy data/arrays")
    two_classes("photos", count=4, start=200)


def options_in_a_file():
    two_classes()
    body = sections(HOW_TO)["How do I keep the options of a build in a file?"]
    Path("build.toml").write_text(re.search(r"^```toml\n(.*?)^```$", body, re.M | re.S)[1])


def two_datasets():
    dataset()
    two_classes("more", count=8, start=500)
    run("build images more data/more --split train=0.5 --split val=0.5")


def dataset_and_new_photos():
    dataset()
    two_classes("new_photos", count=40)


def records():
    np.save("digit.npy", np.arange(6) % 2)
    np.save("debug.npy", np.arange(6))
    run("build arrays digit.npy debug.npy data/digits --shards 2 --label ''")
    Path("DIR").mkdir()
    for number, path in enumerate(sorted(Path("data/digits").glob("*.tfrecord-*"))):
        path.rename(f"DIR/part-{number}0.tfrecord")


# question -> what prepares the inputs of its commands
RECIPES = {
    "How do I keep class numbers fixed?": class_files,
    "How do I build from a table?": tables,
    "How do I make images smaller while building?": two_classes,
    "How do I deal with rejected files?": dataset,
    "How do I remove duplicates?": two_classes,
    "How do I keep the options of a build in a file?": options_in_a_file,
    "How do I repeat a build?": dataset_and_new_photos,
    "How do I rebuild a dataset that is in use?": dataset,
    "How do I repair a damaged dataset?": dataset_and_table,
    "How do I change the number of shards?": large_dataset,
    "How do I merge datasets?": two_datasets,
    "How do I add new examples?": dataset_table_and_arrays,
    "How do I use TFRecord files written by another tool?": records,
    "How do I know before I build?": two_classes,
    "How do I find out what limits reading?": large_dataset,
}
# question -> whether its Python is run with a dataset; what follows "..." belongs to a program of the reader
TRAINING = (
    "How do I decode and augment images?",
    "How do I get one-hot labels?",
    "How do I read only some examples?",
    "How do I mix datasets?",
    "How do I train on several GPUs of one host?",
    "How do I limit memory?",
    "How do I read from slow storage?",
)
# question -> why no test runs its lines as they are printed, and what does instead
NOT_RUN = {
    "How do I build from arrays that do not fit in memory?": "a function of the reader; README runs one",
    "How do I build from a table of web addresses?": "the web",
    "How do I build on a cluster?": "8 processes of Beam; README runs 2",
    "How do I build from or into a bucket?": "a bucket; tests/storage builds into local ones",
    "How do I undo a build, an append or an edit?": "a build id; tests/prep/test_generations.py",
    "How do I complete commands with the Tab key?": "writes to the home; tests/prep/test_completion.py",
    "How do I run my own code on each example?": "parts of a program; tests/loader/test_map_fn.py",
    "How do I get dense tensors from lists?": "parts of a program; tests/loader/test_lists.py",
    "How do I evaluate on every example?": "parts of a program; examples/mirrored_fit.py",
    "How do I handle uneven classes?": "parts of a program; examples/imbalanced.py",
    "How do I train on several hosts?": "several hosts; examples/multiworker.py",
    "How do I train separate models on separate devices?": "GPUs; examples/separate_models.py",
    "How do I resume training after a crash?": "parts of a program; examples/resume.py",
    "How do I train from a bucket?": "a bucket; tests/storage reads local ones",
    "How do I find out whether input is the limit?": "parts of a program; tests/loader/test_wait.py",
}


def short(question):
    return question.removeprefix("How do I ").rstrip("?")


def test_every_recipe_is_run_or_says_why_not():
    here = {*RECIPES, *TRAINING, *NOT_RUN}
    elsewhere = TESTS.replace(Path(__file__).read_text(), "")
    headings = sections(HOW_TO)
    assert here <= set(headings)
    printed = {name for name, body in headings.items() if re.search(r"^(?: {4}\S|```)", body, re.M)}
    assert sorted(name for name in printed if name not in here and short(name) not in elsewhere) == []
    for reason in NOT_RUN.values():
        for path in re.findall(r"(?:tests|examples)/[\w/.]+", reason):
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize(
    "question",
    mostly_nightly(RECIPES, ["How do I keep the options of a build in a file?", "How do I repeat a build?"]),
)
def test_the_commands_of_a_recipe_run_in_order(question, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(build.__kwdefaults__, "engine", "local")
    RECIPES[question]()
    found = commands(sections(HOW_TO)[question])
    assert found
    for number, words in enumerate(found):
        # of commands for one dataset all but the first are alternatives
        is_alternative = number > 0 and words[0] in ("build", "adopt") and "--config" not in words
        more = ["--overwrite"] if is_alternative and "--overwrite" not in words else []
        assert cli.main([*words, *more], VERBS) == 0, words


@pytest.mark.nightly
@pytest.mark.parametrize("question", TRAINING)
def test_the_python_of_a_recipe_of_training_runs(question, tmp_path, monkeypatch):
    import tensorflow as tf

    monkeypatch.chdir(tmp_path)
    two_classes(count=1200)
    two_classes("drawings", count=300)
    for name in ("photos", "drawings"):
        run(f"build images {name} data/{name} --split train=0.9 --split val=0.1")
    small = {"select": ("image", "label"), "image": loader.Image(size=(8, 8))}
    names = {
        "itertools": itertools,
        "tf": tf,
        "loader": loader,
        "path": "data/photos",
        "strategy": tf.distribute.get_strategy(),
        "step": lambda *_: None,
        "options": small,
        "train": loader.load("data/photos", "train", batch_size=64, **small),
    }
    code = python(sections(HOW_TO)[question]).replace("disk:/local/folder", f"disk:{tmp_path}/cache")
    assert "loader" in code or "tf." in code
    exec(code, names)
    assert next(iter(names["train"]))


@pytest.mark.nightly
def test_the_commands_and_the_python_of_the_page_on_audits_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    dataset()
    two_classes("photos/again", count=2)
    page = (ROOT / "docs" / "audit.md").read_text()
    found = commands(page)
    assert len(found) >= 3
    for words in found:
        assert cli.main([word.replace("DATASET", "data/photos") for word in words]) == 0, words
    names = {}
    exec(python(sections(page)["From Python"]), names)
    assert names["leaks"] == []


def test_the_python_of_the_reference_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for function in (build, append):
        monkeypatch.setitem(function.__kwdefaults__, "engine", "local")
    two_classes()
    two_classes("more", count=8, start=500)
    run("build images more data/more --split train=0.5 --split val=0.5")
    Image.new("RGB", (12, 8), "red").save("photos/cat/001.jpg")
    shutil.copy("photos/cat/0.png", "photos/cat/again.png")
    np.save("digit.npy", np.arange(6) % 2)
    run("build arrays digit.npy data/digits --label ''")
    Path("elsewhere").mkdir()
    shutil.copy(next(Path("data/digits").glob("*.tfrecord-*")), "elsewhere/part-00.tfrecord")
    names = {}
    exec(python(sections((ROOT / "docs" / "reference.md").read_text())["Python"]), names)
    assert (bool(names["report"]), names["manifest"].num_examples) == (True, 92)
    printed = capsys.readouterr().out
    assert "removed: 1 example\n" in printed
    assert "relabeled: 1 example\n    cat/001.jpg: cat -> dog\n" in printed
    assert all(verify(f"data/{name}") for name in ("photos", "photos16", "all"))
    assert Path("photos.html").exists()
    assert any(Path("exported/photos").rglob("*.parquet"))
    assert verify("elsewhere")
