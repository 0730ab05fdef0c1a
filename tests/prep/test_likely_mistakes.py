"""Folders of images that may be meant in another way, such as splits one level further down."""

import pytest

from tests.errors import raises
from tfshards.prep import ImageFolder
from tfshards.schemas import InputError
from tfshards.schemas.summary import LOSSES, remedies

OTHERS, NESTED = "docs/datasets.md#other-layouts", "docs/datasets.md#nested-folders"
NO_CLASS = "the folder {!r} holds no images and is not a class; class_names= can name it"

FOLDERS = {
    "features of images": (
        {"cat/b.npy": b"", "cat/a.npy": b"", "cat/1.png": 1, "dog/1.png": 2},
        ("cat", "dog"),
        ["cat/a.npy is not read; see docs/datasets.md#other-layouts"],
    ),
    "other annotations": (
        {"annotations/list.txt": b"", "cat/1.png": 1, "dog/1.png": 2},
        ("cat", "dog"),
        [NO_CLASS.format("annotations")],
    ),
    "classes, some with folders": ({"cat/a/1.png": 1, "dog/1.png": 2}, ("cat", "dog"), []),
    "texts and boxes of images": (
        {"cat/1.png": 1, "cat/1.txt": b"a cat", "cat/1.xml": b"", "dog/1.png": 2},
        ("cat", "dog"),
        ["cat/1.xml is not read; see docs/datasets.md#pascal-voc"],
    ),
    "a table": (
        {"cat/1.png": 1, "dog/1.png": 2, "labels.csv": b"id,x"},
        ("cat", "dog"),
        ["labels.csv is not read; see docs/datasets.md#kaggle"],
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
    "splits with a year": (["train2017/1.png", "val2017/2.png"], OTHERS, "'train2017', 'val2017'"),
    "splits with a size": (["data_256/a/1.png", "val_256/1.png"], OTHERS, "'data_256', 'val_256'"),
    "splits further down": (["flowers/train/1/1.png", "flowers/other/2.png"], OTHERS, "'flowers'"),
    "classes further down": (["birds/n01/1.png", "birds/n02/1.png"], OTHERS, "'birds'"),
    "one class": (["cat/1.png"], OTHERS, "'cat'"),
    "nested classes": (["a/abbey/1.png", "b/bar/in/2.png"], NESTED, "'a', 'b'"),
}


@pytest.mark.parametrize(("files", "section", "seen"), DOUBTFUL.values(), ids=DOUBTFUL)
def test_folders_that_may_be_no_classes_are_refused_unless_declared(files, section, seen, image_folder):
    root = image_folder({name: number for number, name in enumerate(files)})
    with raises(InputError, "layout-known", section=section) as caught:
        ImageFolder(root).listing()
    assert caught.value.values["seen"].endswith(seen)
    folders = {path.split("/")[0] for path in files}
    for declared in ({"as_is": True}, {"split_folders": {}}, {"class_names": sorted(folders)}):
        assert set(ImageFolder(root, **declared).listing().schema.class_names) == folders


IN_SPLITS = {
    "nested classes": (["train/a/x/1.png", "test/a/y/2.png"], NESTED, "a"),
    "only a folder of images": (["train/images/1.png", "test/images/2.png"], OTHERS, "images"),
}


@pytest.mark.parametrize(("files", "section", "name"), IN_SPLITS.values(), ids=IN_SPLITS)
def test_folders_in_splits_that_may_be_no_classes_are_refused(files, section, name, image_folder):
    root = image_folder({name: number for number, name in enumerate(files)})
    for given in (None, {"train": "train", "test": "test"}):
        with raises(InputError, "layout-known", section=section):
            ImageFolder(root, split_folders=given).listing()
    assert ImageFolder(root, as_is=True).listing().schema.class_names == (name,)


def test_the_remedies_of_losses_name_flags_on_the_command_line():
    assert set(remedies()) == {loss.conversion for loss in LOSSES}
    assert remedies()["16 bits to 8"] == "--depth 16 keeps their values"
    assert remedies()["alpha dropped"] == "--alpha keep and --channels 4 store it"
    assert not any("=" in remedy for remedy in remedies().values())
