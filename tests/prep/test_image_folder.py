"""Image folders as a source: examples, classes, splits, and skipped entries, which are counted."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import PIL
import pytest

from tests.errors import raises
from tfshards.prep import ImageFolder, ImageOptions
from tfshards.prep.imaging.options import CONVERSION
from tfshards.prep.imaging.pillow import decoder_versions
from tfshards.prep.sources.base import Listing, Row
from tfshards.prep.sources.images.layout import FileTable
from tfshards.prep.sources.tree import LocalTree
from tfshards.schemas import InputError


def listed(root: Path, **options: bool) -> Listing:
    return ImageFolder(root, **options).listing()


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
