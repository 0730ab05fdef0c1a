"""The commands of recipes in docs/how-to.md run as they are printed, on data in the layout that they name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tfshards.prep import build
from tfshards.prep.cli import main as cli
from tfshards.schemas import read_manifest

HOW_TO = (Path(__file__).parents[1] / "docs" / "how-to.md").read_text()


def commands(question):
    """The arguments of each command in the section that answers a question."""
    _, _, section = HOW_TO.partition(f"\n### {question}\n")
    section = section.partition("\n#")[0]
    found = [shlex.split(line) for line in re.findall(r"^    tfshards (.+)$", section, re.M)]
    assert found, question
    return found


def photos(*names):
    for number, name in enumerate(names):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(path)


def digits():
    arrays = {
        "x_train": np.zeros((6, 2, 2)),
        "y_train": np.arange(6),
        "x_test": np.ones((3, 2, 2)),
        "y_test": [0, 1, 2],
    }
    np.savez("mnist.npz", **arrays)
    for name, array in zip("ABCD", arrays.values(), strict=True):
        np.save(f"{name}.npy", array)


def two_datasets():
    for split in ("train", "test"):
        photos(*(f"{split}/cat/{number}.png" for number in range(3)))
        assert cli.main(["build", "images", split, f"data/{split}"]) == 0


def patients():
    names = [f"photos/{('cat', 'dog')[n // 2 % 2]}/p{n // 2}/patient{n // 2}_{n}.png" for n in range(40)]
    photos(*names)
    rows = [f"{name},{number // 2}" for number, name in enumerate(names)]
    Path("scans.csv").write_text("\n".join(["file_name,patient", *rows]))


# question -> what prepares the inputs, and the examples by split of the dataset that each command makes
RECIPES = {
    "How do I choose classes and splits?": (
        lambda: photos(*(f"photos/{kind}/{number}.png" for kind in ("cat", "dog") for number in range(10))),
        {"photos": {"train": 16, "val": 2, "test": 2}},
    ),
    "How do I build from split folders with other names?": (
        lambda: photos("photos/Train_2024/cat/1.png", "photos/holdout/cat/2.png", "photos/old/3.png"),
        {"photos": {"train": 1, "test": 1}},
    ),
    "How do I build from a Kaggle competition, whose test images have no classes?": (
        lambda: photos(
            "competition/train/cat/1.jpg", "competition/train/dog/2.jpg", "competition/test/3.jpg"
        ),
        {"competition": {"train": 2, "test": 1}},
    ),
    "How do I leave files out?": (
        lambda: photos(
            "photos/cat/1.jpg", "photos/cat/1_thumb.jpg", "photos/drafts/2.jpg", "photos/cat/3.bmp"
        ),
        {"photos": {"train": 3}},
    ),
    "How do I keep images of one patient or video in one split?": (
        patients,
        {"photos": {"train": 36, "val": 4}, "scans": {"train": 36, "val": 4}},
    ),
    "How do I build from arrays of several splits, such as Keras's mnist.npz?": (
        digits,
        {"mnist": {"train": 6, "test": 3}, "digits": {"train": 6, "test": 3}},
    ),
    "How do I make one dataset of datasets that are its splits?": (
        two_datasets,
        {"photos": {"train": 3, "test": 3}},
    ),
}


@pytest.mark.parametrize("question", RECIPES)
def test_the_commands_of_a_recipe_make_the_dataset_that_it_describes(question, tmp_path, monkeypatch):
    prepare, made = RECIPES[question]
    monkeypatch.chdir(tmp_path)
    # Beam is not what these recipes are about
    monkeypatch.setitem(build.__kwdefaults__, "engine", "in_process")
    prepare()
    for arguments in commands(question):
        # the commands of a recipe are alternatives
        more = ["--overwrite"] if arguments[0] == "build" else []
        assert cli.main([*arguments, *more]) == 0, arguments
    for name, examples in made.items():
        splits = read_manifest(tmp_path / "data" / name).splits
        assert {split: held.num_examples for split, held in splits.items()} == examples
