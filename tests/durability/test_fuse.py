"""Commands on a real file system that fails at any call and then forgets what was not synced.

Exit status 0 means that the new dataset outlives a power cut; with any other, the old dataset or the new one
does, and the same command ends what it began.
"""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest

from tests.campaigns import SEED, cases
from tfshards.prep import verify
from tfshards.prep.building.commit import complete_left
from tfshards.schemas import read_manifest

from .commands import ROOT, Commands

# of each command
NUM_FAULTS = cases(10, nightly=30)
FAULTS = {"EIO": {"errno": errno.EIO}, "ENOSPC": {"errno": errno.ENOSPC, "stays": True}}

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.nightly,
    pytest.mark.skipif(
        not (os.access("/dev/fuse", os.W_OK) and shutil.which("fusermount3")),
        reason="needs /dev/fuse and fusermount3, to mount a file system",
    ),
]


class Mounted:
    """A file system of ``fuse_disk.py``."""

    def __init__(self, folder) -> None:
        self.folder = folder
        folder.mkdir()
        self.server = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.durability.fuse_disk", folder],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        while not os.path.ismount(folder):
            assert self.server.poll() is None
            time.sleep(0.02)

    def ask(self, **request: object) -> int:
        """Send a request, and return the number of changes so far."""
        assert self.server.stdin
        assert self.server.stdout
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return int(json.loads(self.server.stdout.readline())["changes"])

    def close(self) -> None:
        subprocess.run(["fusermount3", "-u", "-z", self.folder], check=True)
        self.server.wait(30)


@pytest.fixture
def disk(tmp_path):
    """A file system of its own."""
    mounted = Mounted(tmp_path / "disk")
    yield mounted
    mounted.close()


@pytest.fixture
def arrays(tmp_path):
    """Two files of arrays with labels, of which the second one begins as the first one does."""
    paths = []
    for count in (12, 20):
        (tmp_path / f"{count}").mkdir()
        np.savez(tmp_path / f"{count}" / "x.npz", x=np.arange(count), y=np.arange(count) % 3)
        paths.append(tmp_path / f"{count}" / "x.npz")
    return paths[0], paths[1]


def commands_of(arrays, out) -> dict[str, tuple[list[object], list[object]]]:
    """Return by name the command before, which may be none, and the one that meets a fault."""
    build = ["build", "arrays", arrays[0], out, "--label", "y", "--shards", 2, "--jobs", 1]
    keys = arrays[0].parent / "keys"
    keys.write_text("3\n5\n")
    labels = arrays[0].parent / "labels.csv"
    labels.write_text("key,label\n3,1\n4,2\n")
    return {
        "build": ([], build),
        "overwrite": (build, [*build, "--seed", 1, "--overwrite"]),
        "append": (build, ["append", arrays[1], out]),
        "remove": (build, ["remove", out, "--keys", keys]),
        "relabel": (build, ["relabel", out, "--labels", labels]),
        "reshard": (build, ["reshard", out, out, "--shards", 3, "--overwrite"]),
    }


def contents(folder) -> dict[str, bytes]:
    """Return the files that a manifest names, and the manifest."""
    manifest = read_manifest(folder)
    names = ["dataset.json", *(shard.path for shard in manifest.shards), *manifest.views]
    return {name: (folder / name).read_bytes() for name in names}


@pytest.mark.parametrize("name", ["build", "overwrite", "append", "remove", "relabel", "reshard"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_and_a_power_cut_leave_the_old_dataset_or_the_new_one(
    name, fault, disk, arrays, tmp_path, commands: Commands
):
    chance = random.Random(f"{SEED} {name} {fault}")
    whole = disk.folder / "whole" / "data"
    before, command = commands_of(arrays, whole)[name]
    if before:
        assert commands.run(before).status == 0
    old = contents(whole) if before else {}
    first = disk.ask()
    assert commands.run(command).status == 0
    num_changes, new = disk.ask() - first, contents(whole)
    found: Counter[str] = Counter()
    moments = [chance.randint(1, num_changes) for _ in range(NUM_FAULTS)]
    if num_changes <= NUM_FAULTS:
        moments = [*range(1, num_changes + 1)]
    for number, moment in enumerate(moments):
        out = disk.folder / f"trial{number}" / "data"
        before, command = commands_of(arrays, out)[name]
        if before:
            assert commands.run(before).status == 0
        disk.ask(fail=moment, **FAULTS[fault])
        ended = commands.run(command)
        disk.ask(cut=chance.choice(["lost", "torn"]))
        if ended.status != 0:
            # the next command completes views
            complete_left(out)
        now = contents(out) if (out / "dataset.json").exists() else {}
        assert now in ([new] if ended.status == 0 else [old, new]), (moment, ended.output)
        assert not now or verify(out, deep=True), moment
        found[f"exit status {ended.status}"] += 1
        again = commands.run(command)
        assert again.status == 0, (moment, ended.output, again.output)
        disk.ask(cut="lost")
        assert contents(out) == new, (moment, again.output)
        assert verify(out, deep=True)
    print(f"{name}, {fault}: {len(moments)} faults in {num_changes} changes: {dict(found)}")
