"""What a command reports, and where: results, errors, status lines, progress, and streams that fail."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest

from tests.errors import raises
from tfshards.prep import Arrays, ImageFolder, build, limited_jobs
from tfshards.prep.cli.main import main
from tfshards.prep.cli.verbs import VERBS
from tfshards.prep.engines import local
from tfshards.prep.progress.lines import Written
from tfshards.prep.progress.threads import num_jobs, num_writers
from tfshards.schemas import OptionsError
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


def test_other_paths_may_start_with_a_tilde(tmp_path):
    for name in ("./~/x", "~nobody-here/x", "a~", "~$draft"):
        assert any_path(name) == local_path(name) == Path(name)
    with raises(OptionsError, "home-not-expanded") as caught:
        build(Arrays({"x": np.arange(4)}), "~/new")
    assert caught.value.remedy
