"""Every command and snippet of the documentation is run by a test, or says here why it is not."""

import ast
import itertools
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.test_recipes import HOW_TO, RECIPES, commands, dataset, photos, python, run, sections, two_classes
from tfshards import loader
from tfshards.command import VERBS
from tfshards.prep import append, build, verify
from tfshards.prep.cli import main as cli
from tfshards.prep.cli.parser import make_parser
from tfshards.schemas import read_manifest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# page with Python -> the tests that run it
PYTHON = {
    "README.md": "tests/test_readme.py",
    "audit.md": "tests/test_snippets.py",
    "engines.md": "tests/engines/test_first_pipeline.py",
    "beam.md": "tests/test_recipes.py",
    "datasets.md": "tests/test_datasets.py",
    "how-to.md": "tests/test_snippets.py",
    "reference.md": "tests/test_snippets.py",
    "storage.md": "tests/storage/test_storage_page.py",
}
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_command_line_accepts_every_command_of_a_page(page):
    parser = make_parser(VERBS)
    for words in commands(page.read_text()):
        # their other arguments come from files
        if "--config" not in words:
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


# question -> whether its Python is run with a dataset; what follows "..." belongs to a program of the reader
TRAINING = (
    "How do I get the batches of `load` without TensorFlow?",
    "How do I read examples by their numbers, without TensorFlow?",
    "How do I train with PyTorch?",
    "How do I train with Keras on JAX or torch?",
    "How do I train with JAX?",
    "How do I read with Grain?",
    "How do I decode and augment images?",
    "How do I read only some examples?",
    "How do I mix datasets?",
    "How do I train on several GPUs of one host?",
    "How do I limit memory?",
    "How do I read from slow storage?",
    "How do I find out whether input is the limit?",
)
# question -> why no test runs its lines as they are printed, and what does instead
NOT_RUN = {
    "How do I build from arrays that do not fit in memory?": "a reader's function; tests/prep/test_arrays.py",
    "How do I build from a table of web addresses?": "the web",
    "How do I build on a cluster?": "8 processes of Beam, and a cluster; tests/prep/test_build.py runs 2",
    "How do I run a model over a dataset on a cluster?": "a model of the reader; examples/embed_shards.py",
    "How do I build from or into a bucket?": "a bucket; tests/storage builds into local ones",
    "How do I undo a build, an append or an edit?": "a build id; tests/prep/test_generations.py",
    "How do I complete commands with the Tab key?": "writes to the home; tests/surface/test_config.py",
    "How do I run my own code on each example?": "parts of a program; tests/loader/test_map_fn.py",
    "How do I get dense tensors from lists?": "parts of a program; tests/loader/test_lists.py",
    "How do I train with PyTorch Lightning?": "a model of the reader; tests/loader/test_lightning.py",
    "How do I evaluate on every example?": "parts of a program; examples/mirrored_fit.py",
    "How do I handle uneven classes?": "parts of a program; examples/imbalanced.py",
    "How do I train on several hosts?": "several hosts; examples/multiworker.py",
    "How do I resume training after a crash?": "parts of a program; examples/resume.py",
    "How do I train from a bucket?": "a bucket; tests/storage reads local ones",
}


def short(question):
    return question.removeprefix("How do I ").rstrip("?")


def test_every_recipe_is_run_or_says_why_not():
    here = {*RECIPES, *TRAINING, *NOT_RUN}
    headings = sections(HOW_TO)
    assert here <= set(headings)
    printed = {name for name, body in headings.items() if re.search(r"^(?: {4}\S|```)", body, re.M)}
    assert sorted(name for name in printed if name not in here and short(name) not in TESTS) == []
    for reason in NOT_RUN.values():
        for path in re.findall(r"(?:tests|examples)/[\w/.]+", reason):
            assert (ROOT / path).exists(), path


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
        monkeypatch.setitem(function.__wrapped__.__kwdefaults__, "engine", "local")
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


def test_the_recipe_of_looking_at_a_dataset_prints_classes_and_examples(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    classes = ["cat", *(f"class{number:02}" for number in range(24))]
    photos(*(f"photos/{split}/{name}/0001.jpg" for split in ("train", "val") for name in classes))
    run("build images photos data/photos")
    printed = []
    for words in commands(sections(HOW_TO)["How do I look at a dataset?"]):
        capsys.readouterr()
        # keys are relative to the source, here with the split
        run(shlex.join(words).replace("cat/0001", "train/cat/0001"))
        printed.append(capsys.readouterr().out)
    few, every, by_key, by_number, first = printed
    assert "\nand 5 more classes\n" in few
    assert "class23" not in few.partition("and 5 more")[0]
    assert all(f"\n{name} " in every for name in classes)
    assert "\nkey: train/cat/0001.jpg\n" in by_key
    assert Path("seen.jpg").read_bytes() == Path("photos/train/cat/0001.jpg").read_bytes()
    assert by_number.startswith("split train, example 5, record 5 of ")
    assert re.findall(r"^split val, example (\d),", first, re.M) == ["0", "1", "2"]


def test_the_recipe_of_receipts_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    two_classes(count=720)
    run("build images photos data/photos --split train=0.9 --split val=0.1")
    section = sections(HOW_TO)["How do I find out which examples a step held?"]
    which, when, used, again = commands(section)
    trained = loader.batches(
        "data/photos", "train", batch_size=256, shuffle=loader.Shuffle(seed=7), epochs=90
    )
    for _ in itertools.islice(trained, 3):
        pass
    names = {"loader": loader, "json": json, "progress": trained}
    exec(python(section), names)
    assert len(names["seen"]) == len({(each.epoch, each.number) for each in names["seen"]}) > 256
    printed = []
    for words in (which, again, when, used):
        capsys.readouterr()
        assert cli.main([word.replace("cat/0001.jpg", "cat/0.png") for word in words], VERBS) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert len(printed[0].splitlines()) == 257
    assert printed[2] == printed[3]


def test_the_recipes_of_editing_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    photos(*(f"photos/{('cat', 'dog')[number % 2]}/{number:03}.jpg" for number in range(8)))
    shutil.copy("photos/cat/000.jpg", "photos/cat/000-copy.jpg")
    run("build images photos data/photos")
    Path("labels.csv").write_text("key,label\ncat/002.jpg,dog\n")
    names = ("How do I remove examples?", "How do I delete a person's pictures?", "How do I correct labels?")
    for words in (words for name in names for words in commands(sections(HOW_TO)[name])):
        run(shlex.join([*words, *(["--distance", "none"] if "audit" in words else [])]))
    assert read_manifest("data/photos").splits["train"].label_counts == {"cat": 3, "dog": 5}
    assert verify("data/photos", deep=True)
    ((verb, *_),) = commands(sections(HOW_TO)["How do I compare two datasets?"])
    assert verb == "diff"
