"""Each room is imported with the packages blocked that it must not import; pyproject.toml has the layers."""

import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from PIL import Image

from tfshards import prep
from tfshards.prep import build

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
