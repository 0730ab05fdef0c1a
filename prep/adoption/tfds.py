"""Read the metadata of TensorFlow Datasets (TFDS 4.9): names of dataset and classes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from tfshards.prep.views.tfds import INFO_NAME, MARK, labels_name
from tfshards.schemas import InputError
from tfshards.schemas.json_reader import Json, load_json
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import METADATA, read_whole


def tfds_folders(root: AnyPath, paths: Iterable[str]) -> list[str]:
    """Return the folders of ``paths``, relative to ``root``, that TFDS wrote."""
    folders = sorted({path.rpartition("/")[0] for path in paths})
    return [folder for folder in folders if _is_of_tfds(root / folder / INFO_NAME)]


def tfds_name(root: AnyPath, folders: Iterable[str]) -> str | None:
    """Return the name that TFDS gave the dataset, if there is one name."""
    names = set()
    for folder in folders:
        info = _json(root / folder / INFO_NAME)
        name = info.get("name") if isinstance(info, dict) else None
        names |= {name} if isinstance(name, str) else set()
    return names.pop() if len(names) == 1 else None


def tfds_class_names(root: AnyPath, folders: Iterable[str], feature: str) -> tuple[str, ...]:
    """Return the names of a feature's classes in label order; empty if TFDS has none."""
    found: dict[tuple[str, ...], AnyPath] = {}
    for folder in folders:
        path = root / folder / labels_name(feature)
        if not path.is_file():
            continue
        try:
            lines = read_whole(path, METADATA).decode("utf-8").replace("\r", "\n").split("\n")
        except UnicodeDecodeError as error:
            raise InputError("tfds-classes-unreadable", path=path, error=error) from None
        # TFDS strips lines and skips empty ones
        found[tuple(line.strip() for line in lines if line.strip())] = path
    if len(found) > 1:
        one, other = list(found.values())[:2]
        raise InputError("tfds-classes-differ", one=one, other=other)
    return next(iter(found), ())


def _json(path: AnyPath) -> Json:
    """Return the content of a file, or None if it is missing or damaged."""
    found: Json = None
    with suppress(OSError, ValueError):
        found = load_json(read_whole(path, METADATA))
    return found


def _is_of_tfds(info: AnyPath) -> bool:
    # tfshards writes this file as well
    return info.is_file() and MARK.encode("ascii") not in read_whole(info, METADATA)
