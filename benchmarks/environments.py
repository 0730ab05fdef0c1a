"""An environment for each tool, made once by uv from the configured package index, with exact versions."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

CACHE = Path.home() / ".cache" / "tfshards-peers"
UV = "uv==0.13.8"
# From PyPI this wheel brings CUDA's libraries, 5 GB on disk, which uv links into all environments from one
# copy. An index with CPU wheels may be given in UV_EXTRA_INDEX_URL.
_TORCH = "torch==2.15.0"
_GRAIN = ("grain==0.2.18", "array-record==0.8.6")
_MDS, _LITDATA = ("mosaicml-streaming==0.13.0", _TORCH), ("litdata==0.2.76", _TORCH)
_DATASETS = ("datasets==5.2.0", "torchdata==0.11.0", _TORCH)
# What is installed for each tool; tfshards runs in the environment of the caller.
REQUIREMENTS = {
    "grain": _GRAIN,
    "mds": _MDS,
    "litdata": _LITDATA,
    "datasets": _DATASETS,
    "datasets-map": _DATASETS,
    "webdataset": ("webdataset==1.0.2", "numpy==2.4.6"),
    "tfrecord": ("tfrecord==1.14.6",),
    "views": (
        *{*_GRAIN, *_MDS, *_LITDATA},
        "pillow==12.3.0",
        "webdataset==1.0.2",
    ),
}


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Add the option for the folder of the environments."""
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of environments (%(default)s)")


def python_of(tool: str, cache: Path) -> Path:
    """Return the interpreter of a tool's environment, which is made in ``cache`` if it is not there."""
    requirements = sorted(REQUIREMENTS.get(tool, ()))
    if not requirements:
        return Path(sys.executable)
    cache = cache.expanduser().resolve()
    name = "-".join(requirements).replace("==", "-")
    environment = cache / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    if not (environment / ".installed").exists():
        shutil.rmtree(environment, ignore_errors=True)
        print(f"installing {' '.join(requirements)}", file=sys.stderr)
        python = str(environment / "bin" / "python")
        uv = _uv(cache)
        for command in (
            [uv, "venv", "-q", "--python", sys.executable, str(environment)],
            [uv, "pip", "install", "-q", "--python", python, *requirements],
        ):
            subprocess.run(command, check=True, env={**os.environ, "UV_CACHE_DIR": str(cache / "uv")})
        (environment / ".installed").touch()
    return environment / "bin" / "python"


def found(
    command: list[object], cores: int | None = None, variables: Mapping[str, str] | None = None
) -> list | dict:
    """Return the JSON that a command prints last, which sees only the cores given, and more variables.

    Raises:
        RuntimeError: the command failed; the message ends with the end of its output.
    """
    words = [*map(str, command)]
    # log lines of tools, and threads for all cores of the machine, would only get in the way
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TOKENIZERS_PARALLELISM": "false"}
    environment |= variables or {}
    if cores:
        words = ["taskset", "--cpu-list", f"0-{cores - 1}", *words]
        environment["OMP_NUM_THREADS"] = str(cores)
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _uv(cache: Path) -> str:
    environment = cache / UV.replace("==", "-")
    if not (environment / "bin" / "uv").exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([str(environment / "bin" / "pip"), "install", "-q", UV], check=True)
    return str(environment / "bin" / "uv")
