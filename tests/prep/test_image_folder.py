"""Image folders as a source: examples, classes, splits, and skipped entries, which are counted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL
import pytest

from tests.errors import fault, raises
from tests.permissions import obey_permissions
from tfshards.prep import ImageFolder, ImageOptions
from tfshards.prep.imaging.formats import BY_SUFFIX_ALONE
from tfshards.prep.imaging.options import CONVERSION
from tfshards.prep.imaging.pillow import decoder_versions, formats
from tfshards.prep.sources.base import Accepted, Listing, Rejected, Row
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.reasons import Reason


def listed(root: Path) -> Listing:
    return ImageFolder(root).listing()


def keys(listing: Listing) -> list[str]:
    return [os.fsdecode(key) for key in listing.keys]


def splits(listing: Listing) -> dict[str, list[str]] | None:
    if listing.splits is None:
        return None
    return {name: [keys(listing)[number] for number in numbers] for name, numbers in listing.splits.items()}


# files -> keys, labels, class names, splits
LAYOUTS = {
    "no folders: no classes": (["b.png", "a.jpg"], ["a.jpg", "b.png"], None, (), None),
    "class folders": (
        ["dog/1.png", "cat/2.png", "cat/1.png"],
        ["cat/1.png", "cat/2.png", "dog/1.png"],
        [0, 0, 1],
        ("cat", "dog"),
        None,
    ),
    "folders in class folders": (
        ["cat/a/b/1.png", "cat/1.png", "dog/x/1.png"],
        ["cat/1.png", "cat/a/b/1.png", "dog/x/1.png"],
        [0, 0, 1],
        ("cat", "dog"),
        None,
    ),
    "split folders with classes, which are numbered together": (
        ["train/dog/1.png", "train/cat/1.png", "val/ant/1.png", "test/dog/1.png"],
        ["test/dog/1.png", "train/cat/1.png", "train/dog/1.png", "val/ant/1.png"],
        [2, 1, 2, 0],
        ("ant", "cat", "dog"),
        {
            "train": ["train/cat/1.png", "train/dog/1.png"],
            "val": ["val/ant/1.png"],
            "test": ["test/dog/1.png"],
        },
    ),
    "split folders without classes": (
        ["training/1.png", "validation/1.png", "testing/1.png"],
        ["testing/1.png", "training/1.png", "validation/1.png"],
        None,
        (),
        {"training": ["training/1.png"], "validation": ["validation/1.png"], "testing": ["testing/1.png"]},
    ),
    "one split folder": (["train/1.png"], ["train/1.png"], None, (), {"train": ["train/1.png"]}),
    "all names of splits, in their order": (
        [f"{name}/1.png" for name in ("testing", "dev", "valid", "train")],
        ["dev/1.png", "testing/1.png", "train/1.png", "valid/1.png"],
        None,
        (),
        {name: [f"{name}/1.png"] for name in ("train", "valid", "dev", "testing")},
    ),
    "names of splits in any case": (
        ["Train/1.png", "VAL/1.png", "Test/1.png"],
        ["Test/1.png", "Train/1.png", "VAL/1.png"],
        None,
        (),
        {"train": ["Train/1.png"], "val": ["VAL/1.png"], "test": ["Test/1.png"]},
    ),
    "capital suffixes": (["A.JPG", "b.Png"], ["A.JPG", "b.Png"], None, (), None),
    "every suffix": (
        [
            f"1.{suffix}"
            for suffix in ("jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "tif", "tiff")
        ],
        sorted(
            f"1.{suffix}"
            for suffix in ("jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "tif", "tiff")
        ),
        None,
        (),
        None,
    ),
    "keys, and names of classes, are sorted by their bytes": (
        ["a/b.png", "a.b/1.png", "a b/1.png", "ä/1.png", "z/1.png"],
        ["a b/1.png", "a.b/1.png", "a/b.png", "z/1.png", "ä/1.png"],
        [1, 2, 0, 3, 4],
        ("a", "a b", "a.b", "z", "ä"),
        None,
    ),
}


@pytest.mark.parametrize(
    ("files", "found", "labels", "class_names", "in_splits"), LAYOUTS.values(), ids=LAYOUTS.keys()
)
def test_classes_and_splits_follow_from_the_folders(
    files, found, labels, class_names, in_splits, image_folder
):
    listing = listed(image_folder(dict.fromkeys(files, 1)))
    assert keys(listing) == found
    assert (None if listing.labels is None else listing.labels.tolist()) == labels
    assert listing.schema.class_names == class_names
    assert splits(listing) == in_splits
    assert listing.schema.names == (("image", "label", "key") if class_names else ("image", "key"))
    assert listing.skipped == {}
    assert listing.warnings == ()


def test_sizes_and_times_are_those_of_the_files(image_folder):
    root = image_folder({"a.png": b"12345", "b.png": b""})
    os.utime(root / "b.png", ns=(1, 2_000_000_003))
    listing = listed(root)
    assert listing.sizes.tolist() == [5, 0]
    assert listing.stamps.tolist() == [(root / "a.png").stat().st_mtime_ns, 2_000_000_003]


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
    listing = listed(root)
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
    listing = listed(root)
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


def test_a_class_that_only_one_split_has_is_not_empty(image_folder):
    listing = listed(
        image_folder({"train/ant/1.png": 1, "train/bee/1.png": 1, "val/ant/": b"", "val/bee/1.png": 1})
    )
    assert listing.warnings == ()


@pytest.mark.parametrize("files", [["cat/1.png"], ["train/cat/1.png", "val/cat/1.png"], ["1.png"]])
def test_a_folder_without_oddities_has_no_warnings(files, image_folder):
    assert listed(image_folder(dict.fromkeys(files, 1))).warnings == ()


def test_an_empty_split_folder_is_reported(image_folder):
    listing = listed(image_folder({"train/cat/1.png": 1, "val/cat/": b""}))
    assert list(listing.splits) == ["train"]
    assert listing.warnings == ("the split folder 'val' holds no images; the dataset lacks this split",)


NOTHING = {
    "an empty folder": (
        {},
        "folder-no-images",
    ),
    "only empty folders": (
        {"cat/": b"", "dog/": b""},
        "folder-no-images",
    ),
    "only other files": (
        {"a.txt": b"", "cat/b.nef": b"II*\0", ".c.png": b""},
        "folder-no-images",
    ),
    "only files beside the folders": (
        {"train/": b"", "1.png": 1, "2.png": 1},
        fault("images-outside-folders", num_found=2),
    ),
}


@pytest.mark.parametrize(("files", "message"), NOTHING.values(), ids=NOTHING.keys())
def test_a_folder_without_images_is_an_error(files, message, image_folder):
    with raises(InputError, message):
        listed(image_folder(files))


def test_a_root_that_is_not_a_folder_is_an_error(small_folder):
    with raises(InputError, "folder-problem", problem="does not exist"):
        listed(small_folder / "gone")
    with raises(InputError, "folder-problem", problem="is not a folder"):
        listed(small_folder / "cat" / "00.png")


def test_a_folder_without_read_permission_is_named(small_folder):
    (small_folder / "dog").chmod(0o000)
    code = (
        "import sys\n"
        "from tfshards.prep import ImageFolder\n"
        "try: ImageFolder(sys.argv[1]).listing()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    command = [sys.executable, "-c", code, small_folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=obey_permissions)
    (small_folder / "dog").chmod(0o755)
    assert re.fullmatch(r"InputError .*/dog/?: cannot be read: Permission denied\n", done.stdout), done


def test_names_that_are_not_utf8_are_kept_byte_for_byte(image_folder):
    root = image_folder({"caf\udce9/\udcff\n.png": 3, "猫/1.png": 4})
    listing = listed(root)
    assert listing.keys == [b"caf\xe9/\xff\n.png", "猫/1.png".encode()]
    assert listing.schema.class_names == ("caf\udce9", "猫")
    outcomes = ImageFolder(root).read(listing.rows(np.arange(2)), listing.schema)
    assert [outcome.values[1:] for outcome in outcomes] == [(0, listing.keys[0]), (1, listing.keys[1])]


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
        listing = listed(root)
    finally:
        # shutil.rmtree is recursive and would fail
        subprocess.run(["rm", "-r", root], check=True)
    assert [key.count(b"/") for key in listing.keys] == [depth]
    assert listing.skipped == {"beside the folders": 1}


def test_an_example_is_image_label_and_key(image_folder):
    root = image_folder({"cat/1.png": 1, "dog/bad.jpg": b"text", "dog/no.png": b""})
    listing = listed(root)
    known = ", ".join(name for name in formats() if name not in BY_SUFFIX_ALONE)
    outcomes = ImageFolder(root).read(listing.rows(np.arange(3)), listing.schema)
    assert outcomes == [
        Accepted(((root / "cat/1.png").read_bytes(), 0, b"cat/1.png")),
        Rejected(Reason.UNREADABLE, f"starts with 74 65 78 74, opens as none of {known}"),
        Rejected(Reason.EMPTY, "the file has no bytes"),
    ]
    taken = ImageFolder(root, ImageOptions(check="none")).read(listing.rows(np.arange(3)), listing.schema)
    assert [outcome.values[0] for outcome in taken[1:]] == [b"text", b""]


def test_without_classes_an_example_is_image_and_key(image_folder):
    root = image_folder({"1.png": 1})
    listing = listed(root)
    (outcome,) = ImageFolder(root).read(listing.rows(np.arange(1)), listing.schema)
    assert outcome == Accepted(((root / "1.png").read_bytes(), b"1.png"))


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def newer(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("change", [longer, shorter, newer, a_pipe])
def test_a_file_that_changes_during_reading_ends_it(change, small_folder):
    listing = listed(small_folder)
    change(small_folder / "cat" / "00.png")
    with raises(InputError, "changed-file"):
        ImageFolder(small_folder).read(listing.rows(np.arange(1)), listing.schema)


def test_a_file_that_vanishes_during_reading_is_named(small_folder):
    listing = listed(small_folder)
    (small_folder / "cat" / "00.png").unlink()
    with raises(InputError, "unreadable"):
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
    listing = listed(root)
    source = ImageFolder(root)
    assert source.groups(listing, "folder") == [b"cat/a", b"cat/a", b"cat"]
    assert source.groups(listing, r"img_(\d+)") == [b"01", b"02", b"01"]
    assert source.groups(listing, r"(^)cat") == [b"", b"", b""]


EXPRESSIONS = {
    "none": ("(a", OptionsError, r"^group_by='\(a' is not a regular expression: missing \), unterminated"),
    "too large": (
        "(a{99999999999})",
        OptionsError,
        r"is not a regular expression: the repetition number is too",
    ),
    "no group": ("cat", OptionsError, r"must be 'folder', or a regular expression with one \(group\)$"),
    "two groups": ("(c)(a)", OptionsError, r"must be 'folder', or a regular expression with one \(group\)$"),
    "no match": ("(dog)", InputError, r"^group_by='\(dog\)' does not match the key 'cat/00\.png'$"),
    "a group that is not met": ("(x)?cat", InputError, r"does not match the key 'cat/00\.png'$"),
}


@pytest.mark.parametrize(("by", "error", "message"), EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_an_expression_that_cannot_group_is_an_error(by, error, message, small_folder):
    with pytest.raises(error, match=message):
        ImageFolder(small_folder).groups(listed(small_folder), by)


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


def test_an_unknown_check_is_an_error_at_once():
    with pytest.raises(OptionsError, match=r"^check='all' must be one of decode, header, none$"):
        ImageFolder("x", ImageOptions(check="all"))


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


def test_a_table_next_to_the_images_is_reported(image_folder):
    root = image_folder({"cat/1.png": 1, "metadata.csv": b"file_name"})
    warning = "metadata.csv is not read; 'tfshards build table' stores its columns with the images"
    assert listed(root).warnings == (warning,)
