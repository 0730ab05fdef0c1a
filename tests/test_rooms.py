"""Each room is imported with the packages blocked that it must not import; pyproject.toml has the layers."""

import ast
import re
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
    blocked = installed() - {"numpy", "google_crc32c"} | {"tfshards.prep", "tfshards.loader"}
    assert {"tensorflow", "apache_beam", "PIL", "google", "tqdm"} <= blocked
    assert run_without(blocked, f"import {modules}") == ""


# What "pip install tfshards" installs.
BASE = {"numpy", "google_crc32c", "tqdm"}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder with a dataset of images, ``data``."""
    folder = tmp_path_factory.mktemp("photos")
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (4, 3)).save(folder / "photos" / name / "1.png")
    build(prep.ImageFolder(folder / "photos"), folder / "data", shards=2, log=lambda _: None)
    return folder


def test_datasets_are_read_with_the_base_installation(photos):
    code = """
from tfshards import prep
from tfshards.prep.cli.main import main
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


def test_each_verb_has_its_help_or_names_the_extra_that_it_needs():
    code = """
from tfshards.command import VERBS
from tfshards.prep.cli.main import main
statuses = {verb: main([verb, "--help"], VERBS) for verb in VERBS}
print("\\n", [verb for verb, status in statuses.items() if status])
"""
    done = run_without(installed() - BASE, code, capture_stderr=True)
    failed = done.stdout.splitlines()[-1]
    assert failed == " ['build', 'plan', 'audit']"
    assert done.stderr == "tfshards: images need PIL: pip install 'tfshards[prep]'\n" * 3


def test_a_package_of_no_extra_that_is_missing_is_a_fault():
    code = """
import sys
from tfshards import prep
from tfshards.prep.cli.main import main
sys.modules["tfshards.schemas.digests"] = None
for run in (lambda: prep.verify, lambda: main(["verify", "data"])):
    try:
        run()
    except ModuleNotFoundError as error:
        print(error.name)
"""
    assert run_without(set(), code) == "tfshards.schemas.digests\n" * 2


def installed():
    return set(packages_distributions()) - {"tfshards"}


def test_the_names_of_prep_are_imported_when_they_are_first_used():
    assert set(prep.__all__) <= set(dir(prep))
    assert all(getattr(prep, name) for name in prep.__all__)
    with pytest.raises(AttributeError, match=r"^module 'tfshards\.prep' has no attribute 'bild'$"):
        _ = prep.bild


def test_prep_builds_reads_and_verifies_without_tensorflow(tmp_path):
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (3, 3)).save(tmp_path / "photos" / "1.png")
    code = """
import numpy as np
from tfshards.prep import Arrays, ImageFolder, build, verify
from tfshards.prep.cli import main as cli
numbers = Arrays({"x": np.arange(4)})
for source, out, engine in ((ImageFolder("photos"), "images", "local"), (numbers, "arrays", "beam")):
    build(source, out, engine=engine, log=lambda _: None)
    assert verify(out, deep=True)
    assert cli.main(["show", out, {"images": "1.png", "arrays": "3"}[out]]) == 0
"""
    shown = run_without({"tensorflow", "keras", "ml_dtypes", "tfshards.loader"}, code, tmp_path)
    assert "image: PNG 3 x 3" in shown
    assert "x: int64 []: 3" in shown


def test_prep_builds_on_threads_and_derives_without_beam(tmp_path):
    code = """
import numpy as np
from tfshards.prep import Arrays, reshard
from tfshards.prep.building.build import build
build(Arrays({"x": np.arange(9)}), "one", engine="local", log=lambda _: None)
print(len(reshard("one", "other", shards=3, log=lambda _: None).shards))
"""
    assert run_without({"apache_beam", "tensorflow", "tfshards.loader"}, code, tmp_path) == "3\n"


def run_without(blocked, code, folder=None, *, capture_stderr=False):
    """Return what code prints in a process that cannot import the blocked packages, or both streams."""
    program = BLOCKING.format(blocked=blocked) + code
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done if capture_stderr else done.stdout


# Modules that open files for reading by themselves, since nobody else writes these.
OWN_FILES = {
    "prep/building/preview.py": "what its own processes have measured, and /proc",
    "prep/engines/worker.py": "the token of the build that started it",
    "prep/exporting/write_parts.py": "files that were just written, to flush them",
    "prep/progress/threads.py": "limits of the system",
    "prep/reporting/charts.py": "templates of the package",
    "prep/reporting/report.py": "as before",
    "prep/sources/arrays/mapped.py": "arrays whose headers were read, by their names",
    "prep/sources/elements/spill.py": "its own temporary files",
    "loader/fetching/folder.py": "the file that it has just made, to lock it",
    "loader/training/resume.py": "checkpoints that were just written, to flush them",
    "schemas/errors.py": "tables of the package",
    "schemas/storage/remote_path.py": "objects",
    "schemas/storage/writing.py": "objects",
    "schemas/storage/untrusted.py": "",
}


def test_only_known_files_are_opened_by_other_means_than_those_for_untrusted_ones():
    found = {
        str(path.relative_to(ROOT))
        for room in ("prep", "loader", "schemas")
        for path in (ROOT / room).rglob("*.py")
        if any(map(opens_for_reading, ast.walk(ast.parse(path.read_text()))))
    }
    assert found == OWN_FILES.keys()


def opens_for_reading(node):
    """Return whether an expression opens a file by its name, unlike one in memory or in an archive."""
    if not isinstance(node, ast.Call):
        return False
    call, words = ast.unparse(node.func), [ast.unparse(word) for word in (*node.args, *node.keywords)]
    name = call.rpartition(".")[2]
    if name != "open":
        return name in ("read_bytes", "read_text") or (call == "np.load" and words[0] == "path")
    if call.startswith(("os.", "Image.", "archive.")) or call.endswith(
        ("area.open", "Reader.open", "Arrays.open")
    ):
        return False
    modes = [word for word in words if re.fullmatch("'[rwaxbt+]+'", word)]
    return not modes or "r" in modes[0]
