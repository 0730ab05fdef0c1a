"""Unfinished builds, locks, and readers of a dataset that is replaced; see tests/verbs and tests/crash."""

import fcntl
import os
import platform

import numpy as np
import pytest

from tests.durability.commands import contents, write_inputs
from tests.errors import raises
from tests.reported import logged
from tfshards.prep import Arrays, ImageFolder, Options, build, prune, verify
from tfshards.schemas import InputError


@pytest.fixture
def out(tmp_path):
    write_inputs(tmp_path)
    return tmp_path / "data"


def built(out, **options):
    source = ImageFolder(out.parent / "photos")
    given = {
        "shards": 2,
        "options": Options(max_rejected=1),
    }
    return build(source, out, **{**given, **options})


def test_nothing_is_removed_while_a_build_runs(out):
    built(out)
    built(out, seed=1, overwrite=True)
    before = contents(out)
    descriptor = os.open(out, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with raises(InputError, "another build is writing", code="build-running"):
        prune(out)
    os.close(descriptor)
    assert contents(out) == before


# A dataset stays readable until it is replaced, and even longer for processes that have it open


def test_a_folder_removed_by_another_build_is_reported(tmp_path, monkeypatch):
    out = tmp_path / "data"
    flock = fcntl.flock

    def too_late(descriptor: int, how: int) -> None:
        out.rmdir()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", too_late)
    with raises(InputError, "another build is writing", code="build-running"):
        build(Arrays({"x": np.arange(9)}), out)


def test_a_file_system_without_locks_gets_a_file_that_names_the_process(tmp_path, monkeypatch):
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    out, log, source = tmp_path / "data", [], Arrays({"x": np.arange(9)})
    logged(build, log.append)(source, out)
    assert any("the file system has no locks" in line for line in log)
    lock = out / ".tfshards-lock"
    assert not lock.exists()
    # of a process that runs, of another host, and of one that was killed
    for holder in (f"{os.getpid()} {platform.node()}", "1 elsewhere"):
        lock.write_text(holder)
        with pytest.raises(InputError, match=f"{lock} says that the process {holder.split()[0]} of the host"):
            logged(build, log.append)(source, out, seed=1, overwrite=True)
        assert lock.read_text() == holder
    lock.write_text(f"{2**22 + 1} {platform.node()}")
    logged(build, log.append)(source, out, seed=1, overwrite=True)
    assert not lock.exists()
    assert verify(out)
