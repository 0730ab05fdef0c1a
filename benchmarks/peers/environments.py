"""An environment for each tool, made once by uv from the configured package index, with exact versions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

UV = "uv==0.13.8"
# From PyPI this wheel brings CUDA's libraries, 5 GB on disk, which uv links into all environments from one
# copy. An index with CPU wheels may be given in UV_EXTRA_INDEX_URL.
TORCH = "torch==2.15.0"


@dataclass(frozen=True)
class Tool:
    """A tool of the shoot-out.

    Attributes:
        title: its name in tables.
        reader: its module in this folder.
        requirements: what is installed; nothing for tfshards, which runs in the environment of this script.
    """

    title: str
    reader: str
    requirements: tuple[str, ...]


_DATASETS = ("datasets==5.2.0", "torchdata==0.11.0", TORCH)
TOOLS = {
    "tfshards": Tool("tfshards", "read_tfshards", ()),
    "grain": Tool("Grain, ArrayRecord", "read_grain", ("grain==0.2.18", "array-record==0.8.6")),
    "mds": Tool("MosaicML streaming", "read_mds", ("mosaicml-streaming==0.13.0", TORCH)),
    "litdata": Tool("litData", "read_litdata", ("litdata==0.2.76", TORCH)),
    "datasets": Tool("HF datasets, shuffle buffer", "read_datasets", _DATASETS),
    "datasets-map": Tool("HF datasets by index, torchdata", "read_datasets_map", _DATASETS),
}


def python_of(tool: Tool, cache: Path) -> Path:
    """Return the interpreter of a tool's environment, which is made in ``cache`` if it is not there."""
    if not tool.requirements:
        return Path(sys.executable)
    name = "-".join(tool.requirements).replace("==", "-")
    environment = cache / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    if not (environment / ".installed").exists():
        shutil.rmtree(environment, ignore_errors=True)
        print(f"installing {' '.join(tool.requirements)}", file=sys.stderr)
        python = str(environment / "bin" / "python")
        uv = _uv(cache)
        for command in (
            [uv, "venv", "-q", "--python", sys.executable, str(environment)],
            [uv, "pip", "install", "-q", "--python", python, *tool.requirements],
        ):
            subprocess.run(command, check=True, env={**os.environ, "UV_CACHE_DIR": str(cache / "uv")})
        (environment / ".installed").touch()
    return environment / "bin" / "python"


def _uv(cache: Path) -> str:
    environment = cache / UV.replace("==", "-")
    if not (environment / "bin" / "uv").exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([str(environment / "bin" / "pip"), "install", "-q", UV], check=True)
    return str(environment / "bin" / "uv")
