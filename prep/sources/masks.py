"""The masks of a folder of images: the folder that holds them, and their names."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.classes import usual_split
from tfshards.prep.sources.keys import in_any_form, to_bytes, to_text
from tfshards.prep.sources.tree import FolderFiles, suffix_of
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.storage.paths import check_expanded

_IMAGES = b"images/"
_FIELD = re.compile(rb"\{folders\}|\{stem(?::-(?P<ending>[^{}]+))?\}")


def check_masks(mask_dir: str | None, mask_name: str | None) -> None:
    """Raise OptionsError unless masks are in a folder below the source, with a template of their names."""
    check_expanded(mask_dir or "")
    if mask_dir is not None and posixpath.normpath(mask_dir).split("/")[0] in ("", ".", ".."):
        raise OptionsError(
            f"mask_dir={mask_dir!r} must be a folder in that of the images; give the folder that holds "
            "both, or build a table with the columns file_name and mask"
        )
    if mask_name is None:
        return
    if mask_dir is None:
        raise OptionsError("mask_name= has no effect without mask_dir=, the folder of the masks")
    template = to_bytes(mask_name)
    parts, text = template.split(b"/"), _FIELD.sub(b"", template)
    is_path = parts[0] and b".." not in parts and suffix_of(template) in SUFFIXES
    if not is_path or b"{" in text or b"}" in text or template.count(b"{stem") != 1:
        raise OptionsError(
            f"mask_name={mask_name!r} must have {{stem}} once, perhaps {{folders}}, and end with the suffix "
            "of the masks; '{folders}/{stem:-_image}_mask.png' is the mask a_mask.png of a_image.jpg"
        )


def _filled(template: bytes, image: bytes) -> bytes:
    """Return a template with the folders and the stem of an image; empty if its stem has another ending."""
    folders, name = os.path.split(image)
    stem = os.path.splitext(name)[0]
    ending = next(match["ending"] or b"" for match in _FIELD.finditer(template) if match[0] != b"{folders}")
    if not stem.endswith(ending):
        return b""
    path = _FIELD.sub(
        lambda match: folders if match[0] == b"{folders}" else stem.removesuffix(ending), template
    )
    # an image may be in no folder
    return re.sub(rb"/+", b"/", path).lstrip(b"/")


@dataclass(frozen=True)
class MaskFolders:
    """Where the images and the masks of a source are.

    The two folders end with a slash. They are relative to the source, or to each split folder if they are
    ``in_splits``. The one of images is empty if it is the source itself. Masks have the paths of their
    images, except for the suffix, or those that the ``template`` gives.
    """

    images: bytes
    masks: bytes
    in_splits: bool = False
    template: bytes = b""

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
        name = _filled(self.template, path) if self.template else os.path.splitext(path)[0]
        return split + self.masks + name

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
    template = to_bytes(mask_name or "")

    def holds(folder: bytes) -> bool:
        return any((path + b"/").startswith(folder) for path in folders)

    if holds(_IMAGES) and holds(masks) and masks != _IMAGES:
        return MaskFolders(_IMAGES, masks, template=template)
    if split_folders:
        splits = {to_bytes(folder) + b"/" for folder in split_folders.values()}
    else:
        tops = {path.partition(b"/")[0] for path in folders}
        splits = {top + b"/" for top in tops if usual_split(to_text(top))}
    if all(holds(split + _IMAGES) for split in splits) and any(holds(split + masks) for split in splits):
        return MaskFolders(_IMAGES, masks, in_splits=True, template=template)
    if mask_dir is None:
        return None
    if not holds(masks):
        raise InputError(f"{to_text(root)} holds no masks in mask_dir={mask_dir!r}, which is relative to it")
    return MaskFolders(b"", masks, template=template)


def pair_masks(folders: MaskFolders, images: Sequence[bytes], masks: FolderFiles) -> tuple[FolderFiles, int]:
    """Return the mask of each image, with the size -1 if it does not exist, and the number of other masks."""
    number_of: dict[bytes, int] = {}
    for number, key in enumerate(masks.keys):
        other = number_of.setdefault(key if folders.template else os.path.splitext(key)[0], number)
        if other != number:
            names = f"{os.fsdecode(masks.keys[other])!r} and {os.fsdecode(key)!r}"
            raise InputError(f"the masks {names} differ only in their suffix; remove one of them")
    paths = [folders.mask_of(key) for key in images]
    found = [in_any_form(path, number_of.get) for path in paths]
    numbers = [-1 if number is None else number for number in found]
    image_of: dict[int, bytes] = {}
    for key, number in zip(images, numbers, strict=True):
        if number >= 0 and image_of.setdefault(number, key) != key:
            first, second, shared = map(os.fsdecode, (image_of[number], key, masks.keys[number]))
            raise InputError(f"the images {first!r} and {second!r} have one mask, {shared!r}; rename one")
    is_missing = np.array(numbers) < 0
    keys = [masks.keys[number] if number >= 0 else path for number, path in zip(numbers, paths, strict=True)]
    sizes, stamps = (np.where(is_missing, -1, each[numbers]) for each in (masks.sizes, masks.stamps))
    return replace(masks, keys=keys, sizes=sizes, stamps=stamps), len(masks.keys) - len(image_of)
