"""The package: what its rooms import, what its archives hold, and what runs without parts of this system."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import metadata, packages_distributions, requires
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tfshards import prep
from tfshards.prep import Arrays, build

ROOT = Path(__file__).parents[1]

BLOCKING = """
import importlib.abc, sys
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r} or name in {blocked!r}:
            raise ModuleNotFoundError("blocked: " + name, name=name)
sys.meta_path.insert(0, Blocked())
"""


def test_schemas_import_only_the_base_installation():
    modules = ", ".join(f"tfshards.schemas.{path.stem}" for path in (ROOT / "schemas").glob("[a-z]*.py"))
    blocked = installed() - {"numpy", "google_crc32c", "google"} | {"tfshards.prep", "tfshards.loader"}
    assert {"tensorflow", "apache_beam", "PIL", "tqdm"} <= blocked
    assert run_without(blocked, f"import {modules}") == ""


# What "pip install tfshards" installs.
BASE = {"numpy", "google_crc32c", "google", "tqdm"}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder with a dataset of images, ``data``."""
    folder = tmp_path_factory.mktemp("photos")
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (4, 3)).save(folder / "photos" / name / "1.png")
    build(prep.ImageFolder(folder / "photos"), folder / "data", shards=2)
    return folder


def test_datasets_are_read_with_the_base_installation(photos):
    code = """
from functools import partial
from tfshards import prep
from tfshards.command import VERBS
from tfshards.prep.cli.main import main as of_verbs
main = partial(of_verbs, verbs=VERBS)
assert prep.verify("data", deep=True)
assert prep.diff("data", "data").is_same
for line in ("--help", "info data", "info data --json", "verify data", "verify data --deep",
             "show data", "show data cat/1.png", "diff data data", "generations data", "prune data",
             "verify data --repair"):
    assert main(line.split()) == 0, line
for line in ("verify data --decode", "build images photos other", "plan images photos other", "report data",
             "audit data", "append photos data", "completion bash"):
    assert main(line.split()) == 1, line
try:
    prep.ImageFolder
except ModuleNotFoundError as error:
    print(error)
"""
    done = run_without(installed() - BASE, code, photos, capture_stderr=True)
    assert "image: PNG, " in done.stdout, done.stdout
    assert "key: cat/1.png" in done.stdout
    assert done.stdout.endswith("images need PIL: pip install 'tfshards[prep]'\n")
    errors = [line for line in done.stderr.splitlines() if line.startswith("tfshards: ")]
    assert errors == ["tfshards: images need PIL: pip install 'tfshards[prep]'"] * 6 + [
        "tfshards: completion needs shtab: pip install 'tfshards[prep]'"
    ]
    assert "Traceback" not in done.stderr


def installed():
    return set(packages_distributions()) - {"tfshards"}


def test_prep_builds_reads_and_verifies_without_tensorflow(tmp_path):
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (3, 3)).save(tmp_path / "photos" / "1.png")
    code = """
import numpy as np
from tfshards.prep import Arrays, ImageFolder, build, verify
from tfshards.prep.cli import main as cli
from tfshards.command import VERBS
numbers = Arrays({"x": np.arange(4)})
build(ImageFolder("photos"), "images")
build(numbers, "arrays", beam_args=["--runner=DirectRunner"])
for out in ("images", "arrays"):
    assert verify(out, deep=True)
    assert cli.main(["show", out, {"images": "1.png", "arrays": "3"}[out]], VERBS) == 0
"""
    shown = run_without({"tensorflow", "keras", "ml_dtypes", "tfshards.loader"}, code, tmp_path)
    assert "image: PNG 3 x 3" in shown
    assert "x: int64 []: 3" in shown


def test_prep_builds_on_threads_and_derives_without_beam(tmp_path):
    code = """
import numpy as np
from tfshards.prep import Arrays, reshard
from tfshards.prep.building.build import build
build(Arrays({"x": np.arange(9)}), "one")
print(len(reshard("one", "other", shards=3).shards))
"""
    assert run_without({"apache_beam", "tensorflow", "tfshards.loader"}, code, tmp_path) == "3\n"


def run_without(blocked, code, folder=None, *, capture_stderr=False):
    """Return what code prints in a process that cannot import the blocked packages, or both streams."""
    program = BLOCKING.format(blocked=blocked) + code
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done if capture_stderr else done.stdout


# The installed package: the rooms under one name, their extras, the command


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Wheel and sdist of the files that git tracks, in a folder of their own."""
    return build_archives(tmp_path_factory.mktemp("archives"), umask=0o022)


def build_archives(folder, *, umask, backwards=False):
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


@pytest.mark.processes
def test_wheel_and_sdist_are_the_same_bytes_in_another_folder_with_another_umask(archives, tmp_path):
    before = os.umask(0o077)
    try:
        others = build_archives(tmp_path, umask=0o077, backwards=True)
    finally:
        os.umask(before)
    assert set(archives) == {"whl", "gz"}
    assert {suffix: path.read_bytes() for suffix, path in archives.items()} == {
        suffix: path.read_bytes() for suffix, path in others.items()
    }


@pytest.mark.processes
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


@pytest.mark.processes
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


# The core runs without what other operating systems lack


# What macOS does not have.
WITHOUT = """
import os
for name in ("sched_getaffinity", "posix_fadvise"):
    delattr(os, name)
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    "code",
    [
        """
from tfshards.command import VERBS
from tfshards.prep.cli.main import main
for line in ("info data", "verify data --deep", "show data 3", "diff data data", "generations data"):
    assert main(line.split(), VERBS) == 0, line
""",
        """
from tfshards import loader
for options in ({}, {"shuffle": loader.Shuffle(seed=1)}, {"cache": "disk:cache, 1MB"}):
    batches = loader.load("data", "train", batch_size=5, **options)
    assert sorted(int(x) for batch in batches for x in batch["x"]) == [*range(20)]
""",
        """
import numpy as np
from tfshards import prep
made = prep.build(prep.Arrays({"x": np.arange(20)}), "other", shards=3)
assert prep.verify("other", deep=True)
""",
    ],
    ids=["verbs", "loader", "builds"],
)
def test_the_core_runs_without_what_other_systems_lack(code, tmp_path):
    build(Arrays({"x": np.arange(20)}), tmp_path / "data", shards=3)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.processes
def test_a_download_without_links_and_without_git_is_complete(tmp_path):
    with zipfile.ZipFile(tmp_path / "main.zip", "w") as archive:
        for room in ("src", "prep", "loader", "schemas"):
            for path in (ROOT / room).rglob("*"):
                if path.is_symlink():
                    # as some programs unpack a link
                    archive.writestr(str(path.relative_to(ROOT)), os.readlink(path))
                elif "__pycache__" not in path.parts:
                    archive.write(path, path.relative_to(ROOT))
    with zipfile.ZipFile(tmp_path / "main.zip") as archive:
        archive.extractall(tmp_path / "main")
    code = "import tfshards.prep, tfshards.loader, tfshards.command; print(tfshards.prep.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "main" / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == f"{tmp_path / 'main' / 'prep' / '__init__.py'}\n", done.stderr
