"""The masks of a folder of images: the folder that holds them, and their names."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.remote_tree import Tree
from tfshards.prep.sources.splits import usual_split
from tfshards.prep.sources.tree import ImageFile
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.storage import any_path

_IMAGES, _MASKS = b"images/", b"masks"
_FOLDERS = b"{folders}"
_TEMPLATE = re.compile(
    r"(?P<before>(?:[^{}]|\{folders\})*)\{stem(?::-(?P<ending>[^{}]+))?\}(?P<after>(?:[^{}]|\{folders\})*)"
    r"(?P<suffix>\.\w+)"
)


class MaskName(NamedTuple):
    """A template such as ``{folders}/{stem:-_image}_mask.png`` of the path of a mask in its folder.

    Attributes:
        before, after: what is before and after the stem, the name of the image without its suffix; in both,
            ``{folders}`` are the folders of the image in the folder of images.
        ending: what is taken off the end of the stem.
        suffix: suffix of the masks.
    """

    before: bytes
    after: bytes
    ending: bytes
    suffix: bytes

    @classmethod
    def parse(cls, template: str) -> MaskName:
        """Return the template in a text, or raise OptionsError."""
        match = _TEMPLATE.fullmatch(template)
        parts = template.split("/")
        if not match or match["suffix"].lower().encode() not in SUFFIXES or ".." in parts or not parts[0]:
            raise OptionsError("mask-name-form", template=template)
        return cls(*(to_bytes(match[name] or "") for name in cls._fields))

    def path(self, image: bytes) -> bytes | None:
        """Return the path of the mask of an image without the suffix; None if its stem has another ending."""
        folders, name = os.path.split(image)
        stem = os.path.splitext(name)[0]
        if not stem.endswith(self.ending):
            return None
        before, after = (text.replace(_FOLDERS, folders) for text in (self.before, self.after))
        # an image may be in no folder
        return re.sub(rb"/+", b"/", before + stem.removesuffix(self.ending) + after).lstrip(b"/")

    def is_of(self, path: bytes) -> bool:
        """Return whether a file in the folder of masks ends like a mask; others belong to no image."""
        return path.endswith((self.after + self.suffix).rpartition(_FOLDERS)[2])


@dataclass(frozen=True)
class MaskFolders:
    """Where the images and the masks of a source are; masks have the paths of their images, or a ``name``.

    The two folders are relative to the source, or to each split folder if they are ``in_splits``. The one of
    images ends with a slash, or is empty if it is the source itself.
    """

    images: bytes
    masks: bytes
    in_splits: bool = False
    name: MaskName | None = None

    def is_mask(self, key: bytes) -> bool:
        """Return whether a file is in a folder of masks."""
        return self._divided(key)[1].startswith(self.masks + b"/")

    def inside(self, folder: bytes) -> bytes | None:
        """Return the path of a folder without the folder of images: split, class; None for other folders."""
        split, path = self._divided(folder + b"/")
        if not path.startswith(self.images) or path.startswith(self.masks + b"/"):
            return None
        return (split + path.removeprefix(self.images)).strip(b"/")

    def stem(self, key: bytes) -> bytes | None:
        """Return the path of the mask of an image, without its suffix; None if its name allows none."""
        split, path = self._divided(key)
        path = path.removeprefix(self.images)
        stem = self.name.path(path) if self.name else os.path.splitext(path)[0]
        return None if stem is None else split + self.masks + b"/" + stem

    def _divided(self, key: bytes) -> tuple[bytes, bytes]:
        """Return the split folder with its slash, if the folders are in splits, and the path in it."""
        split, slash, inside = key.partition(b"/") if self.in_splits else (b"", b"", key)
        return split + slash, inside


def find_mask_folders(
    tree: Tree, mask_dir: str | None, split_folders: Mapping[str, str] | None, mask_name: str | None
) -> MaskFolders | None:
    """Return where the masks of a folder of images, which was listed, are; None if it has none.

    They are in ``masks/`` next to ``images/``, in the folder or in its split folders; unless every folder is
    a class. With ``mask_dir`` they are in a folder of this name instead of ``masks/``, or, where there is no
    such pair, in this folder.
    """
    if mask_dir is None and split_folders == {}:
        return None
    masks = _MASKS if mask_dir is None else tree.path(mask_dir)
    name = None if mask_name is None else MaskName.parse(mask_name)

    def is_pair(folder: bytes) -> bool:
        where = os.path.join(folder, masks)
        is_inside = masks.split(b"/")[0] != b".."
        has_masks = tree.is_dir(where) if is_inside else any_path(tree.at(where)).is_dir()
        return has_masks and masks != _IMAGES[:-1] and tree.is_dir(os.path.join(folder, _IMAGES)[:-1])

    if is_pair(b""):
        return MaskFolders(_IMAGES, masks, name=name)
    if split_folders:
        splits = [to_bytes(folder) for folder in split_folders.values()]
    else:
        splits = [folder for folder in tree.folders() if usual_split(to_text(folder))]
    have_images = all(tree.is_dir(os.path.join(split, _IMAGES)[:-1]) for split in splits)
    if have_images and any(map(is_pair, splits)):
        return MaskFolders(_IMAGES, masks, in_splits=True, name=name)
    if mask_dir is None:
        return None
    if masks == b"." or not any_path(tree.at(masks)).is_dir():
        problem = "is the folder of the images" if masks == b"." else "is not a folder"
        raise InputError("mask-dir-problem", masks=to_text(masks), problem=problem, root=to_text(tree.root))
    return MaskFolders(b"", masks, name=name)


def pair_masks(
    tree: Tree,
    folders: MaskFolders,
    keys: Sequence[bytes],
    masks: Sequence[ImageFile],
    skipped: Counter[str],
) -> tuple[list[ImageFile], list[str]]:
    """Return the mask of each image, with the size -1 if it does not exist, and warnings.

    Masks without an image are counted in ``skipped``.
    """
    if folders.masks.split(b"/")[0] == b"..":
        outside = tree.below(folders.masks).images(skipped)
        masks = [file._replace(key=folders.masks + b"/" + file.key) for file in outside]
    named = [mask for mask in masks if folders.name is None or folders.name.is_of(mask.key)]
    if len(named) < len(masks):
        skipped["not named like a mask"] += len(masks) - len(named)
    by_stem: dict[bytes, ImageFile] = {}
    for mask in named:
        other = by_stem.setdefault(os.path.splitext(mask.key)[0], mask)
        if other is not mask:
            names = f"{os.fsdecode(other.key)!r} and {os.fsdecode(mask.key)!r}"
            raise InputError("masks-ambiguous", names=names)
    stems = [folders.stem(key) or b"" for key in keys]
    found = [by_stem.get(stem, ImageFile(stem, -1, -1)) for stem in stems]
    image_of: dict[bytes, bytes] = {}
    lone = []
    for key, mask in zip(keys, found, strict=True):
        if mask.size < 0:
            lone.append(os.fsdecode(key))
        elif image_of.setdefault(mask.key, key) != key:
            first, second, shared = map(os.fsdecode, (image_of[mask.key], key, mask.key))
            raise InputError("masks-shared", image_of=first, key=second, key2=shared)
    where = os.fsdecode(folders.masks)
    if not image_of:
        such = f", such as {lone[0]!r}," if lone else ""
        raise InputError("masks-unmatched", root=to_text(tree.root), such=such, where=where)
    left = sorted(os.fsdecode(mask.key) for mask in named if mask.key not in image_of)
    if left:
        skipped["mask without an image"] += len(left)
    return found, [
        f"{what} for {len(names):,} of {total:,} {of}, such as {names[0]!r}; it is not added to the dataset"
        for names, total, of, what in (
            (lone, len(keys), "images", f"there is no mask in {where!r}"),
            (left, len(named), "masks", "there is no image"),
        )
        if names
    ]
