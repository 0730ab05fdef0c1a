"""Folders of images: nested without limit, and files that change while a build reads them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.errors import raises
from tfshards.prep import ImageFolder
from tfshards.schemas import InputError


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
        listing = ImageFolder(root, as_is=True).stage(None).listing()
    finally:
        # shutil.rmtree is recursive and would fail
        subprocess.run(["rm", "-r", root], check=True)
    assert [key.count(b"/") for key in listing.keys] == [depth]
    assert listing.skipped == {"outside the folders": 1}


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def newer(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGES = [(change, "changed after the build listed it") for change in (longer, newer, a_pipe)]


@pytest.mark.parametrize(("change", "fault"), [*CHANGES, (Path.unlink, "cannot be read")])
def test_a_file_that_changes_after_it_was_listed_ends_the_build(
    change, fault, small_folder, tmp_path, quiet_build
):
    class Changing(ImageFolder):
        def stage(self, folder, **given):
            found = super().stage(folder, **given)
            change(small_folder / "cat" / "00.png")
            return found

    with raises(InputError, fault, str(small_folder / "cat" / "00.png")):
        quiet_build(Changing(small_folder), tmp_path / "out", engine="local")
    assert not (tmp_path / "out" / "dataset.json").exists()
