"""What the engines need is fetched once, also after an interruption, and outside of the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.setup_engines import engines_folder, fetching

SCRIPT = Path(__file__).with_name("setup_engines.py")


def fetch(path: Path) -> bool:
    """Fetch a folder; return whether it was missing."""
    with fetching(path) as partial:
        if partial:
            partial.mkdir()
            (partial / "jars").mkdir()
            (partial / "jars").rename(path)
        return partial is not None


def fetch_half(path: Path) -> None:
    with fetching(path) as partial:
        partial.mkdir()
        (partial / "half").touch()
        raise KeyboardInterrupt


def test_what_is_there_is_not_fetched_again(tmp_path):
    assert fetch(tmp_path / "engine")
    assert not fetch(tmp_path / "engine")


def test_an_interrupted_step_is_done_again(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fetch_half(tmp_path / "engine")
    assert not (tmp_path / "engine").exists()
    assert fetch(tmp_path / "engine")
    assert list((tmp_path / "engine").iterdir()) == []


def test_a_step_without_its_program_names_the_program(tmp_path):
    environment = {"PATH": str(tmp_path), "TFSHARDS_ENGINES": str(tmp_path / "cache")}
    # fmt: off
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "spark"], env=environment, capture_output=True, text=True
    )
    # fmt: on
    assert done.returncode == 1
    assert done.stderr == "mvn is not installed, and this step needs it\n"


def test_the_folder_is_in_the_home_folder_unless_the_environment_names_another(monkeypatch, tmp_path):
    monkeypatch.delenv("TFSHARDS_ENGINES", raising=False)
    assert engines_folder() == Path.home() / ".cache" / "tfshards-engines"
    monkeypatch.setenv("TFSHARDS_ENGINES", str(tmp_path))
    assert engines_folder() == tmp_path
