"""Folders of images that look like COCO, YOLO, or splits one level further down."""

from __future__ import annotations

import pytest

from tfshards.prep import ImageFolder
from tfshards.schemas.summary import LOSSES, remedies

COCO = "{} is not read; 'tfshards build table --from coco' stores boxes and classes"
YOLO = "{} is not read; 'tfshards build table --from yolo' stores boxes and classes"
TABLE = "{} is not read; 'tfshards build table' stores its columns with the images"
NO_CLASS = "the folder {!r} holds no images and is not a class; class_names= can name it"
FURTHER = "{!r} is taken for the only class, but holds {}; if these are splits, give {!r} as the source"

FOLDERS = {
    "COCO": (
        {"annotations/instances_train2017.json": b"{}", "train2017/1.png": 1, "val2017/2.png": 2},
        ("train2017", "val2017"),
        [
            COCO.format("annotations/instances_train2017.json"),
            NO_CLASS.format("annotations"),
            "'train2017', 'val2017' are taken for classes; if these are splits, give split_folders={'train': "
            "'train2017', 'val': 'val2017'}",
        ],
    ),
    "a table": ({"metadata.csv": b"", "cat/1.png": 1}, ("cat",), [TABLE.format("metadata.csv")]),
    "a table in each split": (
        {"train/metadata.jsonl": b"", "train/1.png": 1, "test/metadata.jsonl": b"", "test/2.png": 2},
        (),
        [TABLE.format("test/metadata.jsonl")],
    ),
    "other annotations": (
        {"annotations/list.txt": b"", "cat/1.png": 1},
        ("cat",),
        [NO_CLASS.format("annotations")],
    ),
    "COCO of Roboflow": (
        {"train/_annotations.coco.json": b"{}", "train/1.png": 1, "valid/2.png": 2},
        (),
        [COCO.format("train/_annotations.coco.json")],
    ),
    "YOLO": (
        {"images/1.png": 1, "labels/1.txt": b"0 .5 .5 .1 .1"},
        ("images",),
        [YOLO.format("labels/1.txt"), NO_CLASS.format("labels")],
    ),
    "YOLO with data.yaml": (
        {"data.yaml": b"names: [a]", "train/images/1.png": 1, "train/labels/1.txt": b""},
        ("images",),
        [YOLO.format("data.yaml"), NO_CLASS.format("labels")],
    ),
    "classes named like the folders of YOLO": (
        {"images/1.png": 1, "labels/1.png": 2},
        ("images", "labels"),
        [],
    ),
    "splits further down": (
        {"flowers/train/1/1.png": 1, "flowers/Valid/1/1.png": 2, "flowers/other/2.png": 3},
        ("flowers",),
        [FURTHER.format("flowers", "'Valid', 'train'", "ROOT/flowers")],
    ),
    "a class with folders": ({"cat/a/1.png": 1, "cat/b/1.png": 2}, ("cat",), []),
    "what macOS adds": (
        {"cat/1.png": 1, "__MACOSX/cat/._1.png": 2, "__MACOSX/cat/2.png": 3, "cat/__MACOSX/4.png": 4},
        ("cat",),
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


def test_the_remedies_of_losses_name_flags_on_the_command_line():
    assert set(remedies()) == {loss.conversion for loss in LOSSES}
    assert remedies()["16 bits to 8"] == "--depth 16 keeps their values"
    assert remedies()["alpha dropped"] == "--alpha keep and --channels 4 store it"
    assert not any("=" in remedy for remedy in remedies().values())
