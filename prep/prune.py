"""Taking away what builds have left in a folder and no dataset needs any more."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfshards.prep.area import AREA_NAME
from tfshards.prep.commit import build_of, generations, temporary_files
from tfshards.prep.output import locked
from tfshards.schemas import MANIFEST_NAME, InputError, Manifest, read_manifest


@dataclass(frozen=True)
class Pruned:
    """A file that was taken away, or the build area as a whole.

    Attributes:
        path: relative to the dataset's directory.
        num_bytes: that became free; 0 for a file that has another name still.
    """

    path: str
    num_bytes: int


def prune(out: str | os.PathLike[str], *, dry_run: bool = False) -> list[Pruned]:
    """Take away what the dataset in ``out`` does not need, and return it.

    That is: shards, indexes, labels and rejects of earlier builds, and of builds that ended before their
    commit; what such builds need to go on; temporary files of killed ones. Nothing else is touched. Training
    that has an earlier build of the dataset open would miss its shards.

    Args:
        out: the dataset's directory, or one in which a build was started and not committed.
        dry_run: only return what would be taken away.

    Raises:
        InputError: there is no dataset and no unfinished build, or a build is under way.
        FormatError: the manifest cannot be read, so that nobody knows what belongs to the dataset.
    """
    folder = Path(out)
    area = folder / AREA_NAME
    if not (folder / MANIFEST_NAME).exists() and not area.is_dir():
        raise InputError(f"{folder} holds neither a dataset nor an unfinished build; nothing is taken away")
    with locked(folder):
        current = read_manifest(folder) if (folder / MANIFEST_NAME).exists() else None
        files = [*_unneeded(folder, current), *temporary_files(folder)]
        inside = sorted(path for path in area.rglob("*") if not path.is_dir() or path.is_symlink())
        sizes = _sizes([*files, *inside])
        found = [Pruned(path.relative_to(folder).as_posix(), sizes[path]) for path in files]
        if area.is_dir():
            found.append(Pruned(f"{AREA_NAME}/", sum(sizes[path] for path in inside)))
        if not dry_run:
            # the area last: after a crash it says which shards were never committed
            for path in files:
                path.unlink()
            if area.is_dir():
                shutil.rmtree(area)
            with suppress(OSError):
                # where nothing was ever committed
                (folder / "index").rmdir()
    return found


def _unneeded(folder: Path, current: Manifest | None) -> Iterator[Path]:
    """Yield the files of other builds; without a manifest, only of those that are known to be unfinished."""
    area = folder / AREA_NAME
    unfinished = {path.name for path in area.iterdir()} if area.is_dir() else set()
    for path in generations(folder, current):
        if current is not None or build_of(path) in unfinished:
            yield path


def _sizes(paths: Sequence[Path]) -> dict[Path, int]:
    """Return how many bytes become free with each path, if they go in this order."""
    status = {path: path.lstat() for path in paths}
    gone: Counter[tuple[int, int]] = Counter()
    sizes = {}
    for path, found in status.items():
        gone[found.st_dev, found.st_ino] += 1
        is_last = gone[found.st_dev, found.st_ino] == found.st_nlink
        sizes[path] = found.st_size if is_last else 0
    return sizes
