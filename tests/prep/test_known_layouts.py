"""A folder with a mark of another layout is refused with the section that builds it; others are built."""

import re
from pathlib import Path

import pytest

from tests.errors import raises
from tfshards.prep import ImageFolder
from tfshards.schemas import InputError

PAGE = "docs/datasets.md"
HEADINGS = re.findall("^## (.+)$", (Path(__file__).parents[2] / PAGE).read_text(), re.M)
SECTIONS = {re.sub("[^a-z0-9-]", "", name.lower().replace(" ", "-")) for name in HEADINGS}
CLASSES = ["cat/1.png", "dog/1.png"]
# files of a layout, of which the first ones are the mark -> its section; tests/imitations.py has a layout of
# each section, which tests/test_datasets.py refuses and builds
LAYOUTS = {
    "boxes in XML": (["train/1.xml", "train/1.png", "test/2.xml", "test/2.png"], "pascal-voc"),
    "ImageNet": (["imagenet_2012_validation_synset_labels.txt", "train/n01/1.png", "val/1.png"], "imagenet"),
    "keypoints": (["annotations/person_keypoints_val2017.json", *CLASSES], "coco"),
    "COCO of Roboflow": (["train/_annotations.coco.json", "train/1.png", "valid/2.png"], "coco"),
    "KITTI": (["training/image_2/1.png", "training/label_2/1.txt"], "other-layouts"),
    "HAM10000": (["HAM10000_metadata.csv", "part_1/1.png", "part_2/2.png"], "other-layouts"),
    "masks among images": (["benign/b (1)_mask.png", "benign/b (1).png", "normal/1.png"], "images-and-masks"),
    "YOLO": (["images/train/1.png", "labels/train/1.txt"], "yolo"),
    "YOLO with data.yaml": (["data.yaml", "train/images/1.png", "train/labels/1.txt"], "yolo"),
    "Hugging Face, with splits": (["test/metadata.jsonl", "test/2.png", "train/1.png"], "hugging-face"),
    "Kaggle, further down": (["labels.csv", "train/patient1/study1/7.png"], "kaggle"),
}


def listing_of(root, **given):
    """Return the listing of a folder."""
    return ImageFolder(root, **given).stage(None).listing()


def files_of(names):
    return {name: number if name.endswith(".png") else b"" for number, name in enumerate(names)}


def parts(names):
    """Return files, and the folders that they are in, with a slash."""
    return {*names} | {name[: end + 1] for name in names for end, c in enumerate(f"{name}/") if c == "/"}


@pytest.mark.parametrize(("names", "section"), LAYOUTS.values(), ids=LAYOUTS)
def test_a_mark_is_refused_with_a_section_of_the_page_unless_the_folder_is_taken_as_it_is(
    names, section, image_folder
):
    root = image_folder(files_of(names))
    assert section in SECTIONS
    with raises(
        InputError, "do not show the classes", f"{PAGE}#{section}", str(root), code="layout-known"
    ) as caught:
        listing_of(root)
    seen = re.search("holds (.*); its folders", str(caught.value))[1]
    assert seen == "masks next to their images" or {*seen.split(" and ")} <= parts(names), seen
    listing = listing_of(root, as_is=True)
    assert len(listing.keys) == sum(name.endswith(".png") for name in names)


DOUBTFUL = {
    "splits with a year": (["train2017/1.png", "val2017/2.png"], "other-layouts", "'train2017', 'val2017'"),
    "splits further down": (["flowers/train/1/1.png", "flowers/other/2.png"], "other-layouts", "'flowers'"),
    "classes further down": (["birds/n01/1.png", "birds/n02/1.png"], "other-layouts", "'birds'"),
    "one class": (["cat/1.png"], "other-layouts", "'cat'"),
    "nested classes": (["a/abbey/1.png", "b/bar/in/2.png"], "nested-folders", "'a', 'b'"),
}


@pytest.mark.parametrize(("files", "section", "seen"), DOUBTFUL.values(), ids=DOUBTFUL)
def test_folders_that_may_be_no_classes_are_refused_unless_declared(files, section, seen, image_folder):
    root = image_folder(files_of(files))
    with raises(InputError, f"{seen}; its folders do not show the classes", f"{PAGE}#{section}"):
        listing_of(root)
    folders = {path.split("/")[0] for path in files}
    for declared in ({"as_is": True}, {"split_folders": {}}, {"class_names": sorted(folders)}):
        assert set(listing_of(root, **declared).schema.class_names) == folders


NO_FALSE_ALARM = {
    "a table of classes": [*CLASSES, "metadata.csv", "labels.csv"],
    "boxes of classes": [*CLASSES, "cat/1.xml", "data.yaml"],
    "a table of the classes": ["train/cat/0007.png", "train/dog/8.png", "test/1.png", "train.csv"],
    "ImageNet with classes": ["train/n01/1.png", "val/n01/2.png", "LOC_val_solution.csv"],
    "lists in labels": ["images/1.png", "x/2.png", "labels/train1.txt"],
    "masks alone": ["cat/1_mask.png", "dog/2_mask.png"],
    "hidden marks": [".git/JPEGImages/a", ".git/Annotations/a", ".data.yaml", *CLASSES],
    "marks in different folders": ["a/2.png", "a/JPEGImages/1.png", "b/Annotations/1.png"],
    "half a mark": ["JPEGImages/1.png", "dog/1.png"],
}


@pytest.mark.parametrize("names", NO_FALSE_ALARM.values(), ids=NO_FALSE_ALARM)
def test_folders_that_look_alike_are_built(names, image_folder):
    assert len(listing_of(image_folder(files_of(names))).keys)


# files next to images of two classes -> what the warnings name
NOT_READ = {
    "arrays": (["cat/b.npy", "cat/a.npy"], ["cat/a.npy", "#other-layouts"]),
    "texts and boxes": (["cat/1.txt", "cat/1.xml"], ["cat/1.xml", "#pascal-voc"]),
    "a table": (["labels.csv"], ["labels.csv", "#kaggle"]),
    "what macOS adds": (["__MACOSX/b/._1.png", "__MACOSX/b/2.png", "cat/__MACOSX/4.png"], []),
}


@pytest.mark.parametrize(("names", "named"), NOT_READ.values(), ids=NOT_READ)
def test_files_of_another_source_next_to_classes_are_warned_of(names, named, image_folder):
    listing = listing_of(image_folder(files_of([*CLASSES, *names])))
    assert listing.schema.class_names == ("cat", "dog")
    assert listing.skipped.get("hidden", 0) == 2 * any("__MACOSX" in name for name in names)
    assert len(listing.warnings) == bool(named)
    assert all(text in listing.warnings[0] for text in named)
