"""What the tests of durability share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .commands import Commands


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users may read, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def commands(open_path: Path) -> Iterator[Commands]:
    """Runs commands that can be killed, or have no rights."""
    started = Commands.start(open_path)
    yield started
    started.close()
