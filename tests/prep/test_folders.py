"""Hostile trees, known layouts, split folders and masks: what is read, skipped, refused, found again."""

import hashlib
import json
import os
import re
import socket
import stat
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.errors import raises
from tests.reported import logged
from tests.surface.command import run
from tfshards import loader
from tfshards.prep import ImageFolder, append, audit, verify
from tfshards.schemas import InputError


def walk(root: Path, *, follow_links: bool = False) -> tuple[list[str], dict[str, int]]:
    """Return the sorted keys found in a folder, and the skipped entries by reason."""
    listing = ImageFolder(root, follow_links=follow_links, as_is=True).stage(None).listing()
    return sorted(os.fsdecode(key).removeprefix("x/") for key in listing.keys), dict(listing.skipped)


def unix_socket(path: Path) -> None:
    # its path may have about a hundred bytes
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize("make", [os.mkfifo, unix_socket, device])
def test_special_files_are_skipped_and_never_opened(make, image_folder):
    root = image_folder({"cat/1.png": 1})
    for name in ("x.png", "x"):
        make(root / "cat" / name)
        os.symlink(root / "cat" / name, root / "cat" / f"link to {name}.png")
    for follow_links in (False, True):
        assert walk(root, follow_links=follow_links) == (["cat/1.png"], {"special file": 4})


# (a tree of links: name -> target), what is found with and without --follow-links
OUT, TO_FOLDER = {"link out of the root": 1}, {"link to a folder": 1}
BROKEN = {"broken link": 1}
LINKS = {
    "a file in the folder": ({"b.png": "cat/1.png"}, ["b.png"], {}, ["b.png"], {}),
    "a file outside": ({"b.png": "../outside/2.png"}, [], OUT, ["b.png"], {}),
    "a folder whose name begins like the root's": ({"b.png": "../photos2/3.png"}, [], OUT, ["b.png"], {}),
    "a folder outside": ({"dog": "../outside"}, [], TO_FOLDER, ["dog/2.png"], {}),
    "itself": ({"b.png": "b.png"}, [], BROKEN, [], BROKEN),
    "nothing": ({"b.png": "gone"}, [], BROKEN, [], BROKEN),
    "the root": ({"cat/up": ".."}, [], TO_FOLDER, [], {"link loop": 1}),
    "a hidden one": ({".b.png": "../outside/2.png"}, [], {"hidden": 1}, [], {"hidden": 1}),
}  # fmt: skip


@pytest.mark.parametrize(("links", "found", "skipped", "followed", "left"), LINKS.values(), ids=LINKS)
def test_links_lead_out_of_the_root_only_on_request(links, found, skipped, followed, left, image_folder):
    root = image_folder({"x/cat/1.png": 1})
    image_folder({"2.png": 2}, name="outside")
    image_folder({"3.png": 3}, name="photos2")
    for name, target in links.items():
        # from a class, which is one folder deeper
        os.symlink(f"../{target}" if target.startswith("../") else target, root / "x" / name)
    assert walk(root) == (sorted([*found, "cat/1.png"]), skipped)
    assert walk(root, follow_links=True) == (sorted([*followed, "cat/1.png"]), left)


def test_two_folders_that_link_to_each_other_do_not_loop(image_folder):
    root = image_folder({"a/1.png": 1, "b/2.png": 2})
    os.symlink("../b", root / "a" / "to")
    os.symlink("../a", root / "b" / "to")
    assert walk(root, follow_links=True) == (
        ["a/1.png", "a/to/2.png", "b/2.png", "b/to/1.png"],
        {"link loop": 2},
    )


def test_names_in_a_foreign_manifest_are_printed_escaped(image_folder, tmp_path, quiet_build):
    out = tmp_path / "out"
    quiet_build(ImageFolder(image_folder({"cat/1.png": 1, "dog/2.png": 2, "notes\x1b.txt": b""})), out)
    text = (out / "dataset.json").read_text()
    document = json.loads(text)
    document["totals"]["reasons"]["skipped"] = {"\x1b[31m\nred": 1}
    document["totals"]["conversions"] = {"\u202edone": 1}
    # as docs/format.md has it: of the text with zeros in place of the digest
    before, mark, rest = json.dumps(document).rpartition('"digest": "sha256:')
    digest = hashlib.sha256(f"{before}{mark}{'0' * 64}{rest[64:]}".encode()).hexdigest()
    (out / "dataset.json").write_text(before + mark + digest + rest[64:])
    status, text, _ = run(["info", out])
    assert status == 0
    assert r"\x1b[31m\nred" in text
    assert r"\u202edone" in text
    assert all(line.isprintable() for line in text.split("\n"))


# Split folders and split lists of a build, as later verbs find them again


def test_append_knows_the_folders_of_the_build(image_folder, tmp_path, quiet_build):
    root = image_folder({"Train/1.png": 1, "holdout/1.png": 2, "old/1.png": 3})
    given = {"train": "Train", "final": "holdout"}
    out = tmp_path / "out"
    quiet_build(ImageFolder(root, split_folders=given, exclude=["**/x*"]), out)
    more = image_folder({"holdout/2.png": 4, "holdout/x.png": 5}, name="more")
    grown = append(more, out)
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
        append(wrong, out)
    more = image_folder({"train/cat/9.png": 30, "test/d.png": 31}, name="more")
    grown = append(more, out)
    assert grown.splits["train"].label_counts == {"cat": 3, "mouse": 2}
    assert (grown.splits["test"].label_counts, grown.splits["test"].num_examples) == ({}, 3)
    assert verify(out, deep=True)


# Masks next to images: links that were not listed, files that change, and verbs that find them again


TEMPLATE = "{folders}/{stem:-_left}_gt.png"


def mask_of(number):
    row, column = np.mgrid[:12, :15]
    return np.array([0, 2, 4], np.uint8)[(row // (2 + number % 3) + column // 4) % 3]


def photo_of(number):
    return np.stack([mask_of(number) * 50, *[np.full((12, 15), number, np.uint8)] * 2], axis=2)


@pytest.fixture
def write(tmp_path):
    """Write photos and masks below ``data``: a name ends with the number of its content."""

    def make(*names, folder="data"):
        for name in names:
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            number = int("".join(filter(str.isdecimal, path.stem)))
            Image.fromarray((photo_of if "images" in name else mask_of)(number)).save(path)
        return tmp_path / folder

    return make


def numbers(out):
    """Return the numbers of the photos in a dataset, after each was compared with its mask."""
    image = loader.Image((12, 15), method="nearest")
    batches = [*loader.batches(out, batch_size=1, image=image)]
    for batch in batches:
        assert np.array_equal(batch["image"][0, :, :, :1], batch["mask"][0] * 50)
    return sorted(int(batch["image"][0, 0, 0, 1]) for batch in batches)


def test_a_mask_that_changes_after_it_was_listed_stops_the_build(write, tmp_path, quiet_build):
    root = write("images/a1.png", "masks/a1.png")

    class Changing(ImageFolder):
        def stage(self, folder, **given):
            found = super().stage(folder, **given)
            os.utime(root / "masks/a1.png", ns=(1, 1))
            return found

    with pytest.raises(InputError, match=r"masks/a1\.png: changed after"):
        quiet_build(Changing(root, mask_dir="masks"), tmp_path / "out")


def test_append_finds_the_masks_again(write, tmp_path, quiet_build):
    def grow(*numbers):
        names = ("images/x/a{}_left.png", "seg/x/a{}_gt.png")
        return write(*(name.format(number) for number in numbers for name in names))

    root, out, log = grow(1, 2), tmp_path / "out", []
    quiet_build(ImageFolder(root, mask_dir="seg/", mask_name=TEMPLATE, as_is=True), out, shards=2)
    grow(3)
    logged(append, log.append)([root], out)
    assert not [line for line in log if "taken for" in line]
    assert numbers(out) == [1, 2, 3]
    assert verify(out, decode=True)


# A folder with a mark of another layout is refused with the section that builds it; others are built


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


def test_a_mark_is_refused_before_folders_that_are_neither_all_splits_nor_all_classes(image_folder):
    root = image_folder(files_of(["train/good/1.png", "test/bad/2.png", "ground_truth/bad/2_mask.png"]))
    for given in ({}, {"class_names": ["bad", "good"]}, {"split_folders": {"train": "train"}}):
        with raises(InputError, "ground_truth/", f"{PAGE}#mvtec-ad", code="layout-known"):
            listing_of(root, **given)


DOUBTFUL = {
    "splits with a year": (["train2017/1.png", "val2017/2.png"], "other-layouts", "'train2017', 'val2017'"),
    "splits further down": (["flowers/train/1/1.png", "flowers/other/2.png"], "other-layouts", "'flowers'"),
    "classes further down": (["birds/n01/1.png", "birds/n02/1.png"], "other-layouts", "'birds'"),
    "one class": (["cat/1.png"], "other-layouts", "'cat'"),
    "nested classes": (
        ["a/abbey/1.png", "b/bar/in/2.png"],
        "nested-folders",
        "'a', 'b' (if these are splits, split_folders= names them)",
    ),
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
