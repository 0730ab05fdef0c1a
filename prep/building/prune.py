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
from tfshards.schemas.storage import AnyPath, RemotePath, any_path, in_flight, name_below
from tfshards.schemas.storage.uploads import abort_uploads


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

    In an object store, the parts of uploads that killed builds left are removed as well. There are no locks:
    do not prune while a build of this dataset runs, whose files would be removed.

    Args:
        dataset: folder of a dataset, or of a build that was not committed, or its URL.
        dry_run: only return what would be removed.

    Raises:
        OptionsError: the path is a URL of a store that is not supported.
        InputError: the folder holds neither a dataset nor an unfinished build, or a build is running.
        FormatError: the manifest cannot be read, so that the files of the dataset are not known.
    """
    folder = any_path(dataset)
    nothing = InputError(f"{folder} holds neither a dataset nor an unfinished build; nothing was removed")
    if isinstance(folder, Path) and not folder.is_dir():
        raise nothing
    with locked(folder):
        state = inspect_output(folder)
        if state.fault:
            raise state.fault
        if state.manifest is None and not state.has_area:
            raise nothing
        area = folder / AREA_NAME
        files = unneeded_files(state)
        inside, sizes = _sizes(files, area)
        found = [Pruned(name_below(path, folder), sizes[path]) for path in files]
        if state.has_area:
            found.append(Pruned(f"{AREA_NAME}/", inside))
        if not dry_run and isinstance(folder, RemotePath):
            _remove_objects(folder, files)
        elif not dry_run:
            # the area last: after a crash it shows which shards were never committed
            for path in files:
                path.unlink()
            if state.has_area:
                shutil.rmtree(str(area))
            with suppress(OSError):
                # empty if nothing was ever committed
                (folder / "index").rmdir()
    return found


def _remove_objects(folder: RemotePath, files: Sequence[AnyPath]) -> None:
    try:
        for _ in in_flight(_unlink, files):
            pass
        (folder / AREA_NAME).remove_tree()
        abort_uploads(folder)
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from error


def _unlink(path: AnyPath) -> None:
    path.unlink()


def _sizes(files: Sequence[AnyPath], area: AnyPath) -> tuple[int, dict[AnyPath, int]]:
    """Return how many bytes the areas free if they are removed after the files, and how many each file."""
    if isinstance(area, RemotePath):
        found = {path: status.st_size for path, status in area.parent.walk()}
        return sum(size for path, size in found.items() if area in path.parents), {
            path: found.get(path, 0) for path in files if isinstance(path, RemotePath)
        }
    inside = sorted(path for path in area.rglob("*") if not path.is_dir() or path.is_symlink())
    status = {path: os.lstat(str(path)) for path in (*files, *inside)}
    gone: Counter[tuple[int, int]] = Counter()
    sizes: dict[AnyPath, int] = {}
    for path, one in status.items():
        gone[one.st_dev, one.st_ino] += 1
        is_last = gone[one.st_dev, one.st_ino] == one.st_nlink
        sizes[path] = one.st_size if is_last else 0
    return sum(sizes[path] for path in inside), sizes
