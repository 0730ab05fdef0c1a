"""Image folders as a source: examples, classes, splits, and skipped entries, which are counted."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import PIL
import pytest

from tests.errors import fault, raises
from tfshards.prep import ImageFolder, ImageOptions
from tfshards.prep.imaging.options import CONVERSION
from tfshards.prep.imaging.pillow import decoder_versions, formats
from tfshards.prep.sources.base import Accepted, Listing, Rejected, Row
from tfshards.prep.sources.images.layout import FileTable
from tfshards.prep.sources.tree import LocalTree
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.reasons import Reason


def listed(root: Path, **options: bool) -> Listing:
    return ImageFolder(root, **options).listing()


def keys(listing: Listing) -> list[str]:
    return [os.fsdecode(key) for key in listing.keys]


def splits(listing: Listing) -> dict[str, list[str]] | None:
    if listing.splits is None:
        return None
    return {name: [keys(listing)[number] for number in numbers] for name, numbers in listing.splits.items()}


# files -> labels, class names, split folders
LAYOUTS = {
    "no folders: no classes": (["b.png", "a.jpg"], None, (), ()),
    "class folders": (["dog/1.png", "cat/2.png", "cat/1.png"], [0, 0, 1], ("cat", "dog"), ()),
    "folders inside": (["cat/a/b/1.png", "cat/1.png", "dog/x/1.png"], [0, 0, 1], ("cat", "dog"), ()),
    "split folders with classes, which are numbered together": (
        ["train/dog/1.png", "train/cat/1.png", "val/ant/1.png", "test/dog/1.png"],
        [2, 1, 2, 0],
        ("ant", "cat", "dog"),
        ("train", "val", "test"),
    ),
    "one split folder": (["train/1.png"], None, (), ("train",)),
    "all names of splits, in their order": (
        [f"{name}/1.png" for name in ("testing", "dev", "valid", "training")],
        None,
        (),
        ("training", "valid", "dev", "testing"),
    ),
    "in any case": (["Train/1.png", "VAL/1.png", "Test/1.png"], None, (), ("Train", "VAL", "Test")),
    "suffixes": ([f"1.{suffix}" for suffix in ("JPG", "Png", "jpe", "jfif", "bmp", "tiff")], None, (), ()),
    "keys, and names of classes, are sorted by their bytes": (
        ["a/b.png", "a.b/1.png", "a b/1.png", "ä/1.png", "z/1.png"],
        [1, 2, 0, 3, 4],
        ("a", "a b", "a.b", "z", "ä"),
        (),
    ),
}


@pytest.mark.parametrize(("files", "labels", "class_names", "tops"), LAYOUTS.values(), ids=LAYOUTS)
def test_classes_and_splits_follow_from_the_folders(files, labels, class_names, tops, image_folder):
    listing = listed(image_folder(dict.fromkeys(files, 1)))
    found = sorted(files, key=os.fsencode)
    assert keys(listing) == found
    assert (None if listing.labels is None else listing.labels.tolist()) == labels
    assert listing.schema.class_names == class_names
    in_splits = {top.lower(): [name for name in found if name.startswith(f"{top}/")] for top in tops}
    assert list((splits(listing) or {}).items()) == list(in_splits.items())
    assert listing.schema.names == (("image", "label", "key") if class_names else ("image", "key"))
    assert (listing.skipped, listing.warnings) == ({}, ())


def test_sizes_and_times_are_those_of_the_files(image_folder):
    root = image_folder({"a.png": b"12345", "b.png": b""})
    os.utime(root / "b.png", ns=(1, 2_000_000_003))
    listing = listed(root)
    assert listing.sizes.tolist() == [5, 0]
    assert listing.stamps.tolist() == [(root / "a.png").stat().st_mtime_ns, 2_000_000_003]


@pytest.mark.parametrize("together", [1, 3, 1 << 18])
def test_the_listing_does_not_depend_on_how_many_names_are_sorted_together(
    together, image_folder, monkeypatch
):
    monkeypatch.setattr("tfshards.prep.sources.tree._SORTED_TOGETHER", together)
    # "-" is before the slash, and "b" holds images beside a folder of them
    names = [f"{folder}/{number}.png" for folder in ("b-c", "b", "b/a", "a") for number in range(7)]
    root = image_folder({name: size for size, name in enumerate(names, 1)})
    tree = LocalTree(os.fsencode(os.path.realpath(root)), follow_links=False)
    table = FileTable.of(tree.images(Counter())).by_key()
    assert [*table.keys] == sorted(map(os.fsencode, names))
    paths = [root / os.fsdecode(key) for key in table.keys]
    assert table.sizes.tolist() == [path.stat().st_size for path in paths]
    assert table.stamps.tolist() == [path.stat().st_mtime_ns for path in paths]


def test_files_that_are_not_inputs_are_skipped_and_counted(image_folder, tmp_path):
    root = image_folder(
        {
            "cat/1.png": 1,
            "cat/notes.txt": b"no image",
            "cat/none": b"no suffix",
            "cat/.hidden.png": 1,
            ".git/objects/1.png": 1,
            ".git/config": b"",
            "cat/.cache/deep/er/1.png": 1,
            ".empty/": b"",
            "beside.png": 1,
            "cat/.png": 1,
        }
    )
    os.mkfifo(root / "cat" / "pipe.png")
    os.symlink("1.png", root / "cat" / "inside.png")
    os.symlink(root / "cat", root / "cat" / "loop.png")
    os.symlink(root, root / ".git" / "loop")
    os.symlink("nowhere.png", root / "cat" / "broken.png")
    outside = tmp_path / "outside.png"
    outside.write_bytes(b"secret")
    os.symlink(outside, root / "cat" / "outside.png")
    os.symlink("../../photos/cat/1.png", root / "cat" / "roundabout.png")
    listing = listed(root, as_is=True)
    assert keys(listing) == ["cat/1.png", "cat/inside.png", "cat/roundabout.png"]
    assert listing.skipped == {
        "beside the folders": 1,
        "broken link": 1,
        "hidden": 6,
        "link out of the root": 1,
        "link to a folder": 1,
        "not an image": 2,
        "special file": 1,
    }
    # an entry is anything except a folder, found without following links
    assert listing.num_entries == sum(not path.is_dir() or path.is_symlink() for path in root.rglob("*"))


def test_a_root_may_be_a_link_or_a_relative_path(small_folder, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(small_folder)
    monkeypatch.chdir(tmp_path)
    for root in ("link", "photos", "./photos/", small_folder):
        source = ImageFolder(root)
        listing = source.listing()
        assert keys(listing) == keys(listed(small_folder))
        assert not listing.skipped
        outcome = source.read(listing.rows(np.array([0])), listing.schema)[0]
        assert outcome.values[0] == (small_folder / keys(listing)[0]).read_bytes()


def test_files_beside_the_class_folders_belong_to_no_class(image_folder):
    listing = listed(image_folder({"train/1.png": 1, "train/cat/1.png": 1, "test/cat/1.png": 1, "2.png": 1}))
    assert keys(listing) == ["test/cat/1.png", "train/cat/1.png"]
    assert listing.skipped == {"beside the folders": 2}


def test_a_folder_without_images_is_no_class_and_is_reported(image_folder):
    root = image_folder({"ant/": b"", "bee/1.png": 1, "cat\x1b/": b"", "annotations/a.json": b"{}"})
    listing = listed(root, as_is=True)
    assert listing.schema.class_names == ("bee",)
    assert listing.labels.tolist() == [0]
    assert listing.warnings == tuple(
        f"the folder {name} holds no images and is not a class; class_names= can name it"
        for name in ("'annotations'", "'ant'", r"'cat\x1b'")
    )


def test_a_given_class_without_images_keeps_its_number_and_is_reported(image_folder):
    root = image_folder({"ant/": b"", "bee/1.png": 1, "cat\x1b/": b"", "notes/a.txt": b""})
    listing = ImageFolder(root, class_names=["ant", "bee", "cat\x1b"]).listing()
    assert listing.schema.class_names == ("ant", "bee", "cat\x1b")
    assert listing.labels.tolist() == [1]
    assert listing.warnings == (
        "the folder 'notes' holds no images and is not a class; class_names= can name it",
        "the class folder 'ant' holds no images; it keeps its number",
        r"the class folder 'cat\x1b' holds no images; it keeps its number",
    )


def test_folders_may_be_nested_deeper_than_the_recursion_limit(image_folder):
    root = image_folder({"1.png": 1})
    depth = sys.getrecursionlimit() + 200
    deep = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("a", dir_fd=deep)
        deep, above = os.open("a", os.O_RDONLY, dir_fd=deep), deep
        os.close(above)
    os.close(os.open("2.png", os.O_CREAT | os.O_WRONLY, dir_fd=deep))
    os.close(deep)
    try:
        listing = ImageFolder(root, as_is=True).listing()
    finally:
        # shutil.rmtree is recursive and would fail
        subprocess.run(["rm", "-r", root], check=True)
    assert [key.count(b"/") for key in listing.keys] == [depth]
    assert listing.skipped == {"beside the folders": 1}


def test_an_example_is_image_label_and_key(image_folder):
    root = image_folder({"cat/1.png": 1, "dog/bad.jpg": b"text", "dog/no.png": b""})
    listing = listed(root)
    known = ", ".join(formats())
    outcomes = ImageFolder(root).read(listing.rows(np.arange(3)), listing.schema)
    assert outcomes == [
        Accepted(((root / "cat/1.png").read_bytes(), 0, b"cat/1.png")),
        Rejected(Reason.UNREADABLE, f"starts with 74 65 78 74, opens as none of {known}"),
        Rejected(Reason.EMPTY, "the file has no bytes"),
    ]
    taken = ImageFolder(root, ImageOptions(check="none")).read(listing.rows(np.arange(3)), listing.schema)
    assert [outcome.values[0] for outcome in taken[1:]] == [b"text", b""]


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def newer(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("change", [longer, shorter, newer, a_pipe, Path.unlink])
def test_a_file_that_changes_during_reading_ends_it(change, small_folder):
    listing = listed(small_folder)
    change(small_folder / "cat" / "00.png")
    with raises(InputError, "unreadable" if change is Path.unlink else "changed-file"):
        ImageFolder(small_folder).read(listing.rows(np.arange(1)), listing.schema)


def test_a_large_file_is_read_whole(image_folder):
    content = bytes(range(256)) * 40_000
    root = image_folder({"1.png": content})
    listing = listed(root)
    (outcome,) = ImageFolder(root, ImageOptions(check="none")).read(
        listing.rows(np.arange(1)), listing.schema
    )
    assert outcome.values[0] == content


def test_groups_are_folders_or_matches_of_an_expression(image_folder):
    root = image_folder({"cat/a/img_01_x.png": 1, "cat/a/img_02_x.png": 1, "cat/img_01_y.png": 1})
    listing = listed(root, as_is=True)
    source = ImageFolder(root)
    assert source.groups(listing, "folder") == [b"cat/a", b"cat/a", b"cat"]
    assert source.groups(listing, r"img_(\d+)") == [b"01", b"02", b"01"]
    assert source.groups(listing, r"(^)cat") == [b"", b"", b""]


def test_the_options_of_the_source_are_those_that_change_the_output():
    recorded = {"source": "images", "conversion": CONVERSION, **decoder_versions()}
    assert ImageFolder("x").options() == {**recorded, **ImageOptions().to_json()}
    assert decoder_versions()["pillow"] == PIL.__version__
    options = ImageOptions(resize="short=8", channels=1)
    changed = ImageFolder("x", options, follow_links=True).options()
    assert changed == {**recorded, **options.to_json(), "follow_links": True}
    assert ImageFolder("x", ImageOptions(check="none")).options() == {
        "source": "images",
        "check": "none",
        "max_bytes": 1 << 30,
    }


def test_the_rows_of_a_plan_hold_everything_that_a_worker_needs(image_folder):
    root = image_folder({"cat/1.png": b"123", "dog/\udcff.png": b"12345"})
    stamp = (root / "cat/1.png").stat().st_mtime_ns
    rows = listed(root).rows(np.array([1, 0]))
    assert rows == [Row("dog/\udcff.png", 1, 5, stamp), Row("cat/1.png", 0, 3, stamp)]
    assert all(type(value) in (str, int) for row in rows for value in row)
    assert listed(image_folder({"1.png": b""}, name="bare")).rows(np.array([0]))[0].label == -1


def test_a_folder_of_images_is_not_copied_for_the_build(small_folder, tmp_path):
    source = ImageFolder(small_folder)
    assert source.stage(tmp_path / "nowhere") is source
    assert source.location() == small_folder


@pytest.mark.parametrize(
    ("by", "error"),
    [
        ("(a", "group-by-expression"),
        ("(a{99999999999})", "group-by-expression"),
        ("cat", "group-by-value"),
        ("(c)(a)", "group-by-value"),
        ("(dog)", fault("group-by-no-match", key="cat/00.png")),
        ("(x)?cat", fault("group-by-no-match", key="cat/00.png")),
    ],
)
def test_an_expression_that_cannot_group_is_an_error(by, error, small_folder):
    with raises((InputError, OptionsError), error):
        ImageFolder(small_folder).groups(listed(small_folder), by)


@pytest.mark.parametrize(
    ("files", "where", "error"),
    [
        ({}, "", "folder-no-images"),
        ({"cat/": b"", "dog/": b""}, "", "folder-no-images"),
        ({"a.txt": b"", "cat/b.nef": b"II*\0", ".c.png": b""}, "", "folder-no-images"),
        ({"train/": b"", "1.png": 1, "2.png": 1}, "", fault("images-outside-folders", num_found=2)),
        ({}, "gone", fault("folder-problem", problem="does not exist")),
        ({"1.png": 1}, "1.png", fault("folder-problem", problem="is not a folder")),
    ],
)
def test_a_folder_without_images_is_an_error(files, where, error, image_folder):
    with raises(InputError, error):
        listed(image_folder(files) / where)
