"""Read and write the manifest of a dataset on a disk or in an object store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import BinaryIO

from tfshards.schemas.errors import FormatError, InputError, Problem
from tfshards.schemas.manifest import Manifest, parse_manifest
from tfshards.schemas.names import MANIFEST_NAME
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.any_path import absolute
from tfshards.schemas.storage.untrusted import MANIFEST, open_regular, read_whole
from tfshards.schemas.storage.verbs import file_digest, file_sizes, missing_folders

OTHER_BYTES = "its bytes have changed: the digest differs"
# Bytes at the start of a manifest, which name the release that it requires.
_HEAD = 200


def read_manifest(dataset: str | os.PathLike[str] | AnyPath) -> Manifest:
    """Read the manifest of a dataset; its ``repr`` is what ``tfshards info`` prints.

    Args:
        dataset: folder of the dataset, or its URL.

    Raises:
        OptionsError: it is a URL of a store that is not supported.
        InputError: the manifest is missing or cannot be read.
        FormatError: the manifest violates the format; the error holds the first fault with its place.
    """
    root = any_path(dataset)
    try:
        manifest = read_manifest_file(root / MANIFEST_NAME)
    except OSError as error:
        raise _no_dataset(root, error) from None
    path = absolute(root)
    if manifest.folder and manifest.folder == path.name:
        # the copy in the folder of a build, whose paths are those of the dataset
        raise InputError("dataset-is-build", path=root, dataset=path.parent)
    return manifest


def read_manifest_file(path: AnyPath) -> Manifest:
    """Read a manifest, which may belong to an earlier generation; it may raise FormatError or OSError."""
    try:
        # as bytes, because the digest covers line ends
        text = read_whole(path, MANIFEST).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(str(path), [Problem("(document)", f"is not UTF-8: {error}")]) from None
    return parse_manifest(text, str(path))


def is_manifest(path: AnyPath) -> bool:
    """Return whether tfshards wrote a manifest that cannot be read, since something in it is damaged."""
    with open_regular(path) as file:
        return b'"requires": "tfshards' in file.read(_HEAD)


def file_problems(manifest: Manifest, root: str | os.PathLike[str] | AnyPath) -> list[Problem]:
    """Return a problem for each shard whose file is missing or whose size differs from the manifest."""
    problems = []
    sizes = file_sizes(any_path(root), [shard.path for shard in manifest.shards])
    for shard in manifest.shards:
        size = sizes[shard.path]
        if isinstance(size, OSError):
            problems.append(Problem(shard.path, f"cannot be read: {size.strerror}"))
        elif size != shard.num_bytes:
            problems.append(
                Problem(shard.path, f"has {size} bytes, but the manifest lists {shard.num_bytes}")
            )
    return problems


def digest_problems(
    root: AnyPath, digests: Mapping[str, str], tick: Callable[[int], object] | None = None
) -> list[Problem]:
    """Return a problem for each file whose bytes differ from its digest, or that cannot be read."""
    problems = []
    for path, digest in digests.items():
        try:
            is_same = file_digest(root / path, tick) == digest
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
                raise InputError("output-in-dataset", path=path, folder=folder, where=where)


def check_new_file(path: AnyPath, content: str, is_own: Callable[[BinaryIO], bool]) -> None:
    """Check that a file may be written, before the work for it begins; ``content`` is what it will hold.

    ``is_own`` returns whether an existing file, which is open for reading and not empty, may be replaced,
    since it holds the same kind of content.
    """
    where = f"name a file for {content}"
    if path.is_dir() or missing_folders(path.parent):
        fault = "is a folder" if path.is_dir() else f"the folder {path.parent} does not exist"
        raise InputError("output-file-invalid", path=path, fault=fault, where=where)
    check_outside_datasets(path, where)
    with suppress(FileNotFoundError):
        is_empty = path.stat().st_size == 0
        if not path.is_file():
            raise InputError("output-not-a-file", path=path, where=where)
        if is_empty:
            return
        with open_regular(path) as file:
            if not is_own(file):
                raise InputError("output-of-another-kind", path=path, content=content, where=where)


def _no_dataset(root: AnyPath, error: OSError) -> InputError:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return InputError("dataset-unreadable", path=root / MANIFEST_NAME, why=error.strerror)
    try:
        if not root.exists():
            return InputError("path-missing", path=root)
        if not root.is_dir():
            return InputError("dataset-no-folder", path=root, manifest=MANIFEST_NAME)
    except OSError as fault:
        # such as a bucket that does not exist
        return InputError("folder-fault", folder=root, why=fault.strerror)
    return InputError("dataset-missing", path=root, manifest=MANIFEST_NAME)
