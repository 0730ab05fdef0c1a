"""Stopped builds: finished shards are kept, the others are written, and the bytes are the same."""

import fcntl
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.durability.commands import identity
from tests.errors import raises
from tfshards.prep import Arrays, ImageFolder, Options, append, verify
from tfshards.prep.building import output
from tfshards.prep.building.output import locked
from tfshards.prep.writing.area import AREA_NAME
from tfshards.prep.writing.shard_names import with_build_id
from tfshards.schemas import BuildError, InputError, read_manifest
from tfshards.schemas.locks import is_locked

from .derived import flip

ALL_REJECTS_ALLOWED = Options(max_rejected=1)


def finished(out: Path, layout: str = "first") -> dict[str, tuple[int, int]]:
    """Return inode and modification time of each shard recorded as finished in the build area."""
    notes = [json.loads(path.read_bytes()) for path in out.glob(f"{AREA_NAME}/*/{layout}/*.done")]
    paths = [note["shard"]["path"] for note in notes]
    return {path: identity(next(out.glob(f"{AREA_NAME}/*/shards/{path}"))) for path in paths}


def committed(out: Path, paths) -> dict[str, tuple[int, int]]:
    """Return the same of the shards that had these paths in the build area, after the commit."""
    build_id = read_manifest(out).build_id
    return {path: identity(out / with_build_id(path, build_id)) for path in paths}


@pytest.fixture
def stopped(small_folder, image_folder, tmp_path, quiet_build, log):
    """A build that ended between its last shard and its commit because an input was rejected.

    Of four shards of four examples one has three afterwards, which is balanced: no example moves.
    """
    image_folder({"cat/bad.jpg": b"no image", "cat/13.png": 13, "dog/14.png": 14}, name=small_folder.name)
    out = tmp_path / "out"
    with raises(BuildError, "too-many-rejected"):
        quiet_build(ImageFolder(small_folder), out, shards=4, options=Options(max_rejected=0))
    assert len(finished(out)) == 4
    log.clear()
    return out


def test_an_array_file_that_changes_during_the_build_ends_it(tmp_path, array_files, quiet_build):
    (argument,) = array_files(x=np.arange(100))

    class Changing(Arrays):
        """The file is written again after it was listed."""

        def stage(self, folder, *, preview=False):
            reader = super().stage(folder, preview=preview)
            np.save(tmp_path / "x.npy", np.arange(100)[::-1])
            return reader

    message = r"x\.npy: changed after the build listed it; run the command again$"
    with pytest.raises(BuildError, match=message):
        quiet_build(Changing({"x": argument.partition("=")[2]}), tmp_path / "out", shards=2)


def without(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


DAMAGE = {
    "the shard is gone": (without, "{area}/shards/{shard}"),
    "the shard is damaged": (flip, "{area}/shards/{shard}"),
    "the index is damaged": (flip, "{area}/shards/index/{shard}.idx"),
    "the labels are gone": (without, "{area}/shards/index/{shard}.labels"),
    "the note is cut": (cut, "{area}/first/train-00002.done"),
    "the note is of another release": (
        lambda path: path.write_text('{"shard": {"path": "x"}, "rejected": []}'),
        "{area}/first/train-00002.done",
    ),
    "the note is not an object": (lambda path: path.write_text("[]"), "{area}/first/train-00002.done"),
}


@pytest.mark.parametrize(("damage", "place"), DAMAGE.values(), ids=DAMAGE)
def test_only_an_incomplete_finished_shard_is_written_again(
    damage, place, stopped, small_folder, tmp_path, quiet_build, contents, log
):
    (area,) = (stopped / AREA_NAME).iterdir()
    before = finished(stopped)
    (shard,) = [path for path in before if "00002-of" in path]
    damage(Path(place.format(shard=shard, area=area)))
    again = quiet_build(ImageFolder(small_folder), stopped, shards=4, options=ALL_REJECTS_ALLOWED)
    assert log[0] == "resuming the build: 3 of 4 shards finished"
    now = committed(stopped, before)
    assert [path for path in before if now[path] != before[path]] == [shard]
    undisturbed = tmp_path / "whole" / "out"
    assert quiet_build(ImageFolder(small_folder), undisturbed, shards=4, options=ALL_REJECTS_ALLOWED) == again
    assert contents(stopped) == contents(undisturbed)


def test_an_input_accepted_first_and_rejected_later_ends_the_build(image_folder, tmp_path, quiet_build):
    files = {f"{n}.png": n for n in range(6)} | {f"{number}-bad.png": b"" for number in range(6)}
    root = image_folder(files)
    with raises(BuildError, "too-many-rejected"):
        quiet_build(ImageFolder(root), tmp_path / "out", shards=3, options=Options(max_rejected=0))
    for path in root.glob("?.png"):
        # with the same size and time, so that it seems to be the same file
        status = path.stat()
        path.write_bytes(b"x" * status.st_size)
        os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    message = r"^\d\.png: was accepted, but is unreadable now; it changed during the build; run"
    with pytest.raises(BuildError, match=message):
        quiet_build(ImageFolder(root), tmp_path / "out", shards=3, options=ALL_REJECTS_ALLOWED)


def test_a_running_build_is_not_a_dataset_yet(stopped):
    with locked(stopped):
        for function in (read_manifest, verify, partial(append, "photos")):
            with raises(InputError, "dataset-unfinished"):
                function(stopped)


def test_a_command_that_looks_at_the_lock_does_not_refuse_a_build(tmp_path, monkeypatch):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    monkeypatch.setattr(output.time, "sleep", lambda _: os.close(descriptor))
    with output.locked(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
