"""Decide which of the top-level folders in a folder of images are splits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.usual_splits import SPLIT_FOLDERS, usual_order
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import listed
from tfshards.schemas.names import name_fault

_SHOWN = 5


@dataclass(frozen=True)
class SplitFolders:
    """The top-level folders that are splits.

    Attributes:
        split_of: the split of each of these folders, in the usual order of splits; empty if there are none.
        warnings: a warning for each folder that is skipped.
    """

    split_of: Mapping[bytes, str]
    warnings: tuple[str, ...] = ()


def check_split_folders(given: Mapping[str, str] | None) -> None:
    """Raise OptionsError unless ``given`` is None, or maps names of splits to different folders."""
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise OptionsError("split-folders-type", given=given)
    for split, folder in given.items():
        fault = name_fault(split)
        if fault:
            raise OptionsError("split-folders-name", given=dict(given), fault=fault)
        if not folder or "/" in folder or folder.startswith("."):
            raise OptionsError("split-folders-path", given=dict(given), folder=folder)
    if len(set(given.values())) < len(given):
        raise OptionsError("split-folders-repeated", given=dict(given))


def find_split_folders(
    root: bytes,
    folders: Sequence[bytes],
    with_images: Set[bytes],
    given: Mapping[str, str] | None,
    *,
    may_lack: bool,
) -> SplitFolders:
    """Return the folders that are splits: those in ``given``, or else those named like splits, in any case.

    Args:
        root: the folder of images, for messages.
        folders: its folders, sorted.
        with_images: those of them that hold images.
        given: the folder of each split; empty if no folder is a split; None to decide by the names.
        may_lack: whether folders in ``given`` may be missing.

    Raises:
        InputError: two folders are one split, a folder in ``given`` is missing, or only some of the folders
            with images are named like splits.
    """
    if given is not None:
        return _as_given(root, folders, with_images, given, may_lack=may_lack)
    named = [name for name in folders if name.lower() in SPLIT_FOLDERS]
    if not named:
        return SplitFolders({})
    others = [name for name in folders if name not in named]
    odd = [name for name in others if name in with_images]
    if odd:
        usual = {name.lower().decode(): to_text(name) for name in named}
        raise InputError(
            "split-folders-ambiguous",
            root=os.fsdecode(root),
            named=_shown(named),
            odd=_shown(odd),
            usual=usual,
        )
    by_split: dict[str, bytes] = {}
    for name in named:
        other = by_split.setdefault(name.lower().decode(), name)
        if other != name:
            raise InputError(
                "split-folders-same",
                root=os.fsdecode(root),
                names=_shown([other, name]),
                decode=name.lower().decode(),
            )
    return SplitFolders(
        _in_order({name: name.lower().decode() for name in named}),
        tuple(f"the folder {os.fsdecode(name)!r} holds no images; it is skipped" for name in others),
    )


def _as_given(
    root: bytes,
    folders: Sequence[bytes],
    with_images: Set[bytes],
    given: Mapping[str, str],
    *,
    may_lack: bool,
) -> SplitFolders:
    split_of = {to_bytes(folder): split for split, folder in given.items()}
    missing = [os.fsdecode(name) for name in split_of if name not in folders]
    if missing and not may_lack:
        raise InputError(
            "split-folder-missing", root=os.fsdecode(root), missing=missing[0], folders=_shown(folders)
        )

    def left_out() -> Iterator[str]:
        for name in folders if given else ():
            if name not in split_of:
                what = "its images are" if name in with_images else "it holds no images and is"
                yield f"the folder {os.fsdecode(name)!r} is not given as a split; {what} skipped"

    return SplitFolders({name: split_of[name] for name in split_of if name in folders}, tuple(left_out()))


def _shown(folders: Sequence[bytes]) -> str:
    return listed([repr(os.fsdecode(name)) for name in folders], _SHOWN) or "none"


def _in_order(split_of: Mapping[bytes, str]) -> dict[bytes, str]:
    return dict(sorted(split_of.items(), key=lambda item: usual_order(item[1])))
