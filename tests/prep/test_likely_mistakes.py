"""Folders of images that may be meant in another way, such as splits one level further down."""

import shlex

import pytest

from tests.errors import fault, raises
from tfshards.prep import ImageFolder
from tfshards.prep.cli.main import main
from tfshards.schemas import InputError, read_manifest
from tfshards.schemas.summary import LOSSES, remedies

NO_CLASS = "the folder {!r} holds no images and is not a class; class_names= can name it"

FOLDERS = {
    "features of images": (
        {"cat/b.npy": b"", "cat/a.npy": b"", "cat/1.png": 1, "dog/1.png": 2},
        ("cat", "dog"),
        [
            "cat/a.npy and others are not read; 'tfshards build arrays' takes .npy files, stacked into one "
            "array per feature"
        ],
    ),
    "a table in each split": (
        {"train/metadata.jsonl": b"", "train/1.png": 1, "test/metadata.jsonl": b"", "test/2.png": 2},
        (),
        [
            "test/metadata.jsonl and others are not read; 'tfshards build table' stores its columns with the "
            "images"
        ],
    ),
    "other annotations": (
        {"annotations/list.txt": b"", "cat/1.png": 1, "dog/1.png": 2},
        ("cat", "dog"),
        [NO_CLASS.format("annotations")],
    ),
    "classes, some with folders": ({"cat/a/1.png": 1, "dog/1.png": 2}, ("cat", "dog"), []),
    "texts of images": (
        {"cat/1.png": 1, "cat/1.txt": b"a cat", "dog/1.png": 2},
        ("cat", "dog"),
        ["cat/1.txt is not read; docs/datasets.md, Other layouts, shows how to build from such files"],
    ),
    "a table": (
        {"cat/1.png": 1, "dog/1.png": 2, "labels.csv": b"id,x"},
        ("cat", "dog"),
        ["labels.csv is not read; 'tfshards build table' stores its columns with the images"],
    ),
    "what macOS adds": (
        {"a/1.png": 1, "__MACOSX/b/._1.png": 2, "__MACOSX/b/2.png": 3, "a/__MACOSX/4.png": 4, "d/1.png": 5},
        ("a", "d"),
        [],
    ),
}


@pytest.mark.parametrize(("files", "class_names", "warnings"), FOLDERS.values(), ids=FOLDERS)
def test_folders_that_look_like_another_source_are_reported(files, class_names, warnings, image_folder):
    root = image_folder(files)
    listing = ImageFolder(root).listing()
    assert listing.schema.class_names == class_names
    assert listing.skipped.get("hidden", 0) == sum("__MACOSX" in name for name in files)
    assert list(listing.warnings) == [line.replace("ROOT", str(root)) for line in warnings]


DOUBTFUL = {
    "splits with a year": (
        {"train2017/1.png": 1, "val2017/2.png": 2},
        fault("folders-named-like-splits", names="'train2017', 'val2017'"),
    ),
    "splits further down": (
        {"flowers/train/1/1.png": 1, "flowers/other/2.png": 3},
        fault("only-class", only="flowers", held=", but holds the folders 'other', 'train'"),
    ),
    "a split further down": (
        {"flowers/Valid/1.png": 1},
        fault("only-class", only="flowers", held=", but holds the folders 'Valid'"),
    ),
    "classes further down": (
        {"birds/n01/1.png": 1, "birds/n02/1.png": 2, "readme.txt": b""},
        fault("only-class", only="birds", held=", but holds the folders 'n01', 'n02'"),
    ),
    "a class with a folder": ({"cat/a/1.png": 1}, fault("only-class", only="cat")),
    "nested classes": (
        {"a/abbey/1.png": 1, "b/bar/in/2.png": 2},
        fault("classes-deeper", classes="'a', 'b'", below="'abbey', 'bar'"),
    ),
    "one class": ({"cat/1.png": 1, "notes/1.txt": b""}, fault("only-class", only="cat", held="")),
    "splits with the size of images": (
        {"data_256/a/1.png": 1, "val_256/1.png": 2},
        fault(
            "folders-named-like-splits",
            names="'data_256', 'val_256'",
            usual="{'val': 'val_256', 'train': 'data_256'}",
        ),
    ),
}


def test_nested_classes_in_splits_are_refused(image_folder):
    root = image_folder({"train/a/x/1.png": 1, "test/a/y/2.png": 2})
    for given in (None, {"train": "train"}):
        with raises(InputError, "classes-deeper", classes="'a'"):
            ImageFolder(root, split_folders=given).listing()
    assert ImageFolder(root, as_is=True).listing().schema.class_names == ("a",)


@pytest.mark.parametrize("splits", [("train", "test"), ("train",)])
def test_splits_that_hold_only_a_folder_of_images_are_refused(splits, image_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = image_folder({f"{split}/images/{number}.png": number for number, split in enumerate(splits)})
    with raises(InputError, "only-class", only="images", held="") as caught:
        ImageFolder(root).listing()
    for line in caught.value.lines:
        assert main(shlex.split(line)[1:]) == 0, line
    assert [*read_manifest("DATASET").splits] == (["train", "test"] if splits[1:] else ["train"])
    assert ImageFolder(root, as_is=True).listing().schema.class_names == ("images",)


@pytest.mark.parametrize(("files", "expected"), DOUBTFUL.values(), ids=DOUBTFUL)
def test_folders_that_may_be_no_classes_are_refused_unless_they_are_declared(files, expected, image_folder):
    root = image_folder(files)
    with raises(InputError, expected) as caught:
        ImageFolder(root).listing()
    folders = {path.split("/")[0] for path in files if path.endswith(".png")}
    for declared in ({"as_is": True}, {"split_folders": {}}, {"class_names": sorted(folders)}):
        assert set(ImageFolder(root, **declared).listing().schema.class_names) == folders
    for line in caught.value.lines if "only" in expected.values else ():
        assert line == f"  tfshards build images {root}/{expected.values['only']} DATASET"


def test_the_remedies_of_losses_name_flags_on_the_command_line():
    assert set(remedies()) == {loss.conversion for loss in LOSSES}
    assert remedies()["16 bits to 8"] == "--depth 16 keeps their values"
    assert remedies()["alpha dropped"] == "--alpha keep and --channels 4 store it"
    assert not any("=" in remedy for remedy in remedies().values())
