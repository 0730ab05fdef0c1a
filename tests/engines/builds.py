"""Build a folder of generated images on an engine, in a process that can be watched, killed and repeated."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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


@dataclass
class Build:
    """A command ``tfshards build`` that runs, and which shards it has written so far.

    Attributes:
        service: its process and log.
        out: folder of the dataset.
        started: time at which it was started.
        versions: for each shard, the files that it has been.
        seconds: time until it ended.
    """

    service: Service
    out: Path
    started: float = field(default_factory=time.monotonic)
    versions: dict[str, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    seconds: float = 0.0
    _has_ended: threading.Event = field(default_factory=threading.Event)

    def wait_for_finished(self, number: int) -> dict[str, tuple[int, int]]:
        """Wait until some, but not all, shards are finished; return these."""
        self.service.wait_until(lambda: len(finished(self.out)) >= number, BUILD_SECONDS)
        found = finished(self.out)
        assert len(found) < NUM_SHARDS, "the build is too fast to be disturbed"
        return found

    def wait(self, seconds: float = BUILD_SECONDS) -> int | None:
        """Return the exit status; None if the command has not ended by then."""
        with suppress(subprocess.TimeoutExpired):
            self.service.process.wait(max(0, self.started + seconds - time.monotonic()))
        self.seconds = time.monotonic() - self.started
        return self.service.process.poll()

    def num_written_twice(self, earlier: Build | None = None) -> int:
        """Return how often finished shards were written again, by this command or since an earlier one."""
        before = earlier.versions if earlier else {}
        paths = {*self.versions, *before}
        return sum(len(self.versions.get(path, set()) | before.get(path, set())) - 1 for path in paths)

    def watch(self) -> None:
        """Record the finished shards until the command ends."""
        while not self._has_ended.wait(0.02):
            for path, version in finished(self.out).items():
                self.versions[path].add(version)


@contextmanager
def building(source, out, logs, beam_args, *, with_rejects) -> Iterator[Build]:
    """Run ``tfshards build``, see ``running``.

    A build with rejects submits two jobs: the second one balances the shards again.
    """
    options = [f"--shards={NUM_SHARDS}", "--max-rejected=10%"]
    if not with_rejects:
        options += ["--exclude", BAD]
    # fmt: off
    command = [
        sys.executable, "-m", "tfshards", "build", "images", source, out, *options, "--", *beam_args,
    ]
    # fmt: on
    with running(command, out, logs) as build:
        yield build


@contextmanager
def running(command, out, logs) -> Iterator[Build]:
    """Run a command that writes NUM_SHARDS shards into ``out``; kill it at the end of the block."""
    build = Build(start("build", command, logs, python_path()), out)
    watcher = threading.Thread(target=build.watch)
    watcher.start()
    try:
        yield build
    finally:
        build._has_ended.set()
        watcher.join()
        build.service.kill()


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
