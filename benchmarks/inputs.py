"""What several benchmarks read: copies of photos, arrays of 784 bytes, and datasets of both."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

SHARDS = 16
_SUFFIXES = (".jpg", ".jpeg", ".png")


def copy_photos(photos: Path, target: Path, copies: int) -> Path:
    """Copy the photos into ``target``, one folder per class, ``copies`` times under different names."""
    found = sorted(path for path in photos.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
    if not found:
        raise SystemExit(f"--photos {photos}: no {', '.join(_SUFFIXES)} in it")
    for path in found:
        folder = target / ("-".join(path.parent.relative_to(photos).parts) or "all")
        folder.mkdir(parents=True, exist_ok=True)
        for copy in range(copies):
            shutil.copyfile(path, folder / f"{path.stem}-{copy}{path.suffix}")
    return target


def write_arrays(folder: Path, count: int) -> list[str]:
    """Write random images of 28 x 28 bytes and labels below 10; return the paths of both files."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(0)
    np.save(folder / "image.npy", random.integers(0, 256, (count, 28, 28), dtype=np.uint8))
    np.save(folder / "label.npy", random.integers(0, 10, count))
    return [str(folder / "image.npy"), str(folder / "label.npy")]


def tfshards(*words: object) -> list[str]:
    """Return the command ``tfshards WORDS`` of this interpreter."""
    return [sys.executable, "-m", "tfshards", *map(str, words)]


def build(*words: object, shards: int = SHARDS) -> None:
    """Run ``tfshards build WORDS``."""
    command = tfshards("build", *words, "--shards", shards, "--quiet")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def size_of(folder: Path) -> tuple[int, int]:
    """Return how many files are below a folder, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)
