"""Clean environments that the built wheel is installed into, and what each extra must do in them."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"

# Programs, run in an environment without tests and without a clone; each prints what is compared.
MAKE_PHOTOS = """
from pathlib import Path
from PIL import Image
for name in ("cat", "dog"):
    Path("photos", name).mkdir(parents=True)
    for number in range(6):
        Image.new("RGB", (8, 8), (40 * number, 90, 20)).save(f"photos/{name}/{number}.png")
"""
MAKE_HEIC = """
import pillow_heif
from pathlib import Path
from PIL import Image
pillow_heif.register_heif_opener()
Path("heic/cat").mkdir(parents=True)
for number in range(3):
    Image.new("RGB", (64, 64), (80 * number, 90, 20)).save(f"heic/cat/{number}.heic")
"""
LOAD = """
from tfshards import loader
image = loader.Image(size=(8, 8))
examples = loader.load("data", "train", batch_size=4, select=("image", "label"), image=image)
print(sum(1 for images, labels in examples), "batches of shape", tuple(next(iter(examples))[0].shape))
"""
OPEN_BUCKET = """
from tfshards.schemas import read_manifest
try:
    read_manifest("s3://bucket/data")
except Exception as error:
    print(error)
"""


def new_environment(folder: Path, python: str, extra: str, wheel: Path, others: Sequence[str] = ()) -> Path:
    """Install the wheel with an extra, and others, into a new environment, and return its programs' folder.

    Skips the test, with uv's reason, if this Python cannot be had.
    """
    made = subprocess.run(
        [UV, "venv", "-q", "--python", _interpreter(python), folder], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no Python {python}: {made.stderr.strip().splitlines()[-1].strip()}")
    requirement = f"{wheel}[{extra}]" if extra else str(wheel)
    run([UV, "pip", "install", "-q", "--python", folder / "bin" / "python", requirement, *others])
    run([UV, "pip", "check", "-q", "--python", folder / "bin" / "python"])
    return folder / "bin"


def _interpreter(python: str) -> str:
    # the programs that pyenv puts on PATH only start the versions that were made global
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(versions.glob(f"{python}.*/bin/python"))
    return str(found[-1]) if found else python


def run(command: list[object], where: Path | None = None, status: int = 0, **variables: str) -> str:
    """Run a command without this environment's path of modules; return what it prints to both streams."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    done = subprocess.run(
        [str(part) for part in command], cwd=where, env=environment, capture_output=True, text=True
    )
    assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr
