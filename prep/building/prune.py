"""Remove files of earlier and unfinished builds that the dataset does not need."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfshards.prep.building.decisions import unneeded_files
from tfshards.prep.building.output import locked
from tfshards.prep.building.output_state import inspect_output
from tfshards.prep.writing.area import AREA_NAME
from tfshards.schemas import InputError
from tfshards.schemas.files import local_path


@dataclass(frozen=True)
class Pruned:
    """A file that was removed, or all build areas together.

    Attributes:
        path: path relative to the dataset's folder.
        num_bytes: bytes that became free; 0 for a file that has another hard link.
    """

    path: str
    num_bytes: int


def prune(dataset: str | os.PathLike[str], *, dry_run: bool = False) -> list[Pruned]:
    """Remove the files in a dataset's folder that the dataset does not need, and return them.

    These are the shards, indexes, labels and rejects of earlier builds and of unfinished ones, the build
    areas that unfinished builds resume from, and temporary files of killed processes. No other file is
    removed. Do not prune while training still reads an earlier build of the dataset.

    Args:
        dataset: folder of a dataset, or of a build that was not committed.
        dry_run: only return what would be removed.

    Raises:
        OptionsError: the path is a URL.
        InputError: the folder holds neither a dataset nor an unfinished build, or a build is running.
        FormatError: the manifest cannot be read, so that the files of the dataset are not known.
    """
    folder = local_path(dataset)
    nothing = InputError(f"{folder} holds neither a dataset nor an unfinished build; nothing was removed")
    if not folder.is_dir():
        raise nothing
    with locked(folder):
        state = inspect_output(folder)
        if state.fault:
            raise state.fault
        if state.manifest is None and not state.has_area:
            raise nothing
        area = folder / AREA_NAME
        files = unneeded_files(state)
        inside = sorted(path for path in area.rglob("*") if not path.is_dir() or path.is_symlink())
        sizes = _sizes([*files, *inside])
        found = [Pruned(path.relative_to(folder).as_posix(), sizes[path]) for path in files]
        if state.has_area:
            found.append(Pruned(f"{AREA_NAME}/", sum(sizes[path] for path in inside)))
        if not dry_run:
            # the area last: after a crash it shows which shards were never committed
            for path in files:
                path.unlink()
            if state.has_area:
                shutil.rmtree(area)
            with suppress(OSError):
                # empty if nothing was ever committed
                (folder / "index").rmdir()
    return found


def _sizes(paths: Sequence[Path]) -> dict[Path, int]:
    """Return how many bytes each path frees if the paths are removed in this order."""
    status = {path: path.lstat() for path in paths}
    gone: Counter[tuple[int, int]] = Counter()
    sizes = {}
    for path, found in status.items():
        gone[found.st_dev, found.st_ino] += 1
        is_last = gone[found.st_dev, found.st_ino] == found.st_nlink
        sizes[path] = found.st_size if is_last else 0
    return sizes
