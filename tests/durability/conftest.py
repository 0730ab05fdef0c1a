"""Fixtures for the durability tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs import Programs

from .commands import Commands

# what commands import when they need it
MODULES = (
    "numpy.ma",
    "tfshards.prep.building.build",
    "tfshards.prep.cli.main",
    "tfshards.prep.deriving.append",
    "tfshards.prep.deriving.edit",
    "tfshards.prep.engines.beam",
    "tfshards.prep.engines.local",
    "tfshards.prep.sources.table",
)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users may read, unlike the temporary folders of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def forks() -> Iterator[Programs]:
    """Fork the processes of commands, with the modules that they import."""
    forks = Programs(MODULES)
    yield forks
    forks.close()


@pytest.fixture
def commands(forks: Programs, open_path: Path) -> Commands:
    """Runs commands that can be killed, or that run without the rights of root."""
    return Commands(open_path, forks)
