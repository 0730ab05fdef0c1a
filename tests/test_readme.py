"""Every command and every piece of Python in the README runs unchanged."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.tables import mostly_nightly

README = Path(__file__).parents[1] / "README.md"
# each with its language
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```$", README.read_text(), re.M | re.S)
# other tests build on this runner, too, which takes seconds to start
HERE = [block for block in BLOCKS if "DirectRunner" not in block[1]]


@pytest.fixture
def folder(tmp_path_factory):
    """A folder with the photos and arrays of the README."""
    folder = tmp_path_factory.mktemp("readme")
    random = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(40):
            pixels = random.integers(0, 256, (72, 96, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{number:04d}.jpg")
    names = sorted(path.relative_to(folder / "photos") for path in folder.glob("photos/*/*.jpg"))
    rows = [f'{name},{name.parent},"a {name.parent}, from the side"' for name in names]
    (folder / "photos" / "metadata.csv").write_text("\n".join(["file_name,label,caption", *rows]))
    np.save(folder / "images.npy", random.integers(0, 256, (50, 8, 8), dtype=np.uint8))
    np.save(folder / "labels.npy", np.arange(50) % 5)
    return folder


@pytest.mark.parametrize("blocks", mostly_nightly([HERE, BLOCKS], [HERE]), ids=["here", "all"])
def test_every_block_of_the_readme_runs_in_order(programs, folder, blocks):
    assert len(BLOCKS) >= 6
    assert len(HERE) == len(BLOCKS) - 1
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for language, block in blocks:
        if language == "sh":
            command = ["bash", "-euc", block]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        else:
            done = programs.run(["-c", block], cwd=folder)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr


def test_the_links_of_the_readme_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target


@pytest.mark.nightly
def test_make_demo_reaches_an_accuracy_above_90_percent(tmp_path):
    root = README.parent
    copy = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(root), str(copy)], check=True)
    # uses the existing environment; the check from a clean checkout makes a new one
    venv = Path(sys.executable).parents[1]
    command = ["make", "demo", f"VENV={venv}", "-o", str(venv / ".installed")]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    accuracy = re.search(r"^accuracy: (0\.\d+)", done.stdout, re.M)
    assert accuracy, done.stdout
    assert float(accuracy[1]) > 0.9
