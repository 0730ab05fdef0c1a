"""Fixtures for tests that end commands: the inputs, and processes that can be killed."""

from pathlib import Path

import pytest

from tests.durability.conftest import commands, forks, open_path

from .commands import write_inputs

__all__ = ["commands", "forks", "inputs", "open_path"]


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the inputs of all commands."""
    return write_inputs(tmp_path_factory.mktemp("inputs"))
