"""The check of a file that the user names for output: outside datasets, and replacing only its own kind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tfshards.schemas.errors import InputError
from tfshards.schemas.manifest_file import is_manifest
from tfshards.schemas.names import MANIFEST_NAME
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import open_regular


def check_new_file(path: AnyPath, content: str, is_own: Callable[[BinaryIO], bool]) -> None:
    """Check that a file may be written, before the work for it begins.

    Args:
        path: the file.
        content: what it will hold, such as ``the keys``.
        is_own: returns whether an existing file, which is open for reading and not empty, holds the same kind
            of content, so that it may be replaced.
    """
    where = f"name a file for {content}"
    if isinstance(path, Path) and (path.is_dir() or not path.parent.is_dir()):
        fault = "is a folder" if path.is_dir() else f"the folder {path.parent} does not exist"
        raise InputError("output-file-invalid", path=path, fault=fault, where=where)
    # A link of this name may lead from a dataset, or into one.
    folders = dict.fromkeys((*(path.parent.resolve() / path.name).parents, *path.resolve().parents))
    for folder in folders:
        with suppress(OSError):
            if is_manifest(folder / MANIFEST_NAME):
                raise InputError("output-in-dataset", path=path, folder=folder, where=where)
    with suppress(FileNotFoundError):
        is_empty = path.stat().st_size == 0
        if not path.is_file():
            raise InputError("output-not-a-file", path=path, where=where)
        if is_empty:
            return
        with open_regular(path) as file:
            if not is_own(file):
                raise InputError("output-of-another-kind", path=path, content=content, where=where)
