"""Views that are written when they are asked for, and kept up to date from then on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tfshards.prep.views.croissant import croissant_text
from tfshards.prep.views.tfmd import tfmd_text
from tfshards.schemas import InputError, Manifest, Problem
from tfshards.schemas.files import write_atomically
from tfshards.schemas.storage import AnyPath

# Identifies files of tfshards; those that another tool wrote are not replaced.
_MARK = "Written by tfshards from dataset.json."


class RequestedView(NamedTuple):
    """A view of one file.

    Attributes:
        path: path of the file, relative to the dataset.
        text: returns its content, which contains a given mark.
    """

    path: str
    text: Callable[[Manifest, str], str]


REQUESTED: Mapping[str, RequestedView] = {
    "croissant": RequestedView("croissant.json", croissant_text),
    "tfmd": RequestedView("schema.pbtxt", tfmd_text),
}


def write_requested(manifest: Manifest, root: AnyPath, view: RequestedView) -> int:
    """Write a view into the dataset, and return its size in bytes.

    Raises:
        InputError: there is a file of this name that tfshards did not write.
    """
    path, content = root / view.path, view.text(manifest, _MARK).encode("utf-8")
    found = _content(path)
    if view.path in {shard.path for shard in manifest.shards} or not _is_ours(found):
        raise InputError(f"{path} was not written by tfshards and is kept; move it away first")
    if found != content:
        write_atomically(path, content)
    return len(content)


def refresh_requested(manifest: Manifest, root: AnyPath) -> list[Problem]:
    """Write the views that were asked for earlier again, if their content differs; there are no problems."""
    for view in REQUESTED.values():
        found = _content(root / view.path)
        if found is not None and _is_ours(found):
            write_requested(manifest, root, view)
    return []


def _is_ours(found: bytes | None) -> bool:
    return found is None or _MARK.encode("ascii") in found


def _content(path: AnyPath) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
