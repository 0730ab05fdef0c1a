"""The installed package: the rooms under one name, their extras, the command."""

import re
import subprocess
import sys
import zipfile
from importlib.metadata import metadata, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(copy)], check=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_its_three_rooms_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    rooms = {name.split("/")[1] for name in names if name.startswith("tfshards/")}
    assert tops == {"tfshards"}
    assert rooms == {"prep", "loader", "schemas", "__init__.py", "__main__.py", "command.py", "py.typed"}
    assert {f"tfshards/{room}/py.typed" for room in ("prep", "loader", "schemas")} <= set(names)


def test_every_module_of_the_tree_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "prep", "loader", "schemas"], cwd=ROOT, capture_output=True, text=True
    )
    suffixes = (".py", ".html", ".css", ".js")
    modules = {f"tfshards/{name}" for name in tracked.stdout.split() if name.endswith(suffixes)}
    assert modules
    assert modules <= packed


@pytest.mark.parametrize("where", ["an empty folder", "a clone"])
def test_the_unpacked_wheel_can_be_imported_anywhere(wheel, tmp_path, where):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    folder = ROOT if where == "a clone" else tmp_path
    code = "import tfshards.prep, tfshards.schemas as s; print(s.__file__)"
    # -S leaves out the editable install of the tree; site-packages are added explicitly
    packages = [path for path in sys.path if path.endswith("site-packages")]
    environment = {"PYTHONPATH": ":".join([str(tmp_path), *packages])}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, env=environment, cwd=folder
    )
    assert done.stdout.strip() == str(tmp_path / "tfshards" / "schemas" / "__init__.py"), done.stderr


def test_python_m_tfshards_runs_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "tfshards", "bild"], capture_output=True, text=True, cwd=ROOT / "tests"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("tfshards: argument COMMAND: invalid choice: 'bild'"), done.stderr


def test_prep_needs_no_tensorflow_and_loader_no_beam():
    needed = {extra: set() for extra in metadata("tfshards").get_all("Provides-Extra")}
    for requirement in requires("tfshards"):
        name, _, marker = requirement.partition(";")
        for extra in needed:
            if f'extra == "{extra}"' in marker or f"extra == '{extra}'" in marker:
                needed[extra].add(re.match(r"[\w-]+", name.strip())[0])
    assert {"apache-beam", "pillow", "tqdm"} <= needed["prep"]
    assert "tensorflow" not in needed["prep"]
    assert needed["loader"] == {"tensorflow"}
