"""What a command reports, and where: results, errors, status lines, progress, and streams that fail."""

import io
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow
import pytest

from tests.errors import raises
from tests.prep.job_services import free_port
from tfshards.prep import Arrays, ImageFolder, build, limited_jobs
from tfshards.prep.cli.main import main
from tfshards.prep.cli.verb import Verb, add_dataset
from tfshards.prep.cli.verbs import VERBS
from tfshards.prep.engines import local
from tfshards.prep.engines.local import Helper, pickled
from tfshards.prep.progress.console import Console, console, reporting
from tfshards.prep.progress.lines import Meter, Written, report_line, report_warning
from tfshards.prep.progress.threads import computing, num_jobs, num_writers
from tfshards.schemas import OptionsError
from tfshards.schemas.errors import IncompleteError
from tfshards.schemas.files import local_path
from tfshards.schemas.storage import any_path


@pytest.fixture
def run(small_folder, tmp_path, monkeypatch, capsys):
    """Return a function from a command line to (exit status, stdout, stderr), in a folder with datasets."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(5))
    build(ImageFolder("photos"), "out", shards=2, log=lambda _: None)
    capsys.readouterr()

    def run(line: str, verbs=VERBS) -> tuple[int, str, str]:
        status = main(line.split(), verbs)
        return (status, *capsys.readouterr())

    return run


def test_examples_as_json_have_numbers_text_and_what_images_are(run):
    np.savez(
        "all.npz",
        a=np.arange(4, dtype=np.float32).reshape(2, 2),
        c=np.array([1j, 2j]),
        n=np.array([7, 8]),
        text=np.array(["ä", "b"]),
        label=np.array([1, 0]),
    )
    assert run("build arrays all.npz arrays --seed 0")[0] == 0
    examples = json.loads(run("show arrays --first 2 --json")[1])["examples"]
    values = {one["features"]["key"]: one["features"] for one in examples}
    assert values["0"] == {
        "a": [0.0, 1.0],
        "c": {"dtype": "complex128", "hex": np.array([1j]).tobytes().hex()},
        "n": 7,
        "text": "ä",
        "label": 1,
        "key": "0",
    }
    (image,) = json.loads(run("show out cat/00.png --json")[1])["examples"]
    assert image["features"]["label"] == {"labels": [0], "classes": ["cat"]}
    size = Path("photos/cat/00.png").stat().st_size
    assert image["features"]["image"]["num_bytes"] == size
    assert image["features"]["image"]["image"].startswith("PNG ")


def raising(error: BaseException) -> dict[str, Verb]:
    def run(_: object) -> object:
        raise error

    return VERBS | {"fail": Verb("fail", "fail", add_dataset, run, is_resumable=True)}


FAILURES = [
    (OptionsError("dataset= is odd || give dataset=8"), 2, "options", None, None, "give DATASET 8"),
    (IncompleteError("no labels.txt"), 3, "incomplete", "no labels.txt", None, None),
    (OSError(2, "No such file", "gone"), 1, "system", "gone: No such file", "gone", None),
    (OSError("unknown"), 1, "system", "unknown", None, None),
]


@pytest.mark.parametrize(("error", "status", "kind", "message", "path", "remedy"), FAILURES)
def test_an_error_has_a_kind_a_path_and_a_remedy(error, status, kind, message, path, remedy, run):
    found, out, err = run("fail x --json", raising(error))
    document = json.loads(out)
    assert (found, document["kind"], document["path"], document["remedy"]) == (status, kind, path, remedy)
    assert document["message"] == (message or document["message"])
    assert document["message"] in err
    assert remedy is None or document["message"].endswith(f"; {remedy}")


def test_a_defect_is_an_object_with_its_type(run, capsys):
    with pytest.raises(ZeroDivisionError):
        main(["fail", "x", "--json"], raising(ZeroDivisionError("at 3")))
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["message"]) == ("internal", "ZeroDivisionError: at 3")


def test_a_library_whose_standard_error_is_closed_uses_helpers(tmp_path):
    # a file gets the number 2, into which a helper must not print
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.prep.test_console import shout
from tfshards.prep.engines.local import Helper, pickled
assert sys.stderr is None
file = open("two", "w+")
with Helper(pickled(shout)) as helper:
    helper(1)
assert file.read() == "", file.read()
"""
    command = f'{sys.executable} -c "$CODE" 2>&-'
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, env={**os.environ, "CODE": code}, stdout=subprocess.PIPE
    )
    assert done.returncode == 0
    assert (tmp_path / "two").read_text() == ""


def shout(_: object) -> None:
    os.write(2, b"to standard error")
    print("to standard output", flush=True)


def test_a_broken_pipe_of_something_else_is_an_error(run):
    status, _, err = run("fail x", raising(BrokenPipeError(32, "Broken pipe")))
    assert (status, err) == (1, "tfshards: operating system: Broken pipe\n")


def test_reports_do_not_raise_whatever_the_stream_does():
    class Broken(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    closed = io.StringIO()
    closed.close()
    for stream in (Broken(), closed):
        with reporting(Console(stream)):
            report_line("status")
            report_warning("warning")
            console().error("error")
    with reporting(Console(Broken())), Meter("verify", 3) as meter:
        meter.add(3)


# The first thread of each command starts, but none of those that it starts: the system refuses such stacks.
ONE_THREAD = """
import threading
start = threading.Thread.start
def once(thread):
    start(thread)
    threading.stack_size(1 << 47)
threading.Thread.start = once
"""


@pytest.mark.processes
def test_a_thread_that_is_refused_to_beam_is_not_an_interruption(run):
    line = "build arrays x.npy new -- --direct_num_workers=1"
    code = f"{ONE_THREAD}\nfrom tfshards.prep.cli.main import main; raise SystemExit(main({line.split()!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("tfshards: the system refused to start a thread; give a smaller number of jobs")


def test_jobs_limit_processes_and_threads(run):
    size, of_arrow = Written(1_000_000, 1 << 30), pyarrow.cpu_count()
    with limited_jobs(3):
        assert (num_jobs(), num_writers(), num_writers(is_remote=True), pyarrow.cpu_count()) == (3, 3, 3, 3)
        assert local.num_helpers(size, 64) == 2
        with limited_jobs(1):
            assert num_writers() == 1
            assert local.num_helpers(size, 64) == 0
        with limited_jobs(None):
            assert num_jobs() == 3
    assert pyarrow.cpu_count() == of_arrow
    for number in (0, -1, True, "2"):
        with raises(OptionsError, "jobs-range"):
            limited_jobs(number).__enter__()
    assert "--jobs 0 must be an integer of at least 1" in run("verify out --jobs 0")[2]
    status, _, err = run("build arrays x.npy new --jobs 2 -- --direct_num_workers=2")
    assert status == 2
    assert "--jobs 2 limits a build on this machine" in err


@pytest.mark.processes
def test_helpers_of_a_limited_build_compute_in_one_thread_each():
    for jobs, expected in ((None, "False"), (2, "True")):
        with (
            limited_jobs(jobs),
            Helper(pickled(tell_limit) or b"") as helper,
            pytest.raises(ValueError, match=rf"^limited to one: {expected}$"),
        ):
            helper(0)


def tell_limit(_: object) -> None:
    from tfshards.prep.progress.threads import is_limited

    raise ValueError(f"limited to one: {is_limited() and num_jobs() == 1}")


def test_no_more_threads_compute_than_there_are_jobs():
    running, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal running, most
        with computing():
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.02)
            with lock:
                running -= 1

    with limited_jobs(2):
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert most == 2


@pytest.mark.nightly
def test_a_job_service_that_does_not_answer_is_reported_soon(tmp_path):
    arguments = ["--runner=PortableRunner", f"--job_endpoint=localhost:{free_port()}"]
    code = f"""
import time
import numpy as np
from tfshards.prep import Arrays, build
from tfshards.prep.engines import beam
began = time.monotonic()
try:
    build(Arrays({{"x": np.arange(4)}}), "out", beam_args={arguments!r})
except Exception as error:
    print(time.monotonic() - began, error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    seconds, _, message = done.stdout.partition(" ")
    assert message.startswith("no job service answers at localhost:"), done.stderr
    assert float(seconds) < 10


def test_other_paths_may_start_with_a_tilde(tmp_path):
    for name in ("./~/x", "~nobody-here/x", "a~", "~$draft"):
        assert any_path(name) == local_path(name) == Path(name)
    with raises(OptionsError, "home-not-expanded") as caught:
        build(Arrays({"x": np.arange(4)}), "~/new")
    assert caught.value.remedy
