"""The installed package: the rooms under one name, their extras, the command."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import metadata, requires
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Wheel and sdist of the files that git tracks, in a folder of their own."""
    return build(tmp_path_factory.mktemp("archives"), umask=0o022)


def build(folder, *, umask, backwards=False):
    """Copy what git tracks, and build it; return the archives by suffix."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in tracked.stdout.split("\0") if name and os.path.lexists(ROOT / name)]
    for name in reversed(names) if backwards else names:
        (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / "clone" / name, follow_symlinks=False)
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(
        command, cwd=folder / "clone", umask=umask, env=environment, check=True, capture_output=True
    )
    return {path.suffix.strip("."): path for path in folder.iterdir() if path.is_file()}


def test_wheel_and_sdist_are_the_same_bytes_in_another_folder_with_another_umask(archives, tmp_path):
    before = os.umask(0o077)
    try:
        others = build(tmp_path, umask=0o077, backwards=True)
    finally:
        os.umask(before)
    assert set(archives) == {"whl", "gz"}
    assert {suffix: path.read_bytes() for suffix, path in archives.items()} == {
        suffix: path.read_bytes() for suffix, path in others.items()
    }


def test_the_sdist_holds_what_a_build_needs_and_nothing_else(archives):
    with tarfile.open(archives["gz"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    outside = {name for name in names if name.split("/")[0] not in ("prep", "loader", "schemas")}
    own = ("__init__.py", "__main__.py", "command.py", "py.typed")
    root = {f"src/tfshards/{name}" for name in own}
    texts = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md"}
    # Hatchling reads .gitignore, and PKG-INFO is the metadata of an sdist.
    assert outside == root | texts | {".gitignore", "PKG-INFO"}
    with zipfile.ZipFile(archives["whl"]) as archive:
        packed = {name.removeprefix("tfshards/") for name in archive.namelist() if ".dist-info/" not in name}
    assert len(packed) == len(names) - len(texts) - 2
    assert packed == {name.removeprefix("src/tfshards/") for name in names - texts} - {
        ".gitignore",
        "PKG-INFO",
    }


def test_prep_needs_no_tensorflow_and_loader_no_beam():
    needed = {extra: set() for extra in metadata("tfshards").get_all("Provides-Extra")}
    for requirement in requires("tfshards"):
        name, _, marker = requirement.partition(";")
        for extra in needed:
            if f'extra == "{extra}"' in marker or f"extra == '{extra}'" in marker:
                needed[extra].add(re.match(r"[\w-]+", name.strip())[0])
    assert {"apache-beam", "pillow", "pyarrow"} <= needed["prep"]
    assert "tensorflow" not in needed["prep"]
    assert needed["loader"] == {"tensorflow"}
    base = {re.match(r"[\w-]+", text)[0] for text in requires("tfshards") if "extra ==" not in text}
    assert base == {"numpy", "google-crc32c", "protobuf", "tqdm"}
