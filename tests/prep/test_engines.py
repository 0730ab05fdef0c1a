"""Engines: every item is processed, the first failure ends the others, and keeps its class and code."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.durability.commands import children
from tests.engines.processes import free_port, listens, running, start, worker_pool
from tests.prep import derived
from tests.prep.calls import ERRORS, NUM_ITEMS, fail, go_on, note, work_of
from tests.prep.exported import write_everything
from tests.programs import ROOT, until
from tfshards import prep
from tfshards.prep import Arrays, merge, relabel, reshard
from tfshards.prep.engines.work import find_run
from tfshards.prep.progress.threads import limited_jobs
from tfshards.schemas import BuildError, InputError, OptionsError

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
        ("--runer=DirectRunner", ["--runer=DirectRunner"]),
        ("FlinkRunner", ["FlinkRunner"]),
        ("beam_args=", "--runner=DirectRunner"),
    ]:
        with pytest.raises(OptionsError, match=text):
            quiet_build(numbers, tmp_path / "out", beam_args=arguments)
    find_run(["--direct_num_workers=2"])
    # neither a dataset nor what a pipeline of Beam puts on the disk
    assert list(tmp_path.iterdir()) == []


# The local engine: this process and its helpers write the shards, and a lost helper ends the build


def test_a_script_without_a_guard_has_helpers_unless_the_function_is_its_own(tmp_path):
    program = """
import os, sys
from functools import partial
from pathlib import Path
from tests.prep.calls import note, work_of
from tfshards.prep.engines.work import find_run
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


# Work on Beam's portable runner: workers are threads of the command, or processes of a worker pool


HIDE = "unshare --mount sh -c 'mount -t tmpfs none {folder} && exec \"$@\"' sh"


LACK = "import sys; sys.modules['tfshards'] = None"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """Beam's job service in Python."""
    port, main = free_port(), "apache_beam.runners.portability.local_job_service_main"
    command = [sys.executable, "-m", main, "--port", port]
    with running(start("service", command, tmp_path_factory.mktemp("service")), listens(port)):
        yield f"localhost:{port}"


@pytest.fixture
def run(endpoint):
    """Return a function that does work on the job service, with further pipeline options."""

    def run(work, *options: str) -> None:
        find_run(["--runner=PortableRunner", f"--job_endpoint={endpoint}", *options])(work)

    return run


def test_processes_of_a_pool_process_every_item_and_return_errors(run, tmp_path):
    (tmp_path / "out").mkdir()
    with worker_pool(tmp_path / "pool") as pool:
        run(work_of(note, tmp_path / "out"), *pool.options)
        names = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
        assert sorted(map(int, names)) == list(range(NUM_ITEMS))
        assert str(os.getpid()) not in names.values()
        with pytest.raises(BuildError, match="changed after"):
            run(work_of(partial(fail, "input", note), tmp_path / "out"), *pool.options)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can hide a folder from a worker")
def test_a_worker_that_does_not_see_the_dataset_to_reshard_is_refused(endpoint, tmp_path, quiet_build):
    root, out = tmp_path / "data", tmp_path / "out"
    quiet_build(Arrays({"x": np.arange(4)}), root)
    with worker_pool(tmp_path / "pool", wrapper=HIDE.format(folder=root)) as pool:
        args = ["--runner=PortableRunner", f"--job_endpoint={endpoint}", *pool.options]
        with pytest.raises(BuildError, match="does not see") as failed:
            reshard(root, out, shards=2, beam_args=args)
    assert str(root) in str(failed.value)
    assert not [*out.rglob("*.tfrecord-*")]


def test_a_worker_without_tfshards_is_reported(run, tmp_path):
    (tmp_path / "out").mkdir()
    with (
        worker_pool(tmp_path / "pool", customize=LACK) as pool,
        pytest.raises(BuildError, match="Apache Beam ended") as failed,
    ):
        run(work_of(note, tmp_path / "out"), *pool.options)
    assert "ModuleNotFoundError" in str(failed.value)


# Builds, derivations and exports by workers: tasks, repeated ones, errors; see tests/verbs for the bytes


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The datasets ``old``, 60 images of three splits, ``one`` and ``two``, two halves, and ``every``."""
    root = tmp_path_factory.mktemp("datasets")
    derived.build_images(root)
    for name, numbers in (("one", range(20)), ("two", range(20, 40))):
        photos = prep.ImageFolder(derived.write_images(root / f"of-{name}", numbers))
        prep.build(photos, root / name, shards=2)
    write_everything(root / "every")
    return root


CALLS = {
    "build": lambda old, out: prep.build(prep.ImageFolder(old / "of-one"), out / "a", shards=4),
    "reshard": lambda old, out: reshard(old / "old", out / "a", shards={"train": 40}),
    "merge": lambda old, out: merge([old / "one", old / "two"], out / "a", shards=2),
    "relabel": lambda _, out: relabel(out / "old", {f"cat/{n:03}.png": "dog" for n in range(0, 60, 2)}),
    "WebDataset": lambda old, out: prep.export(old / "old", out / "a", to="webdataset"),
    "Parquet": lambda old, out: prep.export(old / "every", out / "a", to="parquet"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_tasks_do_not_grow_with_the_dataset_and_may_be_repeated(
    call, folder, tmp_path, contents, monkeypatch
):
    for name in ("once", "twice"):
        shutil.copytree(folder / "old", tmp_path / name / "old")
    call(folder, tmp_path / "once")
    num_tasks = 0

    def run_twice(work) -> None:
        """Run each task as runners do that lose an answer."""
        nonlocal num_tasks
        sent = pickle.dumps(work.function)
        # neither shards nor keys
        assert b".tfrecord" not in sent
        assert b".png" not in sent
        assert len(sent) < 3_000
        for item in work.items:
            num_tasks += 1
            work.function(item)
            before = contents(work.folder)
            work.function(item)
            assert contents(work.folder) == before
        # of one shard its name, or its entry in the manifest
        assert max(len(pickle.dumps(item)) for item in work.items) < 800

    monkeypatch.setattr("tfshards.prep.engines.local.run", run_twice)
    call(folder, tmp_path / "twice")
    assert num_tasks > 1
    assert contents(tmp_path / "twice") == contents(tmp_path / "once")
