"""Folders that tfshards makes in a dataset, each with a record that says so; and those for staged files.

Staged files are what workers read in place of a source, such as the rows of a table. They are needed only as
long as a process runs, in a folder ``.staged-`` and 8 hex digits.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from tfshards.schemas import BuildError
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import RECORD_NAME
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.stored import LISTS

_FORMAT = "tfshards build, version 1"
_PREFIX = ".staged-"
_STAGED = re.compile(rf"{re.escape(_PREFIX)}[0-9a-f]{{8}}")


def record_text(name: str, options: Mapping[str, Json], stamps: str = "") -> bytes:
    """Return the content of the first file of a folder, which is named by its owner."""
    record = {"format": _FORMAT, "folder": name, "stamps": stamps, "options": dict(options)}
    return json.dumps(record).encode("ascii")


def has_record_of(folder: AnyPath, name: str) -> bool:
    """Return whether the record in a folder says that tfshards made it with this name."""
    return _start(folder / RECORD_NAME, len(_head(name))) == _head(name)


def _head(name: str) -> bytes:
    return json.dumps({"format": _FORMAT, "folder": name}).encode("ascii")[:-1]


def _start(path: AnyPath, num_bytes: int) -> bytes | None:
    """Return the first bytes of a record, or None if there is none."""
    with suppress(OSError):
        if not path.parent.is_symlink():
            return path.read_whole(LISTS)[:num_bytes]
    return None


def staged_name(run: str) -> str:
    """Return the name of the folder of staged files of a run, which is given by 8 hex digits."""
    return f"{_PREFIX}{run}"


def staging_gone(folder: AnyPath) -> BuildError:
    """Return the error for a folder of staged files that another run has removed."""
    return BuildError(
        f"{folder} is gone: another build of the dataset has begun or ended; only one build may write to it "
        "at a time",
        code="build-overtaken",
    )


def make_staged(folder: AnyPath) -> None:
    """Create a folder of staged files with its record, unless it exists; also the dataset that holds it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.make_folder()
    if not (folder / RECORD_NAME).is_taken():
        (folder / RECORD_NAME).put(record_text(folder.name, {}), folder)
        folder.sync()


@contextmanager
def staged_folder(dataset: AnyPath) -> Iterator[AnyPath]:
    """Yield a folder in a dataset for files that are needed only as long as this process runs."""
    folder = dataset / staged_name(secrets.token_hex(4))
    try:
        make_staged(folder)
        yield folder
    finally:
        folder.delete_tree(RECORD_NAME)


@contextmanager
def unfinished_in(dataset: AnyPath) -> Iterator[AnyPath]:
    """Yield a folder for a file that is about to get its name in a dataset; stores need none."""
    if dataset.is_far:
        yield dataset
        return
    with staged_folder(dataset) as folder:
        yield folder


def is_staged(folder: AnyPath) -> bool:
    """Return whether tfshards made a folder of staged files.

    It may also be empty, or hold only a record that is torn: the power may have failed. It loses nothing when
    it is removed.
    """
    if not _STAGED.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
        return False
    # the folder of a build gets its name when its record is there, which has that name
    if _start(folder / RECORD_NAME, len(_KIND)) == _KIND:
        return True
    # after a power failure, zeros may be in place of what was not written
    starts = [_start(path, len(_KIND)) if RECORD_NAME in path.name else None for path in folder.iterdir()]
    return all(start is not None and _KIND.startswith(start.rstrip(b"\0")) for start in starts)


_KIND = json.dumps({"format": _FORMAT}).encode("ascii")[:-1]


def staged_folders(dataset: AnyPath) -> list[AnyPath]:
    """Return the folders of staged files in a dataset, which a killed process may have left."""
    if not dataset.is_dir():
        return []
    return sorted((path for path in dataset.iterdir() if is_staged(path)), key=str)


def remove_staged(dataset: AnyPath, kept: str = "") -> None:
    """Remove the staged files of killed processes; because of the lock, no other process is running.

    In a store, which has no locks, a pipeline that still runs fails without them.
    """
    for path in staged_folders(dataset):
        if path.name != kept:
            path.delete_tree(RECORD_NAME)
