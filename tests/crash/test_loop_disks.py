"""Power cuts of ext4, XFS and Btrfs on loop devices: during a command, and right after its exit status 0.

ext4 and XFS are shut down by an ioctl, after which nothing more reaches the device. Btrfs has no such call
here: its device is copied when the command has ended or was killed, without what is still in memory.
"""

import fcntl
import os
import random
import shutil
import struct
import subprocess
import time
from collections import Counter

import pytest

from tests.campaigns import SEED, cases
from tests.durability.commands import Commands

from .commands import COMMANDS
from .places import Case, Folder, judge, undisturbed

# of each file system
NUM_CUTS = cases(4, nightly=8)
# FS_IOC_SHUTDOWN of linux/fs.h with the flag NOLOGFLUSH
SHUTDOWN, WITHOUT_LOG = 0x8004587D, struct.pack("I", 2)
MAKE = {
    "ext4": ["mkfs.ext4", "-q"],
    "ext4 with fast commits": ["mkfs.ext4", "-q", "-O", "fast_commit"],
    "xfs": ["mkfs.xfs", "-q"],
    "btrfs": ["mkfs.btrfs", "-q"],
}

pytestmark = [pytest.mark.campaign, pytest.mark.nightly]


class LoopDisk:
    """A file system in a file."""

    def __init__(self, name: str, folder) -> None:
        self.name, self.image, self.mounted = name, folder / "image", folder / "mounted"
        self.mounted.mkdir()
        with self.image.open("wb") as file:
            file.truncate(400 << 20)
        subprocess.run([*MAKE[name], self.image], check=True, capture_output=True)
        self.mount()

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self.image, self.mounted], check=True)

    def unmount(self) -> None:
        for _ in range(200):
            ended = subprocess.run(["umount", self.mounted], capture_output=True, text=True)
            if not ended.returncode:
                return
            # the processes of a command are about to end
            time.sleep(0.05)
        raise AssertionError(ended.stderr)

    def shut_down(self) -> None:
        """Cut the power; Btrfs must not be written to."""
        if self.name == "btrfs":
            shutil.copyfile(self.image, self.image.with_name("copy"))
            return
        descriptor = os.open(self.mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, WITHOUT_LOG)
        finally:
            os.close(descriptor)

    def restart(self) -> None:
        """Recover the file system after a power cut."""
        self.unmount()
        if self.name == "btrfs":
            self.image.with_name("copy").replace(self.image)
        # e2fsck 1.47.0 loses folders that were synced before, where fast commits followed. The kernel, which
        # replays them when it mounts the file system, keeps them.
        if self.name == "ext4":
            assert subprocess.run(["e2fsck", "-fy", self.image], capture_output=True).returncode < 4
        self.mount()


@pytest.fixture(params=MAKE)
def disk(request, tmp_path):
    """A file system of its own, where root may mount one and its tools are installed."""
    program = MAKE[request.param][0]
    if os.geteuid() or not shutil.which(program) or not os.path.exists("/dev/loop-control"):
        pytest.skip(f"needs root, loop devices and {program}")
    (tmp_path / "disk").mkdir()
    made = LoopDisk(request.param, tmp_path / "disk")
    yield made
    if made.mounted.is_mount():
        made.unmount()


def test_a_power_cut_leaves_the_old_dataset_or_the_new_one(disk, inputs, commands: Commands):
    chance = random.Random(f"{SEED} {disk.name}")
    found: Counter[str] = Counter()
    made: dict[str, tuple[Case, float]] = {}
    place = Folder(disk.mounted / "out")
    for number in range(NUM_CUTS):
        name = chance.choice([*COMMANDS])
        if name not in made:
            case = undisturbed(COMMANDS[name], place, inputs)
            place.start(case.old)
            ended = commands.run(case.words(case.command.line))
            assert ended.status == 0, ended.output
            made[name] = case, ended.seconds
        case, seconds = made[name]
        words = case.words(case.command.line)
        place.start(case.old)
        os.sync()
        if number % 2:
            ended = commands.run(words)
            assert ended.status == 0, ended.output
            disk.shut_down()
        elif disk.name == "btrfs":
            ended = commands.run(words, kill_after=chance.uniform(0, seconds))
            disk.shut_down()
        else:

            def cut(_: int, wait: float = chance.uniform(0, seconds)) -> None:
                time.sleep(wait)
                disk.shut_down()

            ended = commands.run(words, meanwhile=cut)
        disk.restart()
        files = place.files()
        judge(case.command, files, case.old, case.new)
        if ended.status == 0:
            assert {path: files.get(path) for path in case.new} == case.new, (name, ended.output)
        again = commands.run(words)
        assert again.status == 0, again.output
        files = place.files()
        assert {path: files.get(path) for path in case.new} == case.new
        found[f"{'after' if ended.status == 0 else 'during'} {name}"] += 1
    print(f"{disk.name}: {dict(found)}")
