"""What a command reports, and where: results, errors, status lines, progress, and streams that fail."""

import io
import json
import os
import re
import signal
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
from tests.programs import until
from tfshards.prep import Arrays, ImageFolder, build, limited_jobs, verify
from tfshards.prep.cli.main import main
from tfshards.prep.cli.verb import Verb, add_dataset
from tfshards.prep.cli.verbs import VERBS
from tfshards.prep.engines import local
from tfshards.prep.engines.local import Helper, pickled
from tfshards.prep.progress.console import Console, console, reporting
from tfshards.prep.progress.lines import Meter, Written, report_line, report_warning
from tfshards.prep.progress.threads import computing, num_jobs, num_writers
from tfshards.prep.records.frames import RecordError
from tfshards.schemas import OptionsError
from tfshards.schemas.errors import IncompleteError
from tfshards.schemas.files import local_path
from tfshards.schemas.storage import any_path

COMMAND = [sys.executable, "-m", "tfshards"]


@pytest.fixture
def run(small_folder, tmp_path, monkeypatch, capsys):
    """Return a function from a command line to (exit status, stdout, stderr), in a folder with datasets."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(5))
    Path("keys").write_text("cat/00.png\n")
    Path("labels.csv").write_text("key,label\ncat/02.png,dog\n")
    build(ImageFolder("photos"), "out", shards=2, log=lambda _: None)
    capsys.readouterr()

    def run(line: str, verbs=VERBS) -> tuple[int, str, str]:
        status = main(line.split(), verbs)
        return (status, *capsys.readouterr())

    return run


DOCUMENTS = {
    "build arrays x.npy new": "build_id",
    "plan images photos new": "splits",
    "info out": "build_id",
    "show out cat/00.png": "examples",
    "show out --first 3": "examples",
    "report out --no-audit": "page",
    "verify out --repair photos": "repaired",
    "audit out": "findings",
    "diff out out": "is_same",
    "prune out --dry-run": "removed",
    "reshard out new --shards 1": "build_id",
    "merge out out new --as-splits": None,
    "append photos out": "build_id",
    "remove out --keys keys": "build_id",
    "relabel out --labels labels.csv": "build_id",
    "export out new --to webdataset": "files",
    "adopt out": None,
    "completion bash": "script",
    "generations out": "generations",
    "restore out 01234567": None,
}


def test_every_verb_prints_one_json_document_of_its_result_or_its_error(run):
    assert {line.split()[0] for line in DOCUMENTS} == {*VERBS}
    for number, (line, key) in enumerate(DOCUMENTS.items()):
        status, out, err = run(f"{line.replace('new', f'new{number}')} --json")
        document = json.loads(out)
        if key is None:
            assert status in (1, 2)
            assert list(document) == ["kind", "code", "message", "path", "remedy"]
            assert document["message"] in err
        else:
            assert status == 0, err
            assert key in document


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
    (OptionsError("size=3 is odd"), 2, "options", "size=3 is odd", None, None),
    (OptionsError("dataset= is odd || give dataset=8"), 2, "options", None, None, "give DATASET 8"),
    (IncompleteError("no labels.txt"), 3, "incomplete", "no labels.txt", None, None),
    (RecordError(Path("a/b"), 3, 9, "is torn"), 1, "data", None, "a/b", None),
    (OSError(2, "No such file", "gone"), 1, "system", "gone: No such file", "gone", None),
    (OSError("unknown"), 1, "system", "unknown", None, None),
    (KeyboardInterrupt(), 130, "interrupted", None, None, "run the same command to resume"),
]


@pytest.mark.parametrize(("error", "status", "kind", "message", "path", "remedy"), FAILURES)
def test_an_error_has_a_kind_a_path_and_a_remedy(error, status, kind, message, path, remedy, run):
    found, out, err = run("fail x --json", raising(error))
    document = json.loads(out)
    assert (found, document["kind"], document["path"], document["remedy"]) == (status, kind, path, remedy)
    assert document["message"] == (message or document["message"])
    assert document["message"] in err
    assert remedy is None or document["message"].endswith(f"; {remedy}")


def test_the_file_of_a_format_error_is_its_path_and_usage_errors_are_objects(run):
    Path("out/dataset.json").write_text("{")
    document = json.loads(run("info out --json")[1])
    assert (document["kind"], document["code"], document["path"]) == ("format", "format", "out/dataset.json")
    status, out, err = run("info out --json --quite")
    assert status == 2
    assert json.loads(out)["code"] == "usage"
    assert err == f"tfshards info: {json.loads(out)['message']}\n"


def test_a_defect_is_an_object_with_its_type(run, capsys):
    with pytest.raises(ZeroDivisionError):
        main(["fail", "x", "--json"], raising(ZeroDivisionError("at 3")))
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["message"]) == ("internal", "ZeroDivisionError: at 3")


def test_quiet_leaves_warnings_and_errors(run, image_folder):
    image_folder({f"{'ab'[n % 2]}/{n}.png": n for n in range(4)} | {"c/": b""}, "warned")
    status, out, err = run("build images warned new --quiet")
    assert status == 0
    assert out.startswith("new, build ")
    assert err.startswith("warning: the folder 'c' holds no images")
    assert err.count("\n") == 1
    assert run("info gone -q")[2] == "tfshards: gone does not exist\n"
    assert "not allowed with argument" in run("info out -q -v")[2]


def test_details_are_printed_only_if_asked_for(run):
    assert run("info gone")[2] == "tfshards: gone does not exist\n"
    err = run("info gone --verbose")[2]
    assert err.startswith("tfshards ")
    assert "Traceback (most recent call last):" in err


def test_beams_log_is_a_detail(run):
    # in a process of its own, since an interrupted build silences Beam for the rest of the program
    line = "-m tfshards build arrays x.npy new --verbose -- --runner=DirectRunner"
    verbose = subprocess.run([sys.executable, *line.split()], capture_output=True, text=True).stderr
    assert re.search(r"^apache_beam\S*: INFO: ", verbose, re.MULTILINE), verbose


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_streams_harm_nothing(closed, run):
    command = " ".join([*COMMAND, "build", "images", "photos", "new", closed])
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert verify("new", deep=True)
    assert (done.stdout == "") == (">&-" in closed.split())


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


@pytest.mark.parametrize(
    ("line", "stream"),
    [
        ("build arrays x.npy new", "stdout"),
        ("build arrays x.npy new", "stderr"),
        ("plan arrays many.npy out --shards=3000 --json", "stdout"),
        ("build table --help", "stdout"),
    ],
)
def test_a_reader_that_has_ended_does_not_end_a_command_with_an_error(line, stream, run):
    np.save("many.npy", np.arange(3000))
    reading, writing = os.pipe()
    os.close(reading)
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, stream: writing}
    process = subprocess.Popen([*COMMAND, *line.split()], **streams)
    os.close(writing)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 or "--help" in line
    assert "Traceback" not in (err or "")
    assert "Broken" not in (err or "")
    assert not Path("new").exists() or verify("new")


def test_a_broken_pipe_of_something_else_is_an_error(run):
    status, _, err = run("fail x", raising(BrokenPipeError(32, "Broken pipe")))
    assert (status, err) == (1, "tfshards: operating system: Broken pipe\n")


def test_a_full_disk_at_standard_output_is_an_error(run):
    with open("/dev/full", "w") as full:
        for more in ([], ["--json"]):
            done = subprocess.run(
                [*COMMAND, "info", "out", *more], stdout=full, stderr=subprocess.PIPE, text=True
            )
            assert done.returncode == 1
            assert done.stderr == "tfshards: standard output: No space left on device\n"


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


@pytest.fixture
def long_build(run):
    """Return the command line of a build that takes some seconds, and a function that waits for its start."""
    np.save("long.npy", np.zeros((400_000, 100), np.uint8))
    line = [*COMMAND, "build", "arrays", "long.npy", "long", "--shards", "40", "--jobs", "1"]

    def begun() -> None:
        until(lambda: any(Path("long").glob(".build/*/first/*.done")))

    return line, begun


@pytest.mark.processes
@pytest.mark.parametrize(
    ("hangup", "number", "status"),
    [
        ("--default-signal=HUP", signal.SIGHUP, 129),
        # as nohup starts a program
        ("--ignore-signal=HUP", signal.SIGTERM, 143),
    ],
)
def test_the_end_of_a_terminal_interrupts_a_build_unless_it_is_ignored(long_build, hangup, number, status):
    line, begun = long_build
    process = subprocess.Popen(
        ["env", hangup, *line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    begun()
    process.send_signal(signal.SIGHUP)
    if number != signal.SIGHUP:
        time.sleep(0.1)
        assert process.poll() is None
        process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[-1]) == (
        status,
        "interrupted; run the same command to resume",
    )


# the system refuses stacks of this size, and so every thread
NO_THREADS = "import threading; threading.stack_size(1 << 47)"
# the first thread of each command starts, but none of those that it starts
ONE_THREAD = """
import threading
start = threading.Thread.start
def once(thread):
    start(thread)
    threading.stack_size(1 << 47)
threading.Thread.start = once
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("limit", "line"),
    [
        (NO_THREADS, "build arrays x.npy new"),
        (ONE_THREAD, "build arrays x.npy new -- --direct_num_workers=1"),
    ],
    ids=["none", "one, Beam"],
)
def test_a_refused_thread_is_not_an_interruption(limit, line, run):
    code = f"{limit}\nfrom tfshards.prep.cli.main import main; raise SystemExit(main({line.split()!r}))"
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


@pytest.mark.parametrize(
    "line",
    [
        "info ~/data",
        "build images ~/photos new",
        "build images photos ~/new",
        "build images photos new --mask-dir ~/masks",
        "build table --from coco ~/t.json new",
        "info out --config=~/options.toml",
        "merge train=~/more test=out new --as-splits",
        "audit out --keys=~/keys",
    ],
)
def test_a_home_folder_that_was_not_expanded_is_refused(line, run, monkeypatch, contents):
    monkeypatch.setenv("HOME", "/home/somebody")
    before = contents(Path())
    status, out, err = run(line)
    assert (status, out) == (2, "")
    assert re.search(r"~\S* starts with ~, .*; give /home/somebody\S*, or \./~\S* if ~ is", err), err
    assert contents(Path()) == before


def test_other_paths_may_start_with_a_tilde(tmp_path):
    for name in ("./~/x", "~nobody-here/x", "a~", "~$draft"):
        assert any_path(name) == local_path(name) == Path(name)
    with raises(OptionsError, "home-not-expanded") as caught:
        build(Arrays({"x": np.arange(4)}), "~/new")
    assert caught.value.remedy
