"""Engines: every item is processed, the first failure ends the others, and keeps its class and code."""

import ast
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.programs import ROOT, until
from tfshards.prep import Arrays
from tfshards.prep.engines.table import find_run, run_on_threads
from tfshards.prep.progress.threads import limited_jobs
from tfshards.schemas import BuildError, InputError, OptionsError

from .calls import ERRORS, NUM_ITEMS, fail, go_on, note, work_of

pytestmark = pytest.mark.processes

PROCESSES = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
# pipeline options, and how many processes call the function
ENGINES = {
    "local": ([], 3),
    "beam": (["--runner=DirectRunner"], 1),
    "beam in processes": (["--runner=DirectRunner", *PROCESSES], 2),
}
on_each_engine = pytest.mark.parametrize(("arguments", "num_processes"), ENGINES.values(), ids=ENGINES)


@on_each_engine
def test_every_item_is_processed(arguments, num_processes, tmp_path):
    with limited_jobs(3):
        find_run(arguments)(work_of(note, tmp_path))
    processes = {path.name: path.read_text() for path in tmp_path.iterdir()}
    # nothing else is left in the folder
    assert sorted(map(int, processes)) == list(range(NUM_ITEMS))
    assert len(set(processes.values())) == num_processes


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ERRORS)
def test_the_first_failure_is_raised_as_it_is_and_ends_other_calls(name, engine, tmp_path):
    error, has_processes = ERRORS[name], engine == "beam in processes"
    kind = type(error) if engine == "local" or isinstance(error, OSError) else BuildError
    # Beam waits for its other processes
    call = partial(fail, name, note if has_processes else go_on)
    with limited_jobs(3), pytest.raises((kind, BuildError)) as failed:
        find_run(ENGINES[engine][0])(work_of(call, tmp_path))
    found = failed.value
    match error:
        case InputError():
            assert (type(found), str(found)) == (kind, str(error))
        case OSError():
            assert (found.errno, found.filename) == (error.errno, error.filename)
        case _:
            assert str(error) in str(found)
    # none of the others began another item
    assert has_processes or len(list(tmp_path.iterdir())) <= 3


def test_a_failure_of_a_thread_is_raised_rather_than_that_of_one_that_it_ended(tmp_path):
    def call(item: int) -> None:
        if item:
            go_on(tmp_path, item)
        raise BuildError("first")

    work = work_of(note, tmp_path)
    object.__setattr__(work, "function", call)
    with pytest.raises(BuildError, match="first"):
        run_on_threads(work, 4)


@on_each_engine
def test_ctrl_c_ends_all_calls(arguments, num_processes, tmp_path):
    command = [sys.executable, "-m", "tests.prep.calls", "go_on", str(tmp_path), *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT
    )
    until(lambda: len([*tmp_path.glob("[0-9]*")]) >= 2)
    # to the process group, as a terminal does
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("interrupted\n", 0), err
    begun = contents_of(tmp_path)
    assert len(begun) <= 4
    until(lambda: not in_group(process.pid))
    assert contents_of(tmp_path) == begun


def contents_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("[0-9]*")}


def in_group(group: int) -> str:
    return subprocess.run(["pgrep", "-g", str(group)], capture_output=True, text=True).stdout


def test_pipeline_options_that_do_not_fit_are_refused_and_leave_nothing(tmp_path, monkeypatch, quiet_build):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    numbers = Arrays({"x": np.arange(4)})
    for text, arguments in [
        ("Beam: .*'two'", ["--direct_num_workers=two"]),
        ("Beam: .*Flonk", ["--runner=Flonk"]),
        ("--runer=DirectRunner; was --runner meant", ["--runer=DirectRunner"]),
        ("FlinkRunner", ["FlinkRunner"]),
        ("beam_args=", "--runner=DirectRunner"),
    ]:
        with pytest.raises(OptionsError, match=text):
            quiet_build(numbers, tmp_path / "out", beam_args=arguments)
    find_run(["--direct_num_workers=2"])
    # neither a dataset nor what a pipeline of Beam puts on the disk
    assert list(tmp_path.iterdir()) == []


def test_only_one_function_uses_an_internal_of_beam():
    internals = []
    for path in sorted((ROOT / "prep").rglob("*.py")):
        if "import apache_beam" not in (text := path.read_text()):
            continue
        for function in ast.walk(ast.parse(text)):
            match function:
                case ast.ImportFrom(module=str(module)) if module.startswith("apache_beam"):
                    names = f"{module}.{'.'.join(name.name for name in function.names)}".split(".")
                    internals += [name for name in names if name == "internal" or name.startswith("_")]
                case ast.FunctionDef(name=name):
                    own = ("self", "cls")
                    internals += [
                        f"{name}: {each.attr}"
                        for each in ast.walk(function)
                        if isinstance(each, ast.Attribute)
                        and not (isinstance(each.value, ast.Name) and each.value.id in own)
                        and (re.match("_[^_]", each.attr) or each.attr == "local_tempdir")
                    ]
    assert internals == ["check_runner: local_tempdir"]
    assert "Only `check_runner` uses an internal of it" in (ROOT / "docs/architecture.md").read_text()
