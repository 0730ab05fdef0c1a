"""Views that are written when they are asked for, and kept up to date from then on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from tfshards.prep.views.croissant import croissant_text
from tfshards.prep.views.tfmd import tfmd_text
from tfshards.schemas import Manifest
from tfshards.schemas.build_area import foreign, write_files
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import METADATA, read_whole

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
    content, found = _text(manifest, view), _content(root / view.path)
    if view.path in {shard.path for shard in manifest.shards} or not _is_ours(found):
        raise foreign(root / view.path)
    if found != content:
        write_files(root, {view.path: content})
    return len(content)


def requested_files(manifest: Manifest, root: AnyPath) -> dict[str, bytes]:
    """Return the content of the views that were asked for earlier, and are not those of this manifest."""
    found = {view: _content(root / view.path) for view in REQUESTED.values()}
    return {
        view.path: _text(manifest, view)
        for view, content in found.items()
        if content is not None and _is_ours(content) and content != _text(manifest, view)
    }


def _text(manifest: Manifest, view: RequestedView) -> bytes:
    return view.text(manifest, _MARK).encode("utf-8")


def _is_ours(found: bytes | None) -> bool:
    return found is None or _MARK.encode("ascii") in found


def _content(path: AnyPath) -> bytes | None:
    with suppress(FileNotFoundError):
        return read_whole(path, METADATA)
    return None
