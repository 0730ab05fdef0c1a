"""A dataset stays readable until it is replaced, and even longer for processes that have it open."""

import fcntl
import hashlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.campaigns import SEED
from tests.errors import raises
from tests.programs import until
from tests.tables import mostly_nightly
from tfshards.prep import Arrays, build, verify
from tfshards.schemas import InputError, read_manifest

from .commands import TIMEOUT_SECONDS
from .inputs import image, write, write_inputs

HERE = Path(__file__).parent


def started(name: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a program of this folder."""
    command = [sys.executable, str(HERE / name), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.processes
@pytest.mark.parametrize("trial", mostly_nightly(range(4), kept=[0]))
def test_a_concurrent_reader_sees_the_old_dataset_or_the_new_one(trial, commands, open_path):
    write_inputs(open_path)
    images = ("build", "images", str(open_path / "photos"), "--shards=4", "--max-rejected=50%")
    chance = random.Random(f"{SEED} {trial}")
    out, kills = open_path / "data", 0
    assert commands.run([*images, out]).status == 0
    old = read_manifest(out).build_id
    poller = started("poller.py", out)
    assert poller.stdout.readline() == f"{old}\n"
    again = [*images, out, "--seed=1", "--overwrite"]
    while commands.run(again, kill_after=chance.uniform(0.05, 0.4)).status:
        kills += 1
        if kills == 3:
            assert commands.run(again).status == 0
            break
    output, _ = poller.communicate(timeout=60)
    *seen, looks = output.splitlines()
    assert seen == [read_manifest(out).build_id]
    print(f"\nlooked {looks} times while a dataset was replaced, with {kills} kills: 0 torn")
    assert int(looks) > 30


@pytest.mark.processes
def test_a_loader_of_the_old_dataset_reads_it_to_the_end(programs, tmp_path):
    out, printed, continued = (tmp_path / name for name in ("data", "printed", "continued"))
    values = np.repeat(np.arange(3_200), 5_000).reshape(3_200, 5_000)

    def write_dataset(seed: int, overwrite: bool = True) -> int:
        source = Arrays({"x": values + seed})
        made = build(
            source, out, shards=160, seed=seed, overwrite=overwrite, engine="local", log=lambda _: None
        )
        return sum(shard.num_bytes for shard in made.shards)

    num_bytes = write_dataset(0, overwrite=False)
    with printed.open("wb") as file, (tmp_path / "err").open("wb") as err:
        training = programs.start([HERE / "slow_training.py", out, continued], stdout=file, stderr=err)
    try:
        until(lambda: printed.read_text().endswith("\n") or training.poll() is not None)
        # TensorFlow reads up to about 45 MB ahead, and has not opened all shards yet
        assert int(printed.read_text()) < 0.5 * num_bytes
        write_dataset(1)
        assert verify(out)
    finally:
        continued.touch()
        training.wait(TIMEOUT_SECONDS)
    _, last = printed.read_text().splitlines()
    assert last == f"3200 {hashlib.sha256(repr(list(range(3_200))).encode()).hexdigest()}"


@pytest.fixture
def slow(open_path) -> list[str]:
    """The command of a build that takes a while, without its output."""
    for number in range(30):
        write(open_path / "slow" / f"{number:02}.bmp", image(number, side=200))
    return ["build", "images", str(open_path / "slow"), "--shards=10"]


@pytest.mark.processes
def test_a_second_build_into_one_output_is_refused_until_the_first_ends(commands, slow, open_path):
    out = open_path / "data"
    refused = []

    def build_a_second_time(process: int) -> None:
        until(lambda: any(out.glob(".build/*/first/*.done")))
        os.killpg(process, signal.SIGSTOP)
        for more in ([], ["--seed=1", "--overwrite"]):
            command = [sys.executable, "-m", "tfshards", *slow, str(out), *more]
            refused.append(subprocess.run(command, capture_output=True, text=True))
        os.killpg(process, signal.SIGKILL)

    assert commands.run([*slow, out], meanwhile=build_a_second_time).status == -signal.SIGKILL
    for ended in refused:
        assert (ended.returncode, ended.stdout) == (1, "")
        assert f"{out}: another build" in ended.stderr.splitlines()[-1]
    assert len(refused) == 2
    ended = commands.run([*slow, out])
    assert ended.status == 0
    assert ended.output.startswith("resuming the build: ")
    assert verify(out, deep=True)


def test_a_folder_removed_by_another_build_is_reported(tmp_path, monkeypatch):
    out = tmp_path / "data"
    flock = fcntl.flock

    def too_late(descriptor: int, how: int) -> None:
        out.rmdir()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", too_late)
    with raises(InputError, "build-running"):
        build(Arrays({"x": np.arange(9)}), out, log=lambda _: None)


def test_a_file_system_without_locks_is_reported(tmp_path, monkeypatch):
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with raises(InputError, "output-unlockable"):
        build(Arrays({"x": np.arange(9)}), tmp_path / "data", log=lambda _: None)
