"""Build a folder of generated images on an engine, in a process that can be killed and repeated."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from tests.durability.commands import identity
from tests.pictures import image_file

from .processes import Service, python_path, start

NUM_IMAGES = 200
NUM_BAD = 5
NUM_SHARDS = 16
# the files that are rejected
BAD = "cat/bad-*"
# Beam's Java side waits for minutes for the data connection of a worker that died.
BUILD_SECONDS = 300


def write_images(folder: Path) -> Path:
    """Write images that take long to re-encode (0.07 s each), and a few files that are rejected."""
    noise = np.random.default_rng(0).integers(0, 4, (420, 420, 1), dtype=np.uint8)
    rows, columns = np.mgrid[0:420, 0:420]
    picture = np.stack([rows // 2, columns // 2, (rows + columns) // 4], -1).astype(np.uint8) ^ noise
    for number in range(NUM_IMAGES):
        file = image_file(np.roll(picture, number, axis=0), "BMP")
        path = folder / ("cat", "dog")[number % 2] / f"{number:03}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file)
    for number in range(NUM_BAD):
        (folder / "cat" / f"bad-{number}.bmp").write_bytes(b"no image")
    return folder


@contextmanager
def building(source, out, logs, beam_args, *, with_rejects) -> Iterator[Service]:
    """Run ``tfshards build``; kill it at the end of the block.

    A build with rejects submits two jobs: the second one balances the shards again.
    """
    excluded = () if with_rejects else ("--exclude", BAD)
    build = ["build", "images", source, out, f"--shards={NUM_SHARDS}", "--max-rejected=10%", *excluded]
    service = start(
        "build", [sys.executable, "-m", "tfshards", *build, "--", *beam_args], logs, python_path()
    )
    try:
        yield service
    finally:
        service.kill()


def wait_for_some(service: Service, out: Path) -> dict[str, tuple[int, int]]:
    """Wait until some, but not all, shards are finished; return these."""
    service.wait_until(lambda: len(finished(out)) >= 4, BUILD_SECONDS)
    found = finished(out)
    assert len(found) < NUM_SHARDS, "the build is too fast to be disturbed"
    return found


def finished(out: Path) -> dict[str, tuple[int, int]]:
    """Return the shards that a build has finished, by their names; others have a temporary name."""
    found = {}
    # files and folders are removed meanwhile; the next look finds the others
    with suppress(FileNotFoundError):
        for path in out.rglob("*.tfrecord-?????-of-?????"):
            found[path.name] = identity(path)
    return found


def contents(root: Path) -> dict[str, bytes]:
    """Return the bytes of every file in a folder, by path."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}
