"""Compare files with the manifest of a dataset, and say where files of the user may be written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import BinaryIO

from tfshards.schemas import InputError, Manifest, Problem, Shard
from tfshards.schemas.manifest import OTHER_BYTES, is_manifest
from tfshards.schemas.names import MANIFEST_NAME
from tfshards.schemas.storage import AnyPath, any_path


def file_problems(manifest: Manifest, root: str | os.PathLike[str] | AnyPath) -> list[Problem]:
    """Return a problem for each shard whose file is missing or whose size differs from the manifest."""
    folder = any_path(root)

    def fault(shard: Shard) -> str:
        try:
            num_bytes = (folder / shard.path).stat().st_size
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        is_right = num_bytes == shard.num_bytes
        return "" if is_right else f"has {num_bytes} bytes, but the manifest lists {shard.num_bytes}"

    faults = zip(manifest.shards, folder.each(fault, manifest.shards), strict=True)
    return [Problem(shard.path, text) for shard, text in faults if text]


def digest_problems(
    root: AnyPath, digests: Mapping[str, str], tick: Callable[[int], object] | None = None
) -> list[Problem]:
    """Return a problem for each file whose bytes differ from its digest, or that cannot be read."""
    problems = []
    for path, digest in digests.items():
        try:
            is_same = (root / path).digest(tick) == digest
        except OSError as error:
            problems.append(Problem(path, f"cannot be read: {error.strerror}"))
            continue
        if not is_same:
            problems.append(Problem(path, OTHER_BYTES))
    return problems


def check_outside_datasets(path: AnyPath, where: str) -> None:
    """Raise InputError if the folder of an output is in a dataset; ``where`` says what to name instead."""
    # A link of this name may lead from a dataset, or into one.
    folders = dict.fromkeys((*(path.parent.resolve() / path.name).parents, *path.resolve().parents))
    # from the outermost, since each build in a dataset has a manifest as well
    for folder in reversed(folders):
        with suppress(OSError):
            if is_manifest(folder / MANIFEST_NAME):
                raise InputError(f"{path} is inside the dataset {folder}; {where} outside it")


def check_new_file(path: AnyPath, content: str, is_own: Callable[[BinaryIO], bool]) -> None:
    """Check that a file may be written, before the work for it begins; ``content`` is what it will hold.

    ``is_own`` returns whether an existing file, which is open for reading and not empty, may be replaced,
    since it holds the same kind of content.
    """
    where = f"name a file for {content}"
    if path.is_dir() or path.parent.folders_to_make():
        fault = "is a folder" if path.is_dir() else f"the folder {path.parent} does not exist"
        raise InputError(f"{path}: {fault}; {where} in an existing folder")
    check_outside_datasets(path, where)
    with suppress(FileNotFoundError):
        is_empty = path.stat().st_size == 0
        if not path.is_file():
            raise InputError(f"{path} is not a regular file; {where}")
        if is_empty:
            return
        with path.open_regular() as file:
            if not is_own(file):
                raise InputError(f"{path} is not {content} that tfshards wrote; move it away, or {where}")
