"""Full disks, missing permissions, changing inputs, dying workers.

Each ends the build with a nonzero status and one clear line, and leaves no dataset or the old one.
Once the cause is gone, the same command finishes as usual.
"""

import itertools
import os
import re
import signal
import subprocess
import threading

import numpy as np
import pytest

from tests.pictures import image_file
from tests.programs import until
from tests.tables import mostly_nightly
from tfshards.prep import ImageFolder, build, verify
from tfshards.schemas import BuildError

from .commands import Commands, Ended, children, contents
from .inputs import image, write, write_inputs

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


def fails(ended: Ended, message: str) -> None:
    """Assert that the command failed with the message and printed nothing else except that it had started."""
    assert ended.status == 1, ended.output
    # on a busy machine a build may last long enough for lines of progress
    progress = re.compile(r"starting |resuming |\w+: [\d,]+ of [\d,]+ examples, ")
    lines = [line for line in ended.output.splitlines() if not progress.match(line)]
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
def test_a_full_disk_is_reported_and_the_build_resumes(kibibytes, workers, small_disk, commands, open_path):
    make_room(small_disk, f"size={kibibytes}k")
    webp_images(open_path / "webp")
    out = small_disk / "data"
    command = ["build", "images", str(open_path / "webp"), "--shards=6", str(out), *workers]
    fails(commands.run(command), rf"{out}: No space left on device; {GOES_ON}")
    assert not (out / "dataset.json").exists()
    make_room(small_disk)
    resumes(commands, command, out)


@needs_root
def test_a_disk_that_fills_up_leaves_the_old_dataset(small_disk, commands, open_path):
    webp_images(open_path / "webp")
    out = small_disk / "data"
    command = ["build", "images", str(open_path / "webp"), "--shards=6", str(out)]
    assert commands.run(command).status == 0
    before = contents(out)
    again = [*command, "--overwrite", "--seed=1"]
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


@needs_root
@pytest.mark.parametrize("is_there", [False, True], ids=["a new one", "one that is there"])
def test_an_output_on_a_read_only_disk_is_reported(is_there, small_disk, commands, open_path):
    write_inputs(open_path)
    out = small_disk / "data"
    command = ["build", "arrays", f"x={open_path / 'x.npy'}", str(out)]
    if is_there:
        assert commands.run(command).status == 0
    before = contents(small_disk)
    make_room(small_disk, "ro")
    again = [*command, "--overwrite", "--seed=1"]
    fails(commands.run(again), rf"{out}: cannot be written: Read-only file system")
    assert contents(small_disk) == before
    make_room(small_disk, "rw")
    assert commands.run(again).status == 0
    assert verify(out, deep=True)


def test_an_output_without_write_permission_is_reported(commands, open_path):
    write_inputs(open_path)
    out = open_path / "denied" / "data"
    out.parent.mkdir(mode=0o555)
    command = ["build", "images", str(open_path / "photos"), "--shards=3", "--max-rejected=50%", str(out)]
    fails(commands.run(command, limits={"obeys": True}), rf"{out}: cannot be written: Permission denied")
    assert list(out.parent.iterdir()) == []
    out.parent.chmod(0o755)
    assert commands.run(command, limits={"obeys": True}).status == 0
    # and a path in the middle, the folder of indexes
    (out / "index").chmod(0o555)
    before = contents(out)
    again = [*command, "--overwrite", "--seed=1"]
    ended = commands.run(again, limits={"obeys": True})
    # at the commit, when all shards are finished
    written, balanced, end = ended.output.partition("balancing after rejects: 2 of 3 shards to rewrite\n")
    assert written.startswith("starting build: "), ended.output
    assert balanced
    message = rf"{out}/index/data-train-\w+\.tfrecord-\d+-of-00003\.idx: Permission denied; {GOES_ON}"
    fails(ended._replace(output=end), message)
    assert before.items() <= contents(out).items()
    assert verify(out, deep=True)
    (out / "index").chmod(0o755)
    assert commands.run(again, limits={"obeys": True}).status == 0
    assert verify(out, deep=True)


@pytest.mark.parametrize("place", ["slow/07.bmp", "slow"])
def test_an_input_without_read_permission_is_reported(place, commands, command, open_path):
    out = open_path / "outputs" / "data"
    out.parent.mkdir()
    command[-1] = str(out)
    mode = (open_path / place).stat().st_mode
    (open_path / place).chmod(0)
    ended = commands.run(command, limits={"obeys": True})
    fails(ended, rf"{open_path / place}/?: cannot be read: Permission denied")
    assert not (out / "dataset.json").exists()
    (open_path / place).chmod(mode)
    resumes(commands, command, out)


def vanish(folder):
    folder.rename(folder.with_name("elsewhere-slow"))
    return lambda: folder.with_name("elsewhere-slow").rename(folder)


def grow(folder):
    sizes = {path: path.stat() for path in folder.iterdir()}
    for path in sizes:
        with path.open("ab") as file:
            file.write(b"more")

    def undo() -> None:
        for path, was in sizes.items():
            os.truncate(path, was.st_size)
            os.utime(path, ns=(was.st_mtime_ns, was.st_mtime_ns))

    return undo


def touch(folder):
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    for path in times:
        os.utime(path)
    return lambda: [os.utime(path, ns=(time, time)) for path, time in times.items()]


CHANGES = {
    "it vanishes": (vanish, "cannot be read: No such file or directory"),
    "it grows": (grow, "changed after the build listed it; run the command again"),
    "its time changes": (touch, "changed after the build listed it; run the command again"),
}


@pytest.mark.parametrize(
    ("what", "workers"),
    mostly_nightly(
        itertools.product(CHANGES, [(), WORKERS]),
        kept=[("it vanishes", ()), ("it grows", ()), ("its time changes", ())],
    ),
)
def test_an_input_that_changes_while_it_is_read_is_reported(what, workers, commands, command, open_path):
    (change, message), out, undo = CHANGES[what], open_path / "data", []

    def meanwhile(_: int) -> None:
        until(lambda: any(out.glob(".build/*/first/*.done")))
        undo.append(change(open_path / "slow"))

    command += workers
    fails(commands.run(command, meanwhile=meanwhile), rf"{open_path}/slow/\d\d\.bmp: {message}")
    assert not (out / "dataset.json").exists()
    undo[0]()
    assert any(out.glob(".build/*/first/*.done"))
    resumes(commands, command, out)


def test_a_worker_that_is_killed_ends_the_build(commands, command, open_path):
    out = open_path / "data"

    def kill_a_worker(process: int) -> None:
        until(lambda: any(out.glob(".build/*/first/*.done")))
        os.kill(children(process)[0], signal.SIGKILL)

    command += WORKERS
    # what the other worker logs while it stops must not be printed
    ended = commands.run(command, limits={"stay": 1}, meanwhile=kill_a_worker)
    fails(
        ended,
        "a worker process died, perhaps because memory ran out; run the same command to resume",
    )
    assert not (out / "dataset.json").exists()
    resumes(commands, command, out)


def test_workers_that_outlive_a_killed_build_do_not_disturb_the_next(commands, command, open_path):
    out = open_path / "data"

    def kill_all_but_the_workers(process: int) -> None:
        until(lambda: any(out.glob(".build/*/first/*.done")))
        os.kill(process, signal.SIGKILL)

    # the server's child runs the next command at once
    assert commands.run([*command, *WORKERS], meanwhile=kill_all_but_the_workers).status == -signal.SIGKILL
    resumes(commands, command, out)


def test_an_unexpected_error_in_a_worker_ends_the_build_and_is_named(commands, command, open_path):
    out = open_path / "data"

    def damage_plans(process: int) -> None:
        until(lambda: any(out.glob(".build/*/first/*.done")))
        os.kill(process, signal.SIGSTOP)
        for path in out.glob(".build/*/first/*.plan"):
            path.write_text("[\n[]")
        os.kill(process, signal.SIGCONT)

    # so many that the last plan is not read before the first shard is done
    command = [part.replace(f"--shards={NUM_SHARDS}", "--shards=18") for part in command]
    ended = commands.run(command, meanwhile=damage_plans)
    fails(ended, r"data-train-\w+\.tfrecord-\d+-of-00018: JSONDecodeError: .*")
    assert not (out / "dataset.json").exists()
    resumes(commands, command, out)


@pytest.mark.nightly
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_build_with_worker_processes(number, status, commands, command, open_path):
    # tests/surface ends one on this engine
    out = open_path / "data"

    def ask(process: int) -> None:
        until(lambda: any(out.glob(".build/*/first/*.done")))
        os.kill(process, number)

    command += WORKERS
    ended = commands.run(command, meanwhile=ask)
    assert ended.status == status
    assert "interrupted" in ended.output.splitlines()[-1]
    assert "Traceback" not in ended.output
    resumes(commands, command, out)


AGAIN = {"threads": ("--direct_running_mode=multi_threading",), "processes": WORKERS[1:]}


@pytest.mark.parametrize("kind", mostly_nightly(AGAIN, kept=["threads"]))
def test_a_program_whose_build_lost_a_worker_can_build_again(kind, tmp_path):
    for number in range(12):
        write(tmp_path / "slow" / f"{number:02}.bmp", image(number, side=200))
    out, elsewhere = tmp_path / "data", tmp_path / "elsewhere" / "data"
    mine = set(children(os.getpid()))

    def kill_a_worker() -> None:
        until(lambda: any(out.glob(".build/*/first/*.done")))
        os.kill(min(set(children(os.getpid())) - mine), signal.SIGKILL)

    killer = threading.Thread(target=kill_a_worker)
    killer.start()
    source = ImageFolder(tmp_path / "slow")
    with pytest.raises(BuildError, match="a worker process died, perhaps because memory ran out"):
        build(source, out, shards=6, beam_args=WORKERS[1:], log=lambda _: None)
    killer.join()
    build(source, out, shards=6, beam_args=AGAIN[kind], log=lambda _: None)
    build(source, elsewhere, shards=6, log=lambda _: None)
    assert contents(out) == contents(elsewhere)
    for left in set(children(os.getpid())) - mine:
        os.kill(left, signal.SIGKILL)
