"""Full disks, missing permissions, changing inputs, dying workers.

Each ends the build with a nonzero status and one clear line, and leaves no dataset or the old one.
Once the cause is gone, the same command finishes as usual.
"""

import os
import re
import signal
import subprocess
from contextlib import suppress

import numpy as np
import pytest

from tests.durability.commands import image, write_inputs
from tests.pictures import image_file, write
from tests.programs import until
from tests.tables import mostly_nightly
from tfshards.prep import verify

from .commands import Commands, Ended, children, contents

pytestmark = pytest.mark.processes

NUM_SHARDS = 6
WORKERS = ("--", "--direct_running_mode=multi_processing", "--direct_num_workers=2")
GOES_ON = "once that is fixed, run the same command to resume"

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")


@pytest.fixture
def command(open_path) -> list[str]:
    """The command that builds images, each of which takes a while; the output is the last argument."""
    for number in range(18):
        write(open_path / "slow" / f"{number:02}.bmp", image(number, side=200))
    return ["build", "images", str(open_path / "slow"), f"--shards={NUM_SHARDS}", str(open_path / "data")]


def fails(ended: Ended, message: str, workers: tuple[str, ...] = ()) -> None:
    """Assert that the command failed with the message and printed nothing else except that it had started.

    Processes of Beam print what Beam logs, before the message.
    """
    assert ended.status == 1, ended.output
    # on a busy machine a build may last long enough for lines of progress
    progress = re.compile(r"repairing |[\w ]+: [\d,]+ of [\d,]+ (examples, |shards? )")
    lines = [line for line in ended.output.splitlines() if not progress.match(line)]
    if workers:
        assert re.fullmatch(f"tfshards: {message}", lines[-1]), ended.output
        lines = [line for line in lines if line.startswith("tfshards: ")]
    assert len(lines) == 1, ended.output
    assert re.fullmatch(f"tfshards: {message}", lines[0])


# The files of an undisturbed build, by its command without the folder: equal commands have equal inputs.
_UNDISTURBED: dict[tuple[str, ...], dict[str, bytes]] = {}


def resumes(commands: Commands, command: list[str], out) -> None:
    """Assert that the command now finishes with the bytes of an undisturbed build."""
    # without worker processes, which take longer to start
    command = command[: command.index("--")] if "--" in command else command
    ended = commands.run(command)
    assert ended.status == 0, ended.output
    at = command.index(str(out))
    key = tuple(part.replace(str(commands.folder), "") for part in [*command[:at], *command[at + 1 :]])
    if key not in _UNDISTURBED:
        elsewhere = commands.folder / "elsewhere" / out.name
        assert commands.run([*command[:at], elsewhere, *command[at + 1 :]]).status == 0
        _UNDISTURBED[key] = contents(elsewhere)
    assert contents(out) == _UNDISTURBED[key]
    assert verify(out, deep=True)


@pytest.fixture
def small_disk(open_path):
    """A file system of 1 MiB, which ``make_room`` enlarges."""
    folder = open_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def make_room(folder, option: str = "size=64m") -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", folder], check=True)


def webp_images(folder) -> None:
    """Write images that become twenty times larger, which cannot be predicted."""
    pixels = np.random.default_rng(0).integers(0, 256, (150, 150, 3), dtype=np.uint8)
    file = image_file(pixels, "WEBP", quality=1)
    for number in range(12):
        write(folder / f"{number:02}.webp", file)


@needs_root
@pytest.mark.parametrize(
    ("kibibytes", "workers"),
    mostly_nightly(
        [(64, ()), (100, ()), (400, ()), (700, ()), (64, WORKERS), (400, WORKERS)], kept=[(64, ()), (700, ())]
    ),
)
def test_a_full_disk_is_reported_and_leaves_the_old_dataset_and_the_build_resumes(
    kibibytes, workers, small_disk, commands, open_path
):
    make_room(small_disk, f"size={kibibytes}k")
    webp_images(open_path / "webp")
    out = small_disk / "data"
    command = ["build", "images", str(open_path / "webp"), "--shards=6", str(out), *workers]
    # on the smallest disk, the files of the plan leave less than the images take
    why = (
        f"No space left on device; {GOES_ON}"
        if kibibytes > 64
        else "the dataset needs about .*; free some space, .*"
    )
    fails(commands.run(command), f"{out}: {why}", workers)
    assert not (out / "dataset.json").exists()
    make_room(small_disk)
    resumes(commands, command, out)
    before = contents(out)
    again = [*command[:5], "--overwrite", "--seed=1"]
    make_room(small_disk, "size=1m")
    fails(commands.run(again), rf"{out}: No space left on device; {GOES_ON}")
    assert before.items() <= contents(out).items()
    assert verify(out, deep=True)
    make_room(small_disk)
    assert commands.run(again).status == 0
    assert verify(out, deep=True)


# Size of the note of the build, of a plan, of a shard.
@pytest.mark.parametrize("num_bytes", [500, 1_000, 20_000])
def test_a_limit_on_file_size_is_reported(num_bytes, commands, open_path):
    write_inputs(open_path)
    out = open_path / "data"
    command = ["build", "images", str(open_path / "photos"), "--shards=4", "--max-rejected=50%", str(out)]
    ended = commands.run(command, limits={"file_size": num_bytes})
    fails(ended, rf"{out}: File too large; {GOES_ON}")
    assert not (out / "dataset.json").exists()
    resumes(commands, command, out)


def test_an_output_without_write_permission_is_reported(commands, open_path):
    write_inputs(open_path)
    out = open_path / "denied" / "data"
    out.parent.mkdir(mode=0o555)
    command = ["build", "images", str(open_path / "photos"), "--shards=3", "--max-rejected=50%", str(out)]
    fails(commands.run(command, limits={"obeys": True}), rf"{out}: cannot be written: Permission denied")
    assert list(out.parent.iterdir()) == []
    out.parent.chmod(0o755)
    assert commands.run(command, limits={"obeys": True}).status == 0
    # and one that is there, or a folder in it, of which a file is missing
    (index,) = out.glob("*/index")
    before = contents(out)
    for folder, more, message in (
        (out, "--seed=1", rf"{out}: cannot be written: Permission denied"),
        (index, "--seed=0", rf"{index}/data-train\..*\.idx: Permission denied; {GOES_ON}"),
    ):
        if folder == index:
            min(index.glob("*.idx")).unlink()
        left = contents(out)
        folder.chmod(0o555)
        fails(commands.run([*command, "--overwrite", more], limits={"obeys": True}), message)
        # in the second case what was written in its place waits in the next folder
        found = contents(out)
        assert {path: found[path] for path in left} == left
        assert {path.partition("/")[0].partition("-")[2] for path in found.keys() - left} <= {"2"}
        folder.chmod(0o755)
    assert commands.run([*command, "--overwrite"], limits={"obeys": True}).status == 0
    assert contents(out) == before


@pytest.mark.parametrize(
    ("place", "named"), [("slow/07.bmp", "slow/07.bmp"), ("slow", "slow/?"), ("far", "slow/link")]
)
def test_an_input_without_read_permission_is_reported(place, named, commands, command, open_path):
    out = open_path / "outputs" / "data"
    out.parent.mkdir()
    command[-1] = str(out)
    if place == "far":
        # nobody can see whether there are images in it
        (open_path / "far").mkdir()
        (open_path / "slow" / "link").symlink_to(open_path / "far" / "inner")
    mode = (open_path / place).stat().st_mode
    (open_path / place).chmod(0)
    ended = commands.run(command, limits={"obeys": True})
    fails(ended, rf"{open_path}/{named}: cannot be read: Permission denied")
    assert not (out / "dataset.json").exists()
    (open_path / place).chmod(mode)
    (open_path / "slow" / "link").unlink(missing_ok=True)
    resumes(commands, command, out)


def damage_plans(folder, process):
    os.kill(process, signal.SIGSTOP)
    for path in folder.parent.glob("data/*/work/*.plan"):
        path.write_text("[\n[]")
    os.kill(process, signal.SIGCONT)


# what happens while a build runs, its status, and its error
EVENTS = {
    "an error that nobody foresaw": (damage_plans, (1,), r"data-train\..*: JSONDecodeError: .*"),
    # Beam may have the other worker repeat what it did, and logs much
    "a worker is killed": (
        lambda _, process: os.kill(children(process)[0], signal.SIGKILL),
        (0, 1),
        None,
    ),
    # its workers do not disturb the next one, which the server's child runs at once
    "all but the workers are killed": (
        lambda _, process: os.kill(process, signal.SIGKILL),
        (-signal.SIGKILL,),
        None,
    ),
    "Ctrl-C": (lambda _, process: os.kill(process, signal.SIGINT), (130,), None),
    "SIGTERM": (lambda _, process: os.kill(process, signal.SIGTERM), (143,), None),
}
ALONE = [*EVENTS][:1]


@pytest.mark.parametrize(
    ("what", "workers"),
    mostly_nightly(
        [*((what, ()) for what in ALONE), *((what, WORKERS) for what in EVENTS)],
        kept=[*((what, ()) for what in ALONE), *((what, WORKERS) for what in [*EVENTS][1:4])],
    ),
)
def test_what_happens_during_a_build_ends_it(what, workers, commands, command, open_path):
    (act, statuses, message), out, groups = EVENTS[what], open_path / "data", []

    def meanwhile(process: int) -> None:
        groups.append(process)
        until(lambda: any(out.glob("*/work/*.done")))
        act(open_path / "slow", process)

    if act is damage_plans:
        # so many that the last plan is not read before the first shard is done
        command[command.index(f"--shards={NUM_SHARDS}")] = "--shards=18"
    ended = commands.run([*command, *workers], meanwhile=meanwhile)
    assert ended.status in statuses, ended.output
    if message:
        fails(ended, message, workers)
    elif ended.status > 1:
        assert "interrupted; " in ended.output
    assert (out / "dataset.json").exists() == (ended.status == 0)
    resumes(commands, command, out)
    with suppress(ProcessLookupError):
        os.killpg(groups[0], signal.SIGKILL)
