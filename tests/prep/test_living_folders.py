"""Inputs that were touched, copied, edited or cut off since a build: what is written again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.durability.commands import identity
from tests.errors import raises
from tests.prep.derived import flip
from tfshards.prep import ImageFolder, Options
from tfshards.schemas import BuildError, InputError, read_manifest

LATER = 1_700_000_000 * 10**9


def touch(path: Path) -> None:
    os.utime(path, ns=(LATER, LATER))


def edit(path: Path, *, keep_time: bool = False) -> None:
    """Change the pixels of an image, but not the size of the file."""
    status = path.stat()
    pixels = np.asarray(Image.open(path)).copy()
    pixels[0, 0] ^= 1
    Image.fromarray(pixels).save(path)
    assert path.stat().st_size == status.st_size
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns) if keep_time else (LATER, LATER))


def identities(folder: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of each file except the records of the inputs' times."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and path.name != "build.json"
    }


def records(folder: Path) -> dict[str, bytes]:
    """Return the bytes of the shards, indexes and labels in a manifest."""
    return {path: (folder / path).read_bytes() for s in read_manifest(folder).shards for path in s.files}


@pytest.fixture
def bitmaps(tmp_path) -> Path:
    """Twelve images of two classes, whose files have equal sizes whatever their pixels."""
    root = tmp_path / "photos"
    for number in range(12):
        path = root / ("cat", "dog")[number % 2] / f"{number:02d}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((6, 5, 3), number * 20, np.uint8)).save(path)
        os.utime(path, ns=(LATER - 10**9, LATER - 10**9))
    return root


HARMLESS = {
    "a text appears": lambda root: (root / "cat" / "notes.txt").write_bytes(b"x"),
    "the folder was renamed": lambda root: root.rename(root.with_name("pictures")),
    "a file was touched": lambda root: touch(root / "cat" / "04.bmp"),
    "the tree was copied without times": lambda root: shutil.copytree(
        root, root.with_name("copy"), copy_function=shutil.copyfile
    ),
}


@pytest.mark.parametrize("happens", HARMLESS.values(), ids=HARMLESS)
def test_what_does_not_go_into_a_dataset_changes_nothing(happens, bitmaps, tmp_path, quiet_build, log):
    out = tmp_path / "out"
    manifest = quiet_build(ImageFolder(bitmaps), out, shards=4)
    before = identities(out)
    copy = happens(bitmaps)
    root = copy if isinstance(copy, Path) else bitmaps
    for _ in range(2):
        log.clear()
        assert quiet_build(ImageFolder(root), out, shards=4) == manifest
        assert identities(out) == before
    # they are written again at most once
    assert not any("writing it again" in line for line in log)
    # a build of its own gives the same id and the same bytes
    fresh = quiet_build(ImageFolder(root), tmp_path / "fresh" / "out", shards=4)
    assert (fresh.build_id, records(tmp_path / "fresh" / "out")) == (manifest.build_id, records(out))


@pytest.fixture
def out(tmp_path) -> Path:
    """The folder of the dataset."""
    return tmp_path / "out"


@pytest.fixture
def rebuild(bitmaps, out, quiet_build):
    """Build the images into ``out``, or into another folder."""
    return lambda folder=None, **options: quiet_build(ImageFolder(bitmaps), folder or out, **options)


def test_an_edited_file_of_the_same_size_is_noticed_by_its_time(bitmaps, out, rebuild, tmp_path):
    before = rebuild(shards=4)
    old = records(out)
    edit(bitmaps / "cat" / "04.bmp")
    touch(bitmaps / "cat" / "06.bmp")
    with raises(InputError, "holds a dataset with", code="dataset-differs"):
        rebuild(shards=4)
    after = rebuild(shards=4, overwrite=True)
    assert after.build_id != before.build_id
    assert after.inputs_digest == before.inputs_digest
    # the old dataset can still be read, and the new one is that of a build into an empty folder
    assert {path: (out / path).read_bytes() for path in old} == old
    assert rebuild(tmp_path / "fresh" / "out", shards=4).build_id == after.build_id
    assert [*records(tmp_path / "fresh" / "out").values()] == [*records(out).values()]
    # only of the shard with the edited image
    changed = {shard.digest for shard in after.shards} - {shard.digest for shard in before.shards}
    assert len(changed) == 1


def test_an_edit_that_keeps_size_and_time_is_found_only_by_checksum(bitmaps, rebuild):
    manifest = rebuild()
    edited = bitmaps / "cat" / "00.bmp"
    before, times = edited.read_bytes(), edited.stat()
    edit(edited, keep_time=True)
    assert rebuild() == manifest
    with raises(InputError, "holds a dataset with", code="dataset-differs"):
        rebuild(checksum=True)
    # nor does it trust what it has written itself
    after = edited.read_bytes()
    edited.write_bytes(before)
    os.utime(edited, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert rebuild(checksum=True, overwrite=True) == manifest
    edited.write_bytes(after)
    os.utime(edited, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert rebuild(checksum=True, overwrite=True).build_id != manifest.build_id


# Stopped builds: finished shards are kept if they are intact, and what changed meanwhile is noticed


ANY = Options(max_rejected=1)


@pytest.fixture
def stopped(small_folder, image_folder, tmp_path, quiet_build, log):
    """A build that ended between its last shard and its commit because an input was rejected.

    Of four shards of four examples one has three afterwards, which is balanced: no example moves.
    """
    image_folder({"cat/bad.jpg": b"no image", "cat/13.png": 13, "dog/14.png": 14}, name=small_folder.name)
    out = tmp_path / "out"
    with raises(BuildError, "rejected (", code="too-many-rejected"):
        quiet_build(ImageFolder(small_folder), out, shards=4, options=Options(max_rejected=0))
    assert len([*out.glob("*/work/*.done")]) == 4
    log.clear()
    return out


DAMAGE = {
    "the shard is gone": (Path.unlink, "{shard}"),
    "the shard is damaged": (flip, "{shard}"),
    "the index is damaged": (flip, "index/{shard}.idx"),
    "the record is cut": (
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        "work/train-00002.done",
    ),
}


@pytest.mark.parametrize(("damage", "place"), DAMAGE.values(), ids=DAMAGE)
def test_only_an_incomplete_finished_shard_is_written_again(
    damage, place, stopped, small_folder, tmp_path, quiet_build, contents, log
):
    shards = sorted(stopped.glob("*/*.tfrecord-*"))
    before = [identity(path) for path in shards]
    damage(shards[2].parent / place.format(shard=shards[2].name))
    again = quiet_build(ImageFolder(small_folder), stopped, shards=4, options=ANY)
    assert log[0].startswith("build: 1 of 4 shards to write")
    now = [identity(stopped / shard.path) for shard in again.shards]
    assert [index for index in range(4) if now[index] != before[index]] == [2]
    undisturbed = tmp_path / "whole" / "out"
    assert quiet_build(ImageFolder(small_folder), undisturbed, shards=4, options=ANY) == again
    assert contents(stopped) == contents(undisturbed)


def test_an_input_accepted_first_and_rejected_later_ends_the_build(image_folder, tmp_path, quiet_build):
    files = {f"{n}.png": n for n in range(6)} | {f"{number}-bad.png": b"" for number in range(6)}
    root = image_folder(files)
    with raises(BuildError, "rejected (", code="too-many-rejected"):
        quiet_build(ImageFolder(root), tmp_path / "out", shards=3, options=Options(max_rejected=0))
    for path in root.glob("?.png"):
        # with the same size and time, so that it seems to be the same file
        status = path.stat()
        path.write_bytes(b"x" * status.st_size)
        os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    # nothing of what was found then is kept
    for _ in range(2):
        with raises(InputError, "changed during the build", "unreadable", code="file-changed"):
            quiet_build(ImageFolder(root), tmp_path / "out", shards=3, options=ANY)


# Folders of images: nested without limit, and files that change while a build reads them


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


CHANGES = [(change, "changed after the build listed it") for change in (longer, newer)]
CHANGES += [(a_pipe, "is not a regular file")]


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
        quiet_build(Changing(small_folder), tmp_path / "out")
    assert not (tmp_path / "out" / "dataset.json").exists()
