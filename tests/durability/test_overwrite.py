"""A dataset stays readable until it is replaced, and even longer for processes that have it open."""

import fcntl
import hashlib
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tests.programs import until
from tfshards.prep import Arrays, build, verify
from tfshards.schemas import InputError

from .commands import TIMEOUT_SECONDS

HERE = Path(__file__).parent


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
