"""The names that datasets, splits and shards may have, which are safe in paths and reports."""

from __future__ import annotations

import hashlib
import re

from tfshards.schemas.json_reader import shown

MANIFEST_NAME = "dataset.json"
# The folder of the manifests of earlier generations.
GENERATIONS_NAME = "generations"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]*(-[A-Za-z0-9_.]+)*")
# The names of dataset and split, and what the file names of shards, indexes and temporary files add to them,
# must stay below the 255 bytes that file systems allow.
_MAX_NAME = 80
# Files that a build writes in addition to the shards.
_RESERVED = re.compile(
    rf"{re.escape(MANIFEST_NAME)}|dataset_info\.json|features\.json|(.+\.)?labels\.txt|rejected-.*\.jsonl|inputs-.*\.npz"
)


def rejects_name(build_id: str) -> str:
    """Return the name of the file that lists the rejected inputs of a build."""
    return f"rejected-{build_id}.jsonl"


def inputs_name(build_id: str) -> str:
    """Return the name of the file with the inputs of a build and their modification times."""
    return f"inputs-{build_id}.npz"


def is_reserved(name: str) -> bool:
    """Return whether a build writes a file of this name in addition to the shards."""
    return _RESERVED.fullmatch(name) is not None


def name_fault(name: str) -> str | None:
    """Return what is wrong with the name of a dataset or split, or None."""
    if not _NAME.fullmatch(name):
        return (
            f"{shown(name)} must be letters, digits, '_', '.' and single '-', starting with a letter or digit"
        )
    if len(name) > _MAX_NAME:
        return f"{shown(name)} has {len(name)} characters; at most {_MAX_NAME} are allowed"
    return None


def shard_path_fault(path: str) -> str | None:
    """Return what is wrong with the path of a shard, relative to its dataset, or None."""
    parts = path.split("/")
    if not path.isprintable() or "\\" in path or ":" in path or parts[0] == "":
        return f"{shown(path)} must be a relative path of printable characters, with / between its parts"
    if any(part == "" or part.startswith(".") for part in parts):
        return f"{shown(path)} must not contain '..', '.', hidden or empty parts"
    if "index" in parts or parts[0] == GENERATIONS_NAME or _RESERVED.fullmatch(path):
        return f"{shown(path)} is reserved for another file of the dataset"
    return None


def view_path_fault(path: str) -> str | None:
    """Return what is wrong with the path of a view, relative to its dataset, or None."""
    parts = path.split("/")
    if "\\" in path or {"", ".", ".."} & set(parts):
        return f"{shown(path)} must be a relative path, with / between its parts"
    if parts[0] in ("index", ".build", GENERATIONS_NAME) or path == MANIFEST_NAME:
        return f"{shown(path)} is reserved for another file of the dataset"
    return None


# Ids of plans and builds are the first digits of a hash; they are in the names of shards and folders.
ID_DIGITS = 8
ID_PATTERN = f"[0-9a-f]{{{ID_DIGITS}}}"


def id_of(text: str) -> str:
    """Return the id of what an ASCII text describes."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:ID_DIGITS]
