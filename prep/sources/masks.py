"""The masks of a folder of images: the folder that holds them, and their names."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.splits import usual_split
from tfshards.prep.sources.tree import FolderFiles
from tfshards.schemas import InputError, OptionsError

_IMAGES = b"images/"
_FOLDERS = b"{folders}"
_TEMPLATE = re.compile(
    r"(?P<before>(?:[^{}]|\{folders\})*)\{stem(?::-(?P<ending>[^{}]+))?\}"
    r"(?P<after>(?:[^{}]|\{folders\})*(?P<suffix>\.\w+))"
)


class MaskName(NamedTuple):
    """A template such as ``{folders}/{stem:-_image}_mask.png`` of the path of a mask in its folder.

    Attributes:
        before, after: what is before and after the stem, the name of the image without its suffix; in both,
            ``{folders}`` are the folders of the image in the folder of images.
        ending: what is taken off the end of the stem.
    """

    before: bytes
    after: bytes
    ending: bytes

    @classmethod
    def parse(cls, template: str) -> MaskName:
        """Return the template in a text, or raise OptionsError."""
        match = _TEMPLATE.fullmatch(template)
        parts = template.split("/")
        if not match or match["suffix"].lower().encode() not in SUFFIXES or ".." in parts or not parts[0]:
            raise OptionsError("mask-name-form", template=template)
        return cls(*(to_bytes(match[name] or "") for name in cls._fields))

    def path(self, image: bytes) -> bytes:
        """Return the path of the mask of an image; empty if the stem has another ending."""
        folders, name = os.path.split(image)
        stem = os.path.splitext(name)[0]
        if not stem.endswith(self.ending):
            return b""
        before, after = (text.replace(_FOLDERS, folders) for text in (self.before, self.after))
        # an image may be in no folder
        return re.sub(rb"/+", b"/", before + stem.removesuffix(self.ending) + after).lstrip(b"/")


def check_masks(mask_dir: str | None, mask_name: str | None) -> None:
    """Raise OptionsError unless masks are in a folder below the source, with a template of their names."""
    if mask_name is not None and mask_dir is None:
        raise OptionsError("mask-name-useless")
    if mask_name is not None:
        MaskName.parse(mask_name)
    if mask_dir is not None and posixpath.normpath(mask_dir).split("/")[0] in ("", ".", ".."):
        raise OptionsError(
            f"mask_dir={mask_dir!r} must be a folder in that of the images || give the folder that holds "
            "both, or build a table with the columns file_name and mask"
        )


@dataclass(frozen=True)
class MaskFolders:
    """Where the images and the masks of a source are; masks have the paths of their images, or a ``name``.

    The two folders end with a slash. They are relative to the source, or to each split folder if they are
    ``in_splits``. The one of images is empty if it is the source itself.
    """

    images: bytes
    masks: bytes
    in_splits: bool = False
    name: MaskName | None = None

    def is_mask(self, key: bytes) -> bool:
        """Return whether a file is in a folder of masks."""
        return self._divided(key)[1].startswith(self.masks)

    def inside(self, folder: bytes) -> bytes | None:
        """Return the path of a folder without the folder of images: split, class; None for other folders."""
        split, path = self._divided(folder + b"/")
        if not path.startswith(self.images) or path.startswith(self.masks):
            return None
        return (split + path.removeprefix(self.images)).strip(b"/")

    def mask_of(self, key: bytes) -> bytes:
        """Return the path of the mask of an image; without its suffix if there is no template."""
        split, path = self._divided(key)
        path = path.removeprefix(self.images)
        return split + self.masks + (self.name.path(path) if self.name else os.path.splitext(path)[0])

    def _divided(self, key: bytes) -> tuple[bytes, bytes]:
        """Return the split folder with its slash, if the folders are in splits, and the path in it."""
        split, slash, inside = key.partition(b"/") if self.in_splits else (b"", b"", key)
        return split + slash, inside


def find_mask_folders(
    root: bytes,
    folders: Collection[bytes],
    mask_dir: str | None,
    mask_name: str | None,
    split_folders: Mapping[str, str] | None,
) -> MaskFolders | None:
    """Return where the masks in a folder of images are; None if it has none.

    They are in ``masks/`` next to ``images/``, in the folder or in its split folders; unless every folder is
    a class. With ``mask_dir`` they are in a folder of this name instead of ``masks/``, or, where there is no
    such pair, in this folder. ``folders`` are the paths of the folders that hold images or masks.
    """
    if mask_dir is None and split_folders == {}:
        return None
    masks = to_bytes(posixpath.normpath(mask_dir or "masks")) + b"/"
    name = None if mask_name is None else MaskName.parse(mask_name)

    def holds(folder: bytes) -> bool:
        return any((path + b"/").startswith(folder) for path in folders)

    if holds(_IMAGES) and holds(masks) and masks != _IMAGES:
        return MaskFolders(_IMAGES, masks, name=name)
    if split_folders:
        splits = {to_bytes(folder) + b"/" for folder in split_folders.values()}
    else:
        tops = {path.partition(b"/")[0] for path in folders}
        splits = {top + b"/" for top in tops if usual_split(to_text(top))}
    if all(holds(split + _IMAGES) for split in splits) and any(holds(split + masks) for split in splits):
        return MaskFolders(_IMAGES, masks, in_splits=True, name=name)
    if mask_dir is None:
        return None
    if not holds(masks):
        raise InputError(f"{to_text(root)} holds no masks in mask_dir={mask_dir!r}, which is relative to it")
    return MaskFolders(b"", masks, name=name)


def pair_masks(
    root: bytes, folders: MaskFolders, images: FolderFiles, masks: FolderFiles
) -> tuple[FolderFiles, list[bytes]]:
    """Return the mask of each image, with the size -1 if it does not exist, and masks without an image."""
    number_of: dict[bytes, int] = {}
    for number, key in enumerate(masks.keys):
        other = number_of.setdefault(key if folders.name else os.path.splitext(key)[0], number)
        if other != number:
            names = f"{os.fsdecode(masks.keys[other])!r} and {os.fsdecode(key)!r}"
            raise InputError("masks-ambiguous", names=names)
    paths = [folders.mask_of(key) for key in images.keys]
    numbers = [number_of.get(path, -1) for path in paths]
    image_of: dict[int, bytes] = {}
    for key, number in zip(images.keys, numbers, strict=True):
        if number >= 0 and image_of.setdefault(number, key) != key:
            first, second, shared = map(os.fsdecode, (image_of[number], key, masks.keys[number]))
            raise InputError("masks-shared", image_of=first, key=second, key2=shared)
    if not image_of:
        such = f", such as {to_text(images.keys[0])!r},"
        raise InputError("masks-unmatched", root=to_text(root), such=such, where=to_text(folders.masks))
    found = masks.take(np.array(numbers, np.int64))
    is_missing = np.array(numbers) < 0
    found = replace(
        found,
        keys=[
            path if number < 0 else key for path, number, key in zip(paths, numbers, found.keys, strict=True)
        ],
        sizes=np.where(is_missing, -1, found.sizes),
        stamps=np.where(is_missing, -1, found.stamps),
    )
    return found, [key for number, key in enumerate(masks.keys) if number not in image_of]
