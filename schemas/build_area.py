"""The folder ``.build`` of a dataset: which of its folders tfshards made, and files written by way of them.

Each folder in it holds a record of its own, ``build.json``, which is durable before anything else is written
there. Only a folder with such a record belongs to tfshards; names alone prove nothing, since users have
folders named ``.build`` as well. Whatever is written into a dataset is written here first and then renamed,
so that a killed process leaves unfinished files only where they are known to be its own.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from tfshards.schemas.errors import InputError
from tfshards.schemas.files import sync_directory, write_atomically, write_durably
from tfshards.schemas.json_reader import Json, load_json
from tfshards.schemas.names import ID_PATTERN
from tfshards.schemas.storage import AnyPath, RemotePath
from tfshards.schemas.storage.untrusted import RECORD, open_regular, read_whole

AREA_NAME = ".build"
RECORD_NAME = "build.json"
_FORMAT = "tfshards build area, version 1"
# The area of a plan, and folders for what is needed only as long as a process runs.
_PLAN = re.compile(ID_PATTERN)
_STAGED = re.compile("staged-[0-9a-f]{8}")


def create(folder: AnyPath, options: Mapping[str, Json] | None = None) -> None:
    """Create the folder ``DATASET/.build/NAME`` with a record of the options of a build, unless it exists.

    If there is a folder of this name that tfshards did not make, InputError is raised.
    """
    if isinstance(folder, RemotePath):
        if not is_owned(folder):
            write_record(folder, options or {})
        return
    assert isinstance(folder, Path)
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for each in (folder.parent, folder):
        if not each.is_dir():
            each.mkdir(exist_ok=True)
            # a build that was committed is completed by what is in its area
            sync_directory(each.parent)
    if not is_owned(folder):
        raise foreign(folder)
    if not _is_record(folder / RECORD_NAME, is_whole=True):
        write_record(folder, options or {})


def write_record(folder: AnyPath, options: Mapping[str, Json], placed: str = "") -> None:
    """Write the record of a folder, which must be one of tfshards or empty.

    ``placed`` is the text of the manifest that names what the build moves into the dataset from now on.
    """
    record = {"format": _FORMAT, "folder": folder.name, "options": dict(options), "placed": placed}
    write_atomically(folder / RECORD_NAME, json.dumps(record).encode("ascii"))


def is_owned(folder: AnyPath) -> bool:
    """Return whether tfshards made a folder, according to the record in it.

    The power may have failed before the record was complete: a folder that holds only torn records is one of
    tfshards as well, which loses nothing when it is removed.
    """
    if isinstance(folder, RemotePath):
        with suppress(FileNotFoundError):
            return read_whole(folder / RECORD_NAME, RECORD).startswith(_head(folder))
        return False
    if not (_PLAN.fullmatch(folder.name) or _STAGED.fullmatch(folder.name)):
        return False
    if folder.is_symlink() or not folder.is_dir():
        return False
    record = folder / RECORD_NAME
    if _is_record(record, is_whole=True) or all(
        _is_record(path, is_whole=False) for path in folder.iterdir()
    ):
        return True
    # another process may have written the record, and then a file, since the first look
    return _is_record(record, is_whole=True)


def _head(folder: AnyPath) -> bytes:
    return json.dumps({"format": _FORMAT, "folder": folder.name}).encode("ascii")[:-1]


def _is_record(path: Path, *, is_whole: bool) -> bool:
    head = _head(path.parent)
    try:
        if RECORD_NAME not in path.name or not stat.S_ISREG(os.lstat(path).st_mode):
            return False
        with open_regular(path) as file:
            found = file.read(len(head))
    except FileNotFoundError:
        return False
    # after a power failure, zeros may be in place of what was not written
    return found == head if is_whole else head.startswith(found.rstrip(b"\0"))


def read_record(folder: AnyPath) -> tuple[dict[str, Json], str]:
    """Return the options and the text of the manifest that ``write_record`` wrote; empty if damaged."""
    try:
        record = load_json(read_whole(folder / RECORD_NAME, RECORD))
        options, placed = record["options"], record["placed"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}, ""
    return options if isinstance(options, dict) else {}, placed if isinstance(placed, str) else ""


def has_record(folder: AnyPath) -> bool:
    """Return whether a folder of tfshards has its record; otherwise there is nothing in it."""
    return not isinstance(folder, Path) or _is_record(folder / RECORD_NAME, is_whole=True)


def areas(dataset: AnyPath) -> list[AnyPath]:
    """Return the build areas of a dataset, sorted; those that tfshards did not make are left out."""
    return [path for path in _entries(dataset) if _PLAN.fullmatch(path.name) and is_owned(path)]


def staged_folders(dataset: AnyPath) -> list[AnyPath]:
    """Return the folders that ``staged_folder`` made, which a killed process may have left."""
    return [path for path in _entries(dataset) if _STAGED.fullmatch(path.name) and is_owned(path)]


def check_owned(dataset: AnyPath) -> None:
    """Raise InputError if the folder ``.build`` of a dataset, or something in it, is not of tfshards."""
    area = dataset / AREA_NAME
    if isinstance(area, Path):
        _check_area(area)
        for path in _entries(dataset):
            if not is_owned(path):
                raise foreign(path)


def _check_area(area: Path) -> None:
    if os.path.lexists(area) and (area.is_symlink() or not area.is_dir()):
        raise foreign(area)


def foreign(path: AnyPath) -> InputError:
    """Return the error for a file or folder that tfshards would have to replace, but did not write."""
    return InputError("foreign-file", path=path)


def _entries(dataset: AnyPath) -> list[AnyPath]:
    area = dataset / AREA_NAME
    if isinstance(area, Path) and (area.is_symlink() or not area.is_dir()):
        return []
    return sorted(area.iterdir(), key=str)


def remove(folder: Path) -> None:
    """Remove a folder of tfshards; its record is the last of its files."""
    if not is_owned(folder):
        return
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != RECORD_NAME:
                path.unlink(missing_ok=True)
        # without its record, what a power failure brings back would not be known as ours
        sync_directory(folder)
        (folder / RECORD_NAME).unlink(missing_ok=True)
    for empty in (folder, folder.parent):
        with suppress(OSError):
            empty.rmdir()


@contextmanager
def staged_folder(dataset: Path) -> Iterator[Path]:
    """Yield a folder on the file system of a dataset, which is removed at the end."""
    area = dataset / AREA_NAME
    _check_area(area)
    folder = area / f"staged-{secrets.token_hex(4)}"
    try:
        try:
            create(folder)
        except OSError as error:
            raise InputError("dataset-unwritable", dataset=dataset, why=error.strerror) from None
        yield folder
    finally:
        remove(folder)


def write_files(dataset: AnyPath, files: Mapping[str, bytes], staging: AnyPath | None = None) -> None:
    """Write files of a dataset, given by path, each so that neither a reader nor a crash sees a part of it.

    Unfinished files are in ``staging``, a folder of tfshards; by default one that is made for this.
    """
    if not files:
        return
    if isinstance(dataset, RemotePath):
        for path, data in files.items():
            (dataset / path).write_bytes(data)
        return
    assert isinstance(dataset, Path)
    with nullcontext(staging) if isinstance(staging, Path) else staged_folder(dataset) as folder:
        for path, data in files.items():
            new = folder / f"new-{secrets.token_hex(8)}"
            write_durably(new, [data])
            make_folder(dataset, path)
            new.replace(dataset / path)
        for parent in sorted({(dataset / path).parent for path in files}):
            sync_directory(parent)


def make_folder(dataset: Path, path: str) -> None:
    """Create the folders inside a dataset that hold the file ``path``, and flush their names to disk."""
    folder = dataset
    for name in path.split("/")[:-1]:
        folder /= name
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            sync_directory(folder.parent)
