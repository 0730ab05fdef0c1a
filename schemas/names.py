"""Names and ids: what datasets, splits, shards and folders of builds may be named, and how ids are made."""

from __future__ import annotations

import hashlib
import re

from tfshards.schemas.json_reader import shown

MANIFEST_NAME = "dataset.json"
# In the folder of a build: its first file, the list of rejected inputs, and the hashes of removed keys.
RECORD_NAME = "build.json"
REJECTS_NAME = "rejected.jsonl"
REMOVED_NAME = "removed.txt"
# The folder in it for what is needed only while the build is written.
WORK_NAME = "work"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]*(-[A-Za-z0-9_.]+)*")
# The names of dataset and split, and what the file names of shards, indexes and temporary files add to them,
# must stay below the 255 bytes that file systems allow.
_MAX_NAME = 80
# What a dataset holds in addition to its shards, where adopted shards may lie.
_RESERVED = re.compile(
    rf"{re.escape(MANIFEST_NAME)}|{re.escape(RECORD_NAME)}|dataset_info\.json|features\.json|(.+\.)?labels\.txt"
)


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
    if "index" in parts or _RESERVED.fullmatch(parts[-1]):
        return f"{shown(path)} is reserved for another file of the dataset"
    return None


def view_path_fault(path: str) -> str | None:
    """Return what is wrong with the path of a view, relative to its dataset, or None."""
    parts = path.split("/")
    if "\\" in path or {"", ".", ".."} & set(parts):
        return f"{shown(path)} must be a relative path, with / between its parts"
    if {"index", WORK_NAME} & {*parts} or parts[-1] == MANIFEST_NAME:
        return f"{shown(path)} is reserved for another file of the dataset"
    return None


# Ids of plans and builds are the first digits of a hash.
ID_DIGITS = 8
ID_PATTERN = f"[0-9a-f]{{{ID_DIGITS}}}"
# The folder of a build is named by its plan. A further build of this plan, whose inputs had other content,
# has a number as well.
FOLDER_PATTERN = rf"{ID_PATTERN}(-[1-9][0-9]*)?"


def id_of(text: str) -> str:
    """Return the id of what an ASCII text describes."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:ID_DIGITS]
