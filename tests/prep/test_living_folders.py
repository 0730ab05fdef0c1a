"""Inputs that were touched, copied or edited since a build: what is written again, and what it becomes."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.errors import raises
from tfshards.prep import ImageFolder, Options
from tfshards.schemas import InputError, read_manifest

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


def test_rejected_inputs_are_compared_as_well(bitmaps, rebuild):
    (bitmaps / "cat" / "bad.bmp").write_bytes(b"no image")
    (bitmaps / "dog" / "twice.bmp").write_bytes((bitmaps / "dog" / "01.bmp").read_bytes())
    options = {"options": Options(max_rejected=1, duplicates="drop"), "shards": 2}
    manifest = rebuild(**options)
    assert manifest.totals.reasons["rejected"] == {"duplicate": 1, "unreadable": 1}
    for path in ("cat/bad.bmp", "dog/twice.bmp", "dog/01.bmp"):
        touch(bitmaps / path)
    assert rebuild(**options) == manifest
    (bitmaps / "cat" / "bad.bmp").write_bytes(b"NO IMAGE")
    edit(bitmaps / "dog" / "twice.bmp")
    os.utime(bitmaps / "dog" / "twice.bmp", ns=(LATER + 1, LATER + 1))
    with raises(InputError, "holds a dataset with", code="dataset-differs"):
        rebuild(**options)
