"""Runners other than Beam's local one: jobs that end with the build, and workers in other places."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tests.programs import until
from tests.tables import mostly_nightly
from tfshards.prep import Arrays, ImageFolder, Options, reshard, verify
from tfshards.schemas import BuildError, OptionsError

from ..engines.job_service import jobs_running
from ..engines.processes import free_port
from .job_services import COMMAND, TIMEOUT_SECONDS, local_job_service, service, started, worker_pool

pytestmark = pytest.mark.processes

ENGINES = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
ANY = Options(max_rejected=1)
HIDE = "unshare --mount sh -c 'mount -t tmpfs none {folder} && exec \"$@\"' sh"


@pytest.fixture
def server(tmp_path) -> Path:
    """Beam's job service in Python, as a program that is started as Prism is; it prints what it cancels."""
    path = tmp_path / "server"
    path.write_text(f"""#!{sys.executable}
import sys
from apache_beam.runners.portability import abstract_job_service, local_job_service_main

Service = abstract_job_service.AbstractJobServiceServicer
cancel = Service.Cancel

def print_and_cancel(*arguments):
    print("cancels a job", flush=True)
    return cancel(*arguments)

Service.Cancel = print_and_cancel
local_job_service_main.run(["--port", sys.argv[sys.argv.index("--job_port") + 1]])
""")
    path.chmod(0o755)
    return path


def prism_by_name(program: Path) -> list[str]:
    """Return the options of a runner that starts this program as its job service."""
    return ["--runner=PrismRunner", f"--prism_location={program}"]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """Beam's job service in Python, which has no running job before and after each test."""
    port = free_port()
    with service(local_job_service(port), port, tmp_path_factory.mktemp("service")):
        yield f"localhost:{port}"


def arguments(endpoint: str) -> list[str]:
    """Return the options of a job whose workers are threads of the command."""
    return ["--runner=PortableRunner", f"--job_endpoint={endpoint}", "--environment_type=LOOPBACK"]


def processes_of(program: Path) -> str:
    return subprocess.run(["pgrep", "-f", str(program)], capture_output=True, text=True).stdout


def build_command(source: Path, out: Path, *beam_args: str) -> list[str]:
    return [*COMMAND, str(source), str(out), "--shards=4", "--max-rejected=100%", "--", *beam_args]


def test_options_that_the_job_service_lacks_are_refused(endpoint, tmp_path, quiet_build):
    args = [*arguments(endpoint), "--flonk=1"]
    with pytest.raises(BuildError, match="--flonk=1"):
        quiet_build(Arrays({"x": np.arange(4)}), tmp_path / "out", beam_args=args)
    with raises(OptionsError, "beam-no-endpoint"):
        quiet_build(Arrays({"x": np.arange(4)}), tmp_path / "out", beam_args=["--runner=PortableRunner"])


def test_a_runner_that_starts_a_server_writes_the_same_bytes(
    server, small_folder, tmp_path, quiet_build, contents, log
):
    quiet_build(ImageFolder(small_folder), tmp_path / "plain" / "out", shards=3)
    expected = list(log)
    log.clear()
    out = tmp_path / "prism" / "out"
    quiet_build(ImageFolder(small_folder), out, shards=3, beam_args=prism_by_name(server))
    assert contents(tmp_path / "plain" / "out") == contents(out)
    assert log == expected
    assert processes_of(server) == ""


NO_START = {
    "echo no memory; exit 3": r"server ended with status 3; its output is in (.*)$",
    "echo no memory; exec sleep 1000": r"does not answer at localhost:\d+; its output is in (.*)$",
}


@pytest.mark.parametrize(("code", "message"), NO_START.items(), ids=["it ends", "it does not answer"])
def test_a_server_that_does_not_start_is_reported_and_ended(code, message, tmp_path, quiet_build):
    server = tmp_path / "server"
    server.write_text(f"#!/bin/sh\n{code}\n")
    server.chmod(0o755)
    args = [*prism_by_name(server), "--job_server_timeout=1"]
    with pytest.raises(BuildError, match=message) as failure:
        quiet_build(Arrays({"x": np.arange(4)}), tmp_path / "out", beam_args=args)
    assert Path(str(failure.value).rpartition(" in ")[2]).read_text().startswith("no memory\n")
    assert processes_of(server) == ""


@pytest.mark.parametrize("number", mostly_nightly([signal.SIGINT, signal.SIGKILL], [signal.SIGKILL]))
def test_the_server_of_a_runner_ends_with_the_build(number, server, slow_folder, tmp_path):
    out = tmp_path / "out"
    status, err = interrupt(build_command(slow_folder, out, *prism_by_name(server)), out, number)
    if number == signal.SIGINT:
        assert (status, err.splitlines()[1:]) == (130, ["", "interrupted; run the same command to resume"])
        assert processes_of(server) == ""
        assert "cancels a job" in next(out.glob(".build/*/workers.log")).read_text()
    until(lambda: processes_of(server) == "")
    assert not list(out.glob(".build/*/job"))


def interrupt(command: list[str], out: Path, number: int) -> tuple[int, str]:
    """Send a signal to the process group of a build when a worker has begun, as a terminal does."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(lambda: started(out) or process.poll() is not None)
    assert process.poll() is None, process.stderr.read()
    process.send_signal(number)
    _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    return process.returncode, err


def test_an_error_of_a_worker_is_reported_without_tracebacks(endpoint, small_folder, tmp_path):
    args = arguments(endpoint)
    out = tmp_path / "out"
    program = """
import sys
from tfshards.prep.cli.main import main
from tfshards.prep.writing import shard
def fail(*_):
    raise ValueError("odd")
shard.BuildArea.write_all = fail
sys.exit(main())
"""
    command = [sys.executable, "-c", program, *build_command(small_folder, out, *args)[3:]]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(r"starting build: .*\ntfshards: out-train-.*: ValueError: odd\n", done.stderr)


def test_the_job_of_a_killed_build_is_cancelled(endpoint, slow_folder, tmp_path, quiet_build, contents, log):
    out = tmp_path / "out"
    command = build_command(slow_folder, out, *arguments(endpoint))
    assert interrupt(command, out, signal.SIGKILL)[0] == -signal.SIGKILL
    quiet_build(ImageFolder(slow_folder), out, shards=4, options=ANY)
    assert jobs_running(endpoint) == []
    assert not any("cannot be cancelled" in line for line in log)
    quiet_build(ImageFolder(slow_folder), tmp_path / "whole" / "out", shards=4, options=ANY)
    assert contents(out) == contents(tmp_path / "whole" / "out")


def test_a_job_that_cannot_be_cancelled_is_named(slow_folder, tmp_path):
    out, port = tmp_path / "out", free_port()
    args = arguments(f"localhost:{port}")
    with service(local_job_service(port), port, tmp_path / "logs") as process:
        killer = threading.Thread(target=lambda: (until(lambda: started(out)), process.kill()))
        killer.start()
        done = subprocess.run(build_command(slow_folder, out, *args), capture_output=True, text=True)
        killer.join()
    assert done.returncode == 1
    assert re.search(rf"^warning: the job \S+ at localhost:{port} may still run", done.stderr, re.M)
    assert list(out.glob(".build/*/job"))
    assert len(done.stderr.splitlines()) == 3, done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can hide a folder from a worker")
def test_a_worker_that_does_not_see_the_dataset_to_reshard_is_refused(endpoint, tmp_path, quiet_build):
    root, out = tmp_path / "data", tmp_path / "out"
    quiet_build(Arrays({"x": np.arange(4)}), root)
    with worker_pool(tmp_path / "pool", wrapper=HIDE.format(folder=root)) as options:
        args = ["--runner=PortableRunner", f"--job_endpoint={endpoint}", *options]
        with pytest.raises(BuildError, match=rf"a worker on \S+ sees another folder at {root}; mount"):
            reshard(root, out, shards=2, beam_args=args, log=lambda _: None)
    assert not [*out.rglob("*.tfrecord-*")]


@pytest.mark.parametrize("engine", ["Prism", "Spark"])
def test_the_build_that_the_page_on_engines_prints_runs(engine, endpoint, small_folder, monkeypatch):
    # on Beam's job service in Python; make engines runs the engines themselves
    section = re.split(rf"^## {engine}$", ENGINES, flags=re.M)[1].partition("\n## ")[0]
    (command,) = re.findall(r"^(tfshards build (?:.*\\\n)*.*)$", section, re.M)
    words = re.sub(r"localhost:\d+", endpoint, command.replace("\\\n", " ")).split()[1:]
    assert small_folder.name == words[2]
    monkeypatch.chdir(small_folder.parent)
    assert subprocess.run([sys.executable, "-m", "tfshards", *words]).returncode == 0
    assert verify("data/photos")
