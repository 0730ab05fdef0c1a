"""Stopped builds: finished shards are kept if they are intact, and what changed meanwhile is noticed.

tests/crash stops all commands everywhere.
"""

import os
from pathlib import Path

import pytest

from tests.durability.commands import identity
from tests.errors import raises
from tests.prep.derived import flip
from tfshards.prep import ImageFolder, Options
from tfshards.schemas import BuildError, InputError

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
    assert log[0] == "resuming the build: 3 of 4 shards finished"
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
