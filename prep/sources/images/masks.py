"""Folders of images and of their masks, which have the same names, on a disk or in an object store."""

from __future__ import annotations

import hashlib
import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.base import Row
from tfshards.prep.sources.fetching import FetchedContent, changed, read_as_listed, read_content, unreadable
from tfshards.prep.sources.images.mask_names import MaskName, parse_mask_name
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.remote_tree import Tree, tree_of
from tfshards.prep.sources.splits import usual_split
from tfshards.prep.sources.tree import ImageFile
from tfshards.schemas import InputError

_IMAGES, _MASKS = b"images", b"masks"
# nearly all masks are PNG
MASK_SUFFIXES = tuple(dict.fromkeys([b".png", *SUFFIXES, *(suffix.upper() for suffix in SUFFIXES)]))


@dataclass(frozen=True)
class MaskFolders:
    """Where the images and the masks of a source are; both have the same folders and names inside.

    The two folders are relative to the source, which ``images`` may be, or to each split folder if they are
    ``in_splits``. A ``name`` makes the paths of masks in their folder from the paths of the images.
    """

    images: bytes
    masks: bytes
    in_splits: bool = False
    name: MaskName | None = None

    @property
    def is_outside(self) -> bool:
        """Whether the folder of the masks is not in the source."""
        return self.masks.split(b"/")[0] == b".."

    def folders(self, tree: Tree, name: bytes) -> list[bytes]:
        """Return the folders of images in the folder ``name``, a split or class, or in all of them."""
        if self.in_splits:
            within = os.path.join(name, self.images) if name else b""
        else:
            within = os.path.join(self.images, name)
        found = tree.folders(within)
        return [each for each in found if within or each != self.masks.split(b"/")[0]]

    def is_image(self, key: bytes) -> bool:
        """Return whether a file is an image rather than a mask or in neither folder."""
        in_images = not self.images or self._divided(key)[1].startswith(self.images + b"/")
        return in_images and not self.is_mask(key)

    def is_mask(self, key: bytes) -> bool:
        """Return whether a file is in a folder of masks."""
        return self._divided(key)[1].startswith(self.masks + b"/")

    def path(self, key: bytes) -> bytes:
        """Return the path of an image without the folder of images: its splits, class and name."""
        split, inside = self._divided(key)
        return split + inside.removeprefix(self.images + b"/")

    def key(self, path: bytes) -> bytes:
        """Return the key of the image with this ``path``."""
        split, inside = self._divided(path)
        return split + (self.images + b"/" if self.images else b"") + inside

    def mask(self, key: bytes) -> bytes | None:
        """Return the path of the mask of an image, without its suffix; None if its name allows none."""
        split, inside = self._divided(key)
        path = inside.removeprefix(self.images + b"/")
        stem = self.name.path(path) if self.name else os.path.splitext(path)[0]
        return None if stem is None else split + self.masks + b"/" + stem

    @property
    def suffixes(self) -> tuple[bytes, ...]:
        """The suffixes that a mask may have."""
        return (self.name.suffix,) if self.name else tuple(_suffixes)

    def has_name(self, path: bytes) -> bool:
        """Return whether a file in a folder of masks has the name of a mask, whatever images there are."""
        return self.name.is_of(path) if self.name else os.path.splitext(path)[1] in MASK_SUFFIXES

    def _divided(self, key: bytes) -> tuple[bytes, bytes]:
        """Return the split folder with its slash, if the folders are in splits, and the path in it."""
        split, slash, inside = key.partition(b"/") if self.in_splits else (b"", b"", key)
        return split + slash, inside


def find_mask_folders(
    tree: Tree,
    mask_dir: str | None,
    split_folders: Mapping[str, str] | None,
    mask_name: str | None = None,
) -> MaskFolders | None:
    """Return where the masks of a folder of images are, and their names, or None if it has none."""
    folders = _find_mask_folders(tree, mask_dir, split_folders)
    return replace(folders, name=parse_mask_name(mask_name)) if folders and mask_name else folders


def _find_mask_folders(
    tree: Tree, mask_dir: str | None, split_folders: Mapping[str, str] | None
) -> MaskFolders | None:
    """Return where the masks of a folder of images are, or None if it has none.

    They are in ``masks/`` next to ``images/``, in the folder or in its split folders; unless every folder is
    a class. With ``mask_dir`` they are in a folder of this name instead of ``masks/``, or, where there is no
    such pair, in this folder.
    """
    if mask_dir is None and split_folders is not None and not split_folders:
        return None
    masks = folder_name(tree, mask_dir)
    if _has_both(tree, b"", masks):
        return MaskFolders(_IMAGES, masks)
    if split_folders:
        splits = [to_bytes(folder) for folder in split_folders.values()]
    else:
        splits = [name for name in tree.folders() if usual_split(to_text(name))]
    have_images = all(tree.is_dir(os.path.join(split, _IMAGES)) for split in splits)
    if have_images and any(_has_both(tree, split, masks) for split in splits):
        return MaskFolders(_IMAGES, masks, in_splits=True)
    if mask_dir is None:
        return None
    there = tree.below(masks)
    if not there.is_dir(b"") or there.root == tree.root:
        problem = "is the folder of the images" if there.root == tree.root else "is not a folder"
        raise InputError("mask-dir-problem", masks=to_text(masks), problem=problem, root=to_text(tree.root))
    return MaskFolders(b"", masks)


def folder_name(tree: Tree, mask_dir: str | None) -> bytes:
    """Return the folder of masks relative to that of images, or its name in each split."""
    return _MASKS if mask_dir is None else tree.path(mask_dir)


def _has_both(tree: Tree, folder: bytes, masks: bytes) -> bool:
    return masks not in (_IMAGES, b".") and all(
        tree.is_dir(os.path.join(folder, name)) for name in (_IMAGES, masks)
    )


def pair_files(
    tree: Tree, folders: MaskFolders, found: Sequence[ImageFile], skipped: Counter[str]
) -> tuple[list[ImageFile], list[str]]:
    """Return the images in a folder, each with the size and time of its mask as well, and warnings.

    Files in neither folder, and masks without an image, are counted in ``skipped``.
    """
    masks = [file for file in found if folders.is_mask(file.key)]
    images = [file for file in found if folders.is_image(file.key)]
    if len(found) > len(images) + len(masks):
        skipped["beside the folders"] += len(found) - len(images) - len(masks)
    if folders.is_outside:
        outside = tree.below(folders.masks).images(skipped)
        masks = [file._replace(key=folders.masks + b"/" + file.key) for file in outside]
    named = [mask for mask in masks if folders.has_name(mask.key)]
    if folders.name and len(named) < len(masks):
        skipped["not named like a mask"] += len(masks) - len(named)
        masks = named
    by_name = _by_name(named)
    stems = [(image, folders.mask(image.key)) for image in images]
    pairs = [(image, None if stem is None else by_name.get(stem)) for image, stem in stems]
    image_of: dict[bytes, bytes] = {}
    for image, mask in pairs:
        if mask and image_of.setdefault(mask.key, image.key) != image.key:
            first, second, shared = map(os.fsdecode, (image_of[mask.key], image.key, mask.key))
            raise InputError("masks-shared", image_of=first, key=second, key2=shared)
    lone = [os.fsdecode(image.key) for image, mask in pairs if mask is None]
    where = os.fsdecode(folders.masks)
    if not image_of:
        such = f", such as {lone[0]!r}," if lone else ""
        raise InputError("masks-unmatched", root=to_text(tree.root), such=such, where=where)
    left = sorted(os.fsdecode(mask.key) for mask in masks if mask.key not in image_of)
    if left:
        skipped["mask without an image"] += len(left)
    warnings = [
        f"{what} for {len(names):,} of {total:,} {of}, such as {names[0]!r}; it is not added to the dataset"
        for names, total, of, what in (
            (lone, len(images), "images", f"there is no mask in {where!r}"),
            (left, len(masks), "masks", "there is no image"),
        )
        if names
    ]
    return [together(image, mask) for image, mask in pairs], warnings


def _by_name(masks: Sequence[ImageFile]) -> dict[bytes, ImageFile]:
    # those with other suffixes could not be found again by their names
    found: dict[bytes, ImageFile] = {}
    for mask in masks:
        name = os.path.splitext(mask.key)[0]
        if found.setdefault(name, mask) is not mask:
            names = f"{os.fsdecode(found[name].key)!r} and {os.fsdecode(mask.key)!r}"
            raise InputError("masks-ambiguous", names=names)
    return found


def together(image: ImageFile, mask: ImageFile | None) -> ImageFile:
    """Return an image with the size of both files, and one number for their times."""
    if mask is None:
        return image
    digest = hashlib.blake2b(struct.pack("<3q", image.stamp, mask.size, mask.stamp), digest_size=8).digest()
    return ImageFile(image.key, image.size + mask.size, int.from_bytes(digest, "little", signed=True))


# the suffix of the last mask first: usually all masks have it
_suffixes = [*MASK_SUFFIXES]


@lru_cache(maxsize=8)
def masks_of(
    url: str,
    mask_dir: str | None,
    split_folders: tuple[tuple[str, str], ...] | None,
    mask_name: str | None,
) -> MaskFolders | None:
    """Return where the masks in a folder of objects are; the store is asked once."""
    tree = tree_of(url, follow_links=False)
    splits = None if split_folders is None else dict(split_folders)
    return find_mask_folders(tree, mask_dir, splits, mask_name)


def read_files(
    tree: Tree, masks: MaskFolders | None, row: Row, most_bytes: int
) -> list[tuple[bytes, FetchedContent]]:
    """Return the path and the content of an image, and of its mask if it was listed with one.

    The size and the stamp of ``row`` are those of both files, or of the image alone if it was listed alone.
    """
    key = to_bytes(row.key)
    if masks is None:
        return [(key, read_as_listed(tree.at(key), row.size, row.stamp, most_bytes))]
    most_bytes = min(most_bytes, row.size)
    try:
        found = [(key, read_content(tree.at(key), most_bytes))]
        # what was listed without a mask has none, whatever there is now
        if _size_and_stamp(found) != (row.size, row.stamp):
            found += _mask(tree, masks, masks.mask(key), most_bytes)
    except OSError as error:
        raise unreadable(tree.at(key), error) from None
    if _size_and_stamp(found) != (row.size, row.stamp):
        raise changed(tree.at(key))
    return found


def _size_and_stamp(files: Sequence[tuple[bytes, FetchedContent]]) -> tuple[int, int]:
    """Return the size and the stamp with which an image and its mask are listed."""
    image, *masks = [ImageFile(b"", content.size, content.stamp) for _, content in files]
    both = together(image, masks[0] if masks else None)
    return both.size, both.stamp


def _mask(
    tree: Tree, masks: MaskFolders, stem: bytes | None, most_bytes: int
) -> Iterator[tuple[bytes, FetchedContent]]:
    """Yield the path and the content of the mask whose path begins with ``stem``, if there is one."""
    if stem is None:
        return
    # the folder that links to masks must not leave
    top = tree.below(masks.masks) if masks.is_outside else tree
    for suffix in masks.suffixes:
        path = stem + suffix
        inside = path.removeprefix(masks.masks + b"/") if masks.is_outside else path
        if not top.holds(inside):
            continue
        try:
            content = read_content(top.at(inside), most_bytes)
        except (FileNotFoundError, IsADirectoryError):
            continue
        _suffixes[:] = sorted(_suffixes, key=suffix.__ne__)
        yield path, content
        return
