"""Fixtures for all tests."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

# TensorFlow checks every tf.data function for oneDNN, which takes half of the time before the first batch of
# a small dataset. The variable also applies to the processes that tests start.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import pytest
from hypothesis import HealthCheck, settings

from tests.campaigns import SCALE, SEED
from tests.programs import Programs

if TYPE_CHECKING:
    from tests.storage.conftest import RunningServers

# The number of examples is bounded, not their time, so that a busy machine fails no test. make test draws the
# same ones each time.
settings.register_profile(
    "tfshards",
    max_examples=400 if SCALE else 25,
    derandomize=not SCALE,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tfshards")


def pytest_configure(config: pytest.Config) -> None:
    """Let ``make test`` write its temporary files in memory, if 4 GB fit there.

    Builds wait until the disk has what they write, tens of thousands of times in the tests. A test that runs
    alone leaves its files on the disk, where they can be looked at.
    """
    if SCALE or not config.getoption("numprocesses", None):
        return
    with suppress(OSError):
        space = os.statvfs("/dev/shm")
        if space.f_bavail * space.f_frsize < 4 << 30:
            return
        folder = tempfile.mkdtemp(prefix="tfshards.", dir="/dev/shm")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        # as /tmp, for tests that run programs as another user
        os.chmod(folder, 0o1777)
        program = shutil.copy(shutil.which("true") or "true", folder)
        if subprocess.run([program]).returncode == 0:
            os.environ["TMPDIR"] = tempfile.tempdir = folder


def pytest_report_header() -> str | None:
    """Show how a campaign is repeated."""
    return f"SCALE={SCALE:g} SEED={SEED}" if SCALE else None


@pytest.fixture(autouse=True, scope="module")
def _few_collections() -> None:
    """Exclude the objects that TensorFlow has imported from garbage collection while graphs are made."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session")
def programs() -> Iterator[Programs]:
    """Start programs that use TensorFlow, in processes that need not import it."""
    programs = Programs(["tensorflow", "tfshards.loader", "tfshards.prep"])
    yield programs
    programs.close()


@pytest.fixture(scope="session")
def running_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServers]:
    """Run the object stores that tests ask for until the end of the session."""
    from tests.storage.conftest import RunningServers

    with ExitStack() as stack:
        yield RunningServers(tmp_path_factory.mktemp("servers"), stack)


@pytest.fixture(autouse=True, scope="session")
def interrupts() -> Iterator[None]:
    """Let Ctrl-C interrupt this process and its children, though a shell's background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
