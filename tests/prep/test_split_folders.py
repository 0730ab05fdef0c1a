"""Split folders and split lists of a build, as later verbs find them again."""

from tests.errors import raises
from tests.surface.command import run
from tfshards.prep import ImageFolder, append, audit, verify
from tfshards.schemas import InputError


def test_a_folder_with_images_next_to_splits_is_an_error_with_two_choices_that_work(image_folder, tmp_path):
    root = image_folder({"Train/1.png": 1, "test/1.png": 2, "extra/1.png": 3})
    command = ["plan", "images", root, tmp_path / "out"]
    ended = run(command)
    assert ended.status == 1
    assert "split_folders={'train': 'Train', 'test': 'test'}" in ended.err
    assert "split_folders={}" in ended.err
    choice = ["--split-folders", "train=Train", "--split-folders", "test=test"]
    assert "extra/1.png" in run([*command, *choice]).err
    assert "Train" in run([*command, "--split-folders", ""]).out


def test_append_knows_the_folders_of_the_build(image_folder, tmp_path, quiet_build):
    root = image_folder({"Train/1.png": 1, "holdout/1.png": 2, "old/1.png": 3})
    given = {"train": "Train", "final": "holdout"}
    out = tmp_path / "out"
    quiet_build(ImageFolder(root, split_folders=given, exclude=["**/x*"]), out)
    more = image_folder({"holdout/2.png": 4, "holdout/x.png": 5}, name="more")
    grown = append(more, out, engine="local")
    assert {name: split.num_examples for name, split in grown.splits.items()} == {"train": 1, "final": 2}


def test_images_without_classes_are_appended_to_their_split_alone(image_folder, tmp_path, quiet_build):
    """Images as in a competition: the test images have no classes."""
    files = {
        f"train/{name}/{number}.png": number + len(name) for name in ("cat", "mouse") for number in range(2)
    }
    # an image that the training data holds, too, contradicts no class
    root, out = image_folder(files | {"test/a.png": 20, "test/b.png": 3}), tmp_path / "out"
    quiet_build(ImageFolder(root), out)
    kinds = [found.kind for found in audit(out).findings]
    assert [kind for kind in kinds if kind in ("leak", "conflict")] == ["leak"]
    assert "label: -1 (no class)" in run(["show", out, "test/a.png"]).out
    wrong = image_folder({"train/9.png": 30, "test/d.png": 31}, name="wrong")
    with raises(InputError, "has classes", "'train'", "'train/9.png'"):
        append(wrong, out, engine="local")
    more = image_folder({"train/cat/9.png": 30, "test/d.png": 31}, name="more")
    grown = append(more, out, engine="local")
    assert grown.splits["train"].label_counts == {"cat": 3, "mouse": 2}
    assert (grown.splits["test"].label_counts, grown.splits["test"].num_examples) == ({}, 3)
    assert verify(out, deep=True)
