"""Rejected inputs by reason, with thumbnails of those that can be decoded in part."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tfshards.prep.building.commit import read_rejects
from tfshards.prep.imaging.thumbnails import encoded_small, thumbnail
from tfshards.prep.progress.lines import Log, as_warning
from tfshards.prep.reporting.pictures import Shown, picture_uri
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.writing.area import Reject
from tfshards.schemas import InputError, Manifest, OptionsError
from tfshards.schemas.files import local_path
from tfshards.schemas.names import rejects_name
from tfshards.schemas.sizes import size
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import Limit, read_whole
from tfshards.schemas.summary import escaped

_SHOWN = 24
_SIDE = 128
# Larger files are not read for a thumbnail.
_INPUT = Limit("an input that is shown", 1 << 28)


@dataclass(frozen=True)
class RejectedGroup:
    """The inputs that were rejected for one reason.

    Attributes:
        reason: the reason.
        count: number of inputs.
        inputs: the first ones by key, with the detail as caption.
    """

    reason: str
    count: int
    inputs: tuple[Shown, ...]


def source_folder(source: str | os.PathLike[str] | None) -> bytes | None:
    """Return the folder of the inputs as a real path, or None if none was given.

    Raises:
        OptionsError: it is a URL.
        InputError: it is not a folder.
    """
    if source is None:
        return None
    try:
        folder = local_path(source)
    except OptionsError as error:
        raise OptionsError("report-source-invalid", error=error) from None
    if not folder.is_dir():
        raise InputError("report-source", source=os.fspath(source))
    return os.path.realpath(os.fsencode(folder))


def rejected_groups(
    root: AnyPath, manifest: Manifest, source: bytes | None, log: Log
) -> tuple[list[RejectedGroup], str]:
    """Return the rejected inputs by reason, the most common first, and why they cannot be listed, if so.

    A folder without any of them is probably a mistake, about which ``log`` receives a line.
    """
    if not manifest.totals.rejected:
        return [], ""
    try:
        rejects = read_rejects(root / rejects_name(manifest.build_id))
    except InputError as error:
        return [], escaped(str(error))
    if source is not None and not any(_is_in(source, to_bytes(reject.key)) for reject in rejects):
        log(
            as_warning(
                f"source={os.fsdecode(source)!r} holds none of the rejected inputs; give the folder that the "
                "dataset was built from"
            )
        )
    by_reason: dict[str, list[Reject]] = defaultdict(list)
    for reject in sorted(rejects):
        by_reason[reject.reason].append(reject)
    ordered = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        RejectedGroup(escaped(reason), len(own), tuple(_shown(reject, source) for reject in own[:_SHOWN]))
        for reason, own in ordered
    ], ""


def _shown(reject: Reject, source: bytes | None) -> Shown:
    name, caption = escaped(reject.key), f"{escaped(reject.detail)} ({size(reject.size)})"
    data = _content(source, to_bytes(reject.key)) if source is not None else None
    if data is None:
        return Shown(name, caption=caption)
    try:
        picture = thumbnail(data, _SIDE, is_damaged=True)
    except ValueError:
        # the caption has the reason
        return Shown(name, caption=caption)
    uri = picture_uri(encoded_small(picture))
    return Shown(name, uri=uri, width=picture.width, height=picture.height, caption=caption)


def _is_in(source: bytes, key: bytes) -> bool:
    return os.path.lexists(os.path.join(source, key))


def _content(source: bytes, key: bytes) -> bytes | None:
    """Return the content of an input; None if it is not a regular file in the folder, or is too large."""
    path = os.path.join(source, key)
    if b"\0" in key or not os.path.realpath(path).startswith(os.path.join(source, b"")):
        return None
    try:
        return read_whole(Path(os.fsdecode(path)), _INPUT)
    except OSError:
        return None
