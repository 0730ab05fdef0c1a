"""Fixtures for the durability tests."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .commands import TIMEOUT_SECONDS, Commands, start_server


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users may read, unlike the temporary folders of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def server() -> Iterator[subprocess.Popen[str]]:
    """The process that has imported the modules of all commands."""
    server = start_server("tfshards.prep.engines.beam")
    yield server
    server.stdin.close()
    server.wait(TIMEOUT_SECONDS)


@pytest.fixture
def commands(server: subprocess.Popen[str], open_path: Path) -> Commands:
    """Runs commands that can be killed, or that run without the rights of root."""
    return Commands(open_path, server)
