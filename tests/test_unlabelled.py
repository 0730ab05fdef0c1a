"""A split whose examples have no class, as in Kaggle's competitions: label -1 in every reader."""

import shutil

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from tfshards import loader
from tfshards.prep import ImageFolder, audit, build, merge

QUIET = {"log": lambda _: None}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    root = tmp_path_factory.mktemp("kaggle")
    names = [f"train/{('cat', 'dog')[number % 2]}/{number}.png" for number in range(8)]
    for number, name in enumerate([*names, "test/8.png", "test/9.png"]):
        path = root / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((2, 2, 3), number, np.uint8)).save(path)
    build(ImageFolder(root / "photos"), root / "data", engine="local", **QUIET)
    return root / "data"


def test_the_loader_delivers_the_label_of_no_class(dataset):
    batch = next(iter(loader.load(dataset, "test", batch_size=2, image=loader.Image(size=(2, 2)))))
    assert batch["label"].numpy().tolist() == [-1, -1]
    assert sorted(batch["image"].numpy()[:, 0, 0, 0].tolist()) == [8, 9]
    batch = next(iter(loader.load(dataset, "train", batch_size=8, image=loader.Image(size=(2, 2)))))
    assert batch["label"].numpy().tolist() == (batch["image"].numpy()[:, 0, 0, 0] % 2).tolist()
    builder = tfds.builder_from_directory(dataset)
    assert [int(each["label"]) for each in tfds.as_numpy(builder.as_dataset(split="test"))] == [-1, -1]
    assert builder.info.features["label"].names == ["cat", "dog"]


def test_unlabeled_images_merge_with_labeled_ones(dataset, tmp_path):
    """A split folder without classes, built with the class names of the labeled dataset."""
    shutil.copytree(dataset.parent / "photos" / "test", tmp_path / "more" / "test")
    folder = ImageFolder(tmp_path / "more", class_names=("cat", "dog"), allow_missing_classes=True)
    build(folder, tmp_path / "unlabeled", **QUIET)
    build(ImageFolder(dataset.parent / "photos" / "train"), tmp_path / "labeled", **QUIET)
    merged = merge([tmp_path / "labeled", tmp_path / "unlabeled"], tmp_path / "merged", **QUIET)
    assert {name: split.num_examples for name, split in merged.splits.items()} == {"train": 8, "test": 2}
    with pytest.warns(UserWarning, match="2 of 2 examples is -1"):
        (batch,) = loader.load(tmp_path / "merged", "test", batch_size=2, select=("label",))
    assert batch[0].numpy().tolist() == [-1, -1]


def test_an_audit_counts_no_classes_where_there_are_none(dataset):
    made = audit(dataset, distance=None)
    assert made.label_counts["train"] == {"cat": 4, "dog": 4}
    assert not any(made.label_counts.get("test", {}).values())
