"""Read and write the manifest of a dataset on a disk or in an object store."""

from __future__ import annotations

import os
from dataclasses import replace

from tfshards.schemas.errors import FormatError, InputError, Problem
from tfshards.schemas.manifest import Manifest, parse_manifest
from tfshards.schemas.names import MANIFEST_NAME
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.any_path import absolute
from tfshards.schemas.storage.untrusted import METADATA, open_regular, read_whole

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
    except FormatError as error:
        [problem] = error.problems
        remedy = f"'tfshards generations {root}' lists what 'tfshards restore' can put in its place"
        raise FormatError(error.subject, [replace(problem, message=f"{problem.message}; {remedy}")]) from None
    path = absolute(root)
    if manifest.folder and manifest.folder == path.name:
        # the copy in the folder of a build, whose paths are those of the dataset
        raise InputError(f"{root} is the folder of a build in a dataset; name the dataset: {path.parent}")
    return manifest


def read_manifest_file(path: AnyPath) -> Manifest:
    """Read a manifest, which may belong to an earlier generation; it may raise FormatError or OSError."""
    try:
        # as bytes, because the digest covers line ends
        text = read_whole(path, METADATA).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(str(path), [Problem("(document)", f"is not UTF-8: {error}")]) from None
    return parse_manifest(text, str(path))


def is_manifest(path: AnyPath) -> bool:
    """Return whether tfshards wrote a manifest that cannot be read, since something in it is damaged."""
    with open_regular(path) as file:
        return b'"requires": "tfshards' in file.read(_HEAD)


def _no_dataset(root: AnyPath, error: OSError) -> InputError:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return InputError(f"{root / MANIFEST_NAME} cannot be read: {error.strerror}")
    try:
        if not root.exists():
            return InputError(f"{root} does not exist")
        if not root.is_dir():
            return InputError(f"{root} is a file; name the folder that holds {MANIFEST_NAME}")
    except OSError as fault:
        # such as a bucket that does not exist
        return InputError(f"{root}: {fault.strerror}")
    return InputError(
        f"{root} is not a dataset: it has no {MANIFEST_NAME}. Run an unfinished build again to finish it; "
        "if the file was lost, 'tfshards generations' lists what 'tfshards restore' can make the dataset "
        "again",
        code="dataset-missing",
    )
