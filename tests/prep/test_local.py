"""The local engine: this process and its helpers write the shards, and a lost helper ends the build."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.durability.commands import children
from tests.programs import until
from tfshards.prep import ImageFolder, Options, build, verify
from tfshards.prep.engines import beam, local
from tfshards.prep.engines.local import Helper, pickled
from tfshards.prep.engines.table import Work
from tfshards.prep.progress.lines import WorkProgress
from tfshards.prep.progress.threads import available_cores
from tfshards.schemas import BuildError

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    ("text", "expected"),
    [("max 100000\n", 8), ("150000 100000\n", 2), ("50000 100000", 1), ("1000000 100000", 8), ("", 8)],
)
def test_a_container_may_have_a_quota_of_cores(text, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    (tmp_path / "cpu.max").write_text(text)
    assert available_cores(tmp_path / "cpu.max") == expected
    assert available_cores(tmp_path / "none") == 8


@pytest.fixture
def helpers(monkeypatch) -> None:
    """Make every build of this process use two helpers."""
    monkeypatch.setattr(local, "num_helpers", lambda *_: 2)


def note(folder: Path, item: int) -> None:
    """Leave a file that names the process, after a while in which the others are busy."""
    (folder / f"{item}").write_text(f"{os.getpid()}")
    time.sleep(0.05)


@pytest.mark.parametrize("engine", [local, beam])
def test_helpers_and_this_process_share_the_items(engine, tmp_path, helpers):
    engine.run(Work(partial(note, tmp_path), range(60), WorkProgress("x", 60), lambda _: None))
    names = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert sorted(map(int, names)) == list(range(60))
    assert len(set(names.values())) == 3
    assert str(os.getpid()) in names.values()


class UnpicklableError(Exception):
    """An error that cannot be sent to another process."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def fail(item: str) -> None:
    print("to standard output", flush=True)
    raise UnpicklableError("no", item) if item == "class" else ValueError(item)


def test_an_error_in_a_helper_is_raised_in_this_process_and_what_it_prints_is_no_result(capfd):
    with Helper(pickled(fail)) as helper:
        for item, kind, text in (("value", ValueError, "value"), ("class", BuildError, "no class")):
            with pytest.raises(kind, match=f"^{text}$"):
                helper(item)
    assert capfd.readouterr() == ("", "to standard output\n" * 2)


def test_a_function_that_another_process_cannot_load_has_no_helpers(tmp_path):
    # a script without the usual protection, whose own class reads the source
    program = """
import dataclasses
import numpy as np
from tfshards.prep import Arrays, build
from tfshards.prep.engines import beam, local
from tfshards.prep.sources.staged_reader import StagedReader
local.num_helpers = lambda *_: 2
class Reader(StagedReader):
    pass
class Own(Arrays):
    def stage(self, folder, *, group_by=None, preview=False):
        reader = super().stage(folder, group_by=group_by, preview=preview)
        return Reader(*(getattr(reader, field.name) for field in dataclasses.fields(reader)))
print(build(Own({"x": np.arange(9)}), "own", shards=3, log=print).num_examples)
print(build(Arrays({"x": np.arange(9)}), "plain", shards=3, log=print).num_examples)
"""
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1::2] == ["9", "9"]
    assert done.stderr == ""


COMMAND = """
import sys
from tfshards.prep.cli.main import entry
from tfshards.prep.engines import beam, local
local.num_helpers = lambda *_: 2
entry()
"""


@pytest.fixture
def slow_build(slow_folder, tmp_path) -> list[str]:
    words = ["build", "images", str(slow_folder), str(tmp_path / "out"), "--shards=8", "--max-rejected=100%"]
    return [sys.executable, "-c", COMMAND, *words]


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# what is sent to the main process and its helpers, the status, and what the last line names
ENDS = {
    "the main process is killed": (
        lambda main, _: os.kill(main, signal.SIGKILL),
        -signal.SIGKILL,
        "starting build",
    ),
    "a helper is killed": (
        lambda _, helpers: os.kill(helpers[0], signal.SIGKILL),
        1,
        "a worker process died",
    ),
    # to the process group, as a terminal does
    "Ctrl-C": (lambda main, _: os.killpg(main, signal.SIGINT), 130, "interrupted; "),
}


@pytest.mark.parametrize(("end", "status", "last"), ENDS.values(), ids=ENDS)
def test_helpers_end_with_the_build_which_resumes(end, status, last, slow_build, tmp_path, contents, log):
    out = tmp_path / "out"
    process = subprocess.Popen(slow_build, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(lambda: any(out.glob(".build/*/first/*.done")))
    helpers = children(process.pid)
    assert len(helpers) == 2
    end(process.pid, helpers)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == status, printed
    assert last in printed.splitlines()[-1]
    assert "Traceback" not in printed
    until(lambda: not any(map(is_running, helpers)))
    assert not (out / "dataset.json").exists()
    for again in (out, tmp_path / "plain" / "out"):
        build(ImageFolder(slow_build[5]), again, shards=8, options=Options(max_rejected=1), log=log.append)
    assert any(line.startswith("resuming the build: ") for line in log)
    assert contents(out) == contents(tmp_path / "plain" / "out")
    assert verify(out, deep=True)
