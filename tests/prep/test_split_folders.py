"""Folders that are splits: by their names, by ``--splits``, and next to folders that are neither."""

import re

import numpy as np
import pytest

from tests.errors import raises
from tests.prep.table_files import check_repair
from tfshards.prep import ImageFolder, append, audit, verify
from tfshards.prep.cli import main as cli
from tfshards.schemas import InputError, read_manifest


def test_a_folder_with_images_next_to_splits_is_an_error_with_the_choice(image_folder, capsys, tmp_path):
    root = image_folder({"Train/1.png": 1, "test/1.png": 2, "extra/1.png": 3})
    with raises(InputError, "split-folders-ambiguous", named="'Train', 'test'", odd="'extra'"):
        ImageFolder(root).listing()
    command = ["plan", "images", str(root), str(tmp_path / "out")]
    assert cli.main(command) == 1
    printed = capsys.readouterr().err
    assert "give --splits train=Train --splits test=test for" in printed
    assert "or --splits '' if every folder is a class" in printed
    # both of the choices work as they are printed
    assert cli.main([*command, "--splits", "train=Train", "--splits", "test=test"]) == 0
    assert "the folder 'extra' is not a split and is skipped, with its images" in capsys.readouterr().err
    assert cli.main([*command, "--splits", ""]) == 0
    assert "Train" in capsys.readouterr().out


def test_repair_and_append_know_the_folders_of_the_build(image_folder, tmp_path, quiet_build):
    root = image_folder({"Train/1.png": 1, "holdout/1.png": 2, "old/1.png": 3})
    given = {"train": "Train", "final": "holdout"}
    out = tmp_path / "out"
    quiet_build(ImageFolder(root, split_folders=given, exclude=["**/x*"]), out)
    check_repair(out, root, split="final")
    more = image_folder({"holdout/2.png": 4, "holdout/x.png": 5}, name="more")
    grown = append(more, out, log=lambda _: None, engine="local")
    assert {name: split.num_examples for name, split in grown.splits.items()} == {"train": 1, "final": 2}


@pytest.fixture
def kaggle(image_folder):
    """Images as in a competition: the test images have no classes."""
    return image_folder(
        {
            **{f"train/cat/{number}.png": number for number in range(5)},
            **{f"train/dog/{number}.png": 10 + number for number in range(4)},
            "test/a.png": 20,
            "test/b.png": 21,
            # an image that the training data holds, too
            "test/c.png": 3,
        }
    )


def test_bare_test_images_next_to_classes_are_an_unlabelled_split(kaggle, tmp_path, quiet_build, log, capsys):
    out = tmp_path / "out"
    manifest = quiet_build(ImageFolder(kaggle), out)
    assert [line for line in log if "warning" in line] == [
        "warning: the split folder 'test' has no class folders, unlike others; the label of all examples of "
        "'test' (3) is -1, for no class"
    ]
    assert manifest.schema.class_names == ("cat", "dog")
    assert manifest.splits["train"].label_counts == {"cat": 5, "dog": 4}
    assert manifest.splits["test"].label_counts == {}
    (shard,) = manifest.splits["test"].shards
    assert np.fromfile(out / "index" / f"{shard.path}.labels", "<i8").tolist() == [-1] * 3
    assert str(verify(out, deep=True, decode=True)).startswith(f"{out}: sound")
    assert cli.main(["show", str(out), "test/a.png"]) == 0
    assert "label: -1 (no class)" in capsys.readouterr().out
    assert re.search(r"^cat +5 +-$", str(manifest), re.M)
    # an image without a class contradicts no class
    found = audit(out)
    assert [finding.kind for finding in found.findings if finding.kind in ("leak", "conflict")] == ["leak"]


def test_new_images_without_classes_are_appended(kaggle, image_folder, tmp_path, quiet_build):
    out = tmp_path / "out"
    quiet_build(ImageFolder(kaggle), out)
    more = image_folder({"train/cat/9.png": 30, "test/d.png": 31}, name="more")
    grown = append(more, out, log=lambda _: None, engine="local")
    assert grown.splits["train"].label_counts == {"cat": 6, "dog": 4}
    assert (grown.splits["test"].label_counts, grown.splits["test"].num_examples) == ({}, 4)
    assert read_manifest(out) == grown
    assert str(verify(out, deep=True)).startswith(f"{out}: sound")


def test_unlabeled_images_are_not_appended_to_labeled_ones(kaggle, image_folder, tmp_path, quiet_build):
    out = tmp_path / "out"
    quiet_build(ImageFolder(kaggle), out)
    more = image_folder({"train/9.png": 30, "test/d.png": 31}, name="more")
    with raises(InputError, "append-without-class", split="train", keys="train/9.png"):
        append(more, out, log=lambda _: None, engine="local")


@pytest.mark.parametrize("text", ["Train", "train=a,train=b"])
def test_the_flag_reports_what_is_not_a_split_and_its_folder(text, capsys):
    assert cli.main(["plan", "images", "x", "out", "--splits", text]) == 2
    assert f"--splits {text} must be SPLIT=FOLDER,..., such as train=Train" in capsys.readouterr().err
