"""Processes: streams that are closed, broken, full or a terminal; signals, locales, and no network."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from tests.pictures import STAMP, image_file, write
from tests.programs import until
from tests.surface.command import COMMAND, run, run_alone
from tfshards import prep
from tfshards.schemas import read_manifest

ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}


def test_the_installed_command_and_the_module_are_the_same(here):
    installed = Path(sys.executable).with_name("tfshards")
    for line in ("info gone", "info data --json"):
        done = subprocess.run([installed, *line.split()], capture_output=True, text=True)
        alone = run_alone(line)
        assert alone == run(line) == (done.returncode, done.stdout, done.stderr)
    assert run("--version") == (0, f"tfshards {version('tfshards')}\n", "")


def test_quiet_leaves_warnings_and_verbose_adds_details(own):
    Path("photos/notes.csv").touch()
    for flag in ("-q", "--quiet"):
        status, out, err = run(f"build images photos new{len(flag)} {flag}")
        assert (status, bool(out), err.count("\n")) == (0, True, 1)
        assert err.startswith("warning: ")
        assert run(f"info gone {flag}").err == run("info gone").err
    assert "Traceback" not in run("info gone").err
    status, out, err = run("info gone --verbose")
    assert (status, out) == (1, "")
    assert "Traceback (most recent call last):" in err
    assert err.endswith(run("info gone").err)


@pytest.mark.processes
def test_the_log_of_beam_is_a_detail(own):
    # in a process of its own, since an interrupted build silences Beam for the rest of the program
    beam = "-- --runner=DirectRunner --direct_num_workers=1"
    ended = run_alone(f"build arrays x.npy new --verbose {beam}")
    assert re.search(r"^apache_beam\S*: INFO: ", ended.err, re.MULTILINE), ended
    assert read_manifest("new").num_examples == 12


@pytest.mark.parametrize("closed", [">&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_harm_nothing(closed, own):
    command = " ".join([*COMMAND, "build images photos new", closed])
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert prep.verify("new", deep=True)
    assert (done.stdout == "") == (" >&-" in f" {closed}")
    assert (done.stderr == "") == ("2>&-" in closed)


@pytest.mark.parametrize(
    ("line", "stream"),
    [
        ("build arrays x.npy new", "stdout"),
        ("build arrays x.npy new", "stderr"),
        ("plan arrays many.npy new --shards=3000 --json", "stdout"),
        ("build table --help", "stdout"),
    ],
)
def test_a_reader_that_has_ended_does_not_end_a_command_with_an_error(line, stream, own):
    np.save("many.npy", np.arange(3000))
    reading, writing = os.pipe()
    os.close(reading)
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, stream: writing}
    process = subprocess.Popen([*COMMAND, *line.split()], **streams)
    os.close(writing)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 or "--help" in line
    assert not re.search("Traceback|Broken|Error", err or "")
    assert not Path("new").exists() or prep.verify("new")


@pytest.mark.parametrize("more", ["", " --json"])
def test_a_full_disk_at_standard_output_is_an_error(more, here):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *f"info data{more}".split()], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr.startswith("tfshards: standard output: ")
    assert done.stderr.count("\n") == 1


def test_characters_that_the_terminal_cannot_encode_are_escaped(own):
    os.rename("photos/cat", "photos/猫")
    out = "caf\udce9"
    assert run(["build", "images", "photos", out, "--name=cats"]).status == 0
    ended = run_alone(["info", out], env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"})
    assert (ended.status, ended.err) == (0, "")
    assert "\\u732b" in ended.out
    ended = run_alone(["verify", out])
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("caf\\udce9: ")


def test_the_locale_does_not_change_the_bytes(own):
    write("photos/ä/ö.png", Path("photos/cat/0.png").read_bytes())
    write("photos/ä/bad.png", b"")
    write("photos/caf\udce9/ü.png", Path("photos/cat/0.png").read_bytes())
    settings = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    build = ["build", "images", "photos", "--max-rejected=100%", "--name=all"]
    assert run([*build, "utf8"]).status == 0
    ended = run_alone([*build, "ascii"], env={**ENVIRONMENT, **settings})
    assert ended.status == 0, ended
    files = [
        {path.relative_to(root): path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}
        for root in ("utf8", "ascii")
    ]
    assert files[0] == files[1]
    assert run_alone(["show", "ascii", "ä/ö.png"], env={**ENVIRONMENT, **settings}).status == 0


def test_a_build_needs_no_network(own):
    alone = ["unshare", "--net"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("only root can take the loopback device away")
    done = subprocess.run([*alone, *COMMAND, *["build", "arrays", "x.npy", "new", "--shards=3"]])
    assert done.returncode == 0
    assert read_manifest("new").num_examples == 12


def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_traceback():
    code = """
import sys, tfshards
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "tfshards.schemas":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
tfshards._command()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ninterrupted\n")


@pytest.fixture
def long(own):
    """The command line of a build that takes some seconds, and a function that waits for its start."""
    np.save("long.npy", np.zeros((60_000, 100), np.uint8))
    os.utime("long.npy", ns=(STAMP, STAMP))
    return ["build", "arrays", "long.npy", "new", "--shards", "12", "--jobs", "1"]


def started(line, *before):
    """Start a command; return it when it has finished its first shard."""
    process = subprocess.Popen(
        # a shell that runs tests in the background makes its children ignore the signals
        [*before, *COMMAND, *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: any(Path("new").glob("*/work/*.done")) or process.poll() is not None)
    return process


@pytest.mark.parametrize(
    ("handling", "number", "status"),
    [
        ("--default-signal=INT", signal.SIGINT, 130),
        pytest.param("--default-signal=HUP", signal.SIGHUP, 129, marks=pytest.mark.processes),
        # as nohup starts a program
        pytest.param("--ignore-signal=HUP", signal.SIGTERM, 143, marks=pytest.mark.processes),
    ],
)
def test_an_interrupted_build_has_the_status_of_its_signal_and_resumes(handling, number, status, long):
    process = started([*long, "--json"], "env", handling)
    if "ignore" in handling:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
        assert process.poll() is None
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    document = json.loads(out)
    assert (document["kind"], document["message"] in err) == ("interrupted", True)
    assert err.splitlines()[-1] == document["message"]
    assert "Traceback" not in err
    assert not Path("new/dataset.json").exists()
    if number == signal.SIGINT:
        ended = run(long)
        assert ended.status == 0
        assert re.match(r"build: ([1-9]|1[01]) of 12 shards ", ended.err)
        assert prep.verify("new", deep=True)


def test_progress_is_a_bar_on_a_terminal_only(own):
    picture = image_file(np.random.default_rng(0).integers(0, 256, (450, 450, 3), dtype=np.uint8), "BMP")
    for number in range(14):
        write(f"slow/{number:02}.bmp", picture)
    line = ["build", "images", "slow", "new", "--shards=7"]
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    process = subprocess.Popen([*COMMAND, *line], stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    written = bytearray()
    try:
        while data := os.read(leader, 4096):
            written += data
    except OSError:
        # the other end of the terminal is closed: the command has ended
        pass
    os.close(leader)
    assert process.wait(60) == 0
    percentages = [int(number) for number in re.findall(r"new: +(\d+)%", written.decode())]
    # what lies between depends on the speed of the machine
    assert percentages[0] == 0, written
    assert percentages == sorted(percentages)
    assert percentages[-1] == 100
    # a machine that needs more than a second for an example is shown "s/ examples"
    assert re.search(r"14/14 .*(examples/s|s/ examples)", written.decode()), written
    # not in a file
    assert "%" not in run([*line[:3], "again"]).err
