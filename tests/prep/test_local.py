"""The local engine: this process and its helpers write the shards, and a lost helper ends the build."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.durability.commands import children
from tests.programs import ROOT, until
from tfshards.prep.engines.table import find_run
from tfshards.prep.progress.threads import available_cores, limited_jobs

from .calls import NUM_ITEMS, note, work_of

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


def test_a_script_without_a_guard_has_helpers_unless_the_function_is_its_own(tmp_path):
    program = """
import os, sys
from functools import partial
from pathlib import Path
from tests.prep.calls import note, work_of
from tfshards.prep.engines.table import find_run
from tfshards.prep.progress.threads import limited_jobs

def own(folder, item):
    note(folder, item)

print("runs once")
for function in (note, own):
    folder = Path(function.__name__)
    folder.mkdir()
    with limited_jobs(3):
        find_run([])(work_of(function, folder))
    print(len(os.listdir(folder)), len({path.read_text() for path in folder.iterdir()}))
"""
    (tmp_path / "program.py").write_text(program)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["runs once", "60 3", "60 1"], done.stderr


def test_what_a_helper_prints_is_on_standard_error(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.prep.calls", "input", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    # the main process has one item at least, and its own standard output
    assert done.stdout.count("to standard output\n") + done.stderr.count("to standard output\n") >= 2
    assert "changed after the build" in done.stdout.splitlines()[-1]


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def started(function: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.prep.calls", function, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT)


def workers(process: int) -> list[int]:
    found = [
        child for child in children(process) if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    assert len(found) == 2
    return found


def test_a_helper_that_is_killed_ends_the_work_and_is_named(tmp_path):
    process = started("go_on", tmp_path)
    until(lambda: len([*tmp_path.glob("[0-9]*")]) == 3)
    helpers = workers(process.pid)
    # the last that was started
    os.kill(helpers[-1], signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"worker process {helpers[-1]} died (SIGKILL)" in out
    assert not any(map(is_running, helpers))


def test_helpers_end_after_their_item_if_the_main_process_is_killed(tmp_path):
    process = started("note", tmp_path)
    until(lambda: len([*tmp_path.glob("[0-9]*")]) >= 20)
    helpers = workers(process.pid)
    process.kill()
    process.communicate(timeout=60)
    until(lambda: not any(map(is_running, helpers)))
    assert len([*tmp_path.glob("[0-9]*")]) < 60


def test_without_semaphores_threads_process_every_item(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("tfshards.prep.engines.local.ProcessPoolExecutor", refuse)
    with limited_jobs(3):
        find_run([])(work_of(note, tmp_path))
    assert {path.read_text() for path in tmp_path.iterdir()} == {str(os.getpid())}
    assert len(os.listdir(tmp_path)) == NUM_ITEMS
