"""Fixtures for the tests of ``prep``: small inputs on disk, a quiet build, the contents of a folder."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.pictures import STAMP, small_png, write
from tests.reported import logged
from tfshards.prep import Table, build
from tfshards.schemas import Manifest

from .derived import build_images

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

MakeFolder = Callable[..., Path]
Contents = Callable[[Path], dict[str, bytes]]
Build = Callable[..., Manifest]


@pytest.fixture
def image_folder(tmp_path: Path) -> MakeFolder:
    """Write files and return their folder: a number becomes a small PNG, bytes are written unchanged.

    A name that ends with ``/`` is an empty folder.
    """

    def make(files: Mapping[str, int | bytes], name: str = "photos") -> Path:
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        for relative, content in files.items():
            if relative.endswith("/"):
                (root / relative).mkdir(parents=True)
            else:
                write(root / relative, small_png(content) if isinstance(content, int) else content)
        return root

    return make


@pytest.fixture
def small_folder(image_folder: MakeFolder) -> Path:
    """Thirteen images of two classes."""
    return image_folder({f"{('cat', 'dog')[number % 2]}/{number:02d}.png": number for number in range(13)})


@pytest.fixture
def array_files(tmp_path: Path) -> Callable[..., list[str]]:
    """Write arrays to ``NAME.npy`` with a fixed modification time; return ``NAME=PATH`` for each."""

    def make(**arrays: np.ndarray) -> list[str]:
        arguments = []
        for name, array in arrays.items():
            path = tmp_path / f"{name}.npy"
            np.save(path, array)
            os.utime(path, ns=(STAMP, STAMP))
            arguments.append(f"{name}={path}")
        return arguments

    return make


@pytest.fixture
def log() -> list[str]:
    """The status lines of ``quiet_build``."""
    return []


@pytest.fixture
def quiet_build(log: list[str]) -> Build:
    """``build``, except that its status lines go to ``log``."""

    def run(*args: object, **options: object) -> Manifest:
        return logged(build, log.append)(*args, **options)

    return run


@pytest.fixture
def build_table(quiet_build: Build, tmp_path: Path) -> Build:
    """Build a table, by default with its defaults into the folder ``out``, and return the manifest."""

    def run(source, name="out", build=None, **given) -> Manifest:
        return quiet_build(Table(source, **given), tmp_path / name, **(build or {}))

    return run


@pytest.fixture
def contents() -> Contents:
    """Return a function from a folder to the bytes of its files, including hidden ones, by relative path."""

    def read(root: Path) -> dict[str, bytes]:
        return {
            p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()
        }

    return read


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 60 images in three splits of three shards, and two that are rejected."""
    folder = tmp_path_factory.mktemp("images")
    build_images(folder)
    return folder / "old"


@pytest.fixture
def root(origin: Path, tmp_path: Path) -> Path:
    """A copy of ``origin``, which a test may change."""
    return Path(shutil.copytree(origin, tmp_path / "old"))
