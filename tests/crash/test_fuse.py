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

import pytest

from tests.campaigns import SEED, cases
from tests.durability.commands import ROOT, Commands

from .commands import COMMANDS
from .places import Folder, judge, undisturbed

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
            [sys.executable, "-W", "ignore", "-m", "tests.crash.fuse_disk", folder],
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


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_and_a_power_cut_leave_the_old_dataset_or_the_new_one(
    name, fault, disk, inputs, commands: Commands
):
    chance = random.Random(f"{SEED} {name} {fault}")
    place = Folder(disk.folder / "out")
    case = undisturbed(COMMANDS[name], place, inputs)
    words = case.words(case.command.line)
    place.start(case.old)
    first = disk.ask()
    assert commands.run(words).status == 0
    num_changes = disk.ask() - first
    found: Counter[str] = Counter()
    moments = [chance.randint(1, num_changes) for _ in range(NUM_FAULTS)]
    if num_changes <= NUM_FAULTS:
        moments = [*range(1, num_changes + 1)]
    for moment in moments:
        place.start(case.old)
        sync(place.out)
        disk.ask(fail=moment, **FAULTS[fault])
        ended = commands.run(words)
        disk.ask(cut=chance.choice(["lost", "torn"]))
        files = place.files()
        judge(case.command, files, case.old, case.new)
        if ended.status == 0:
            assert {path: files.get(path) for path in case.new} == case.new, moment
        found[f"exit status {ended.status}"] += 1
        again = commands.run(words)
        assert again.status == 0, (moment, ended.output, again.output)
        disk.ask(cut="lost")
        files = place.files()
        assert {path: files.get(path) for path in case.new} == case.new, (moment, again.output)
    print(f"{name}, {fault}: {len(moments)} faults in {num_changes} changes: {dict(found)}")


def sync(folder) -> None:
    """Let what a folder holds survive a power cut."""
    for path in [*folder.rglob("*"), folder, folder.parent]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
