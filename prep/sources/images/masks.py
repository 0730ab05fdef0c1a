"""Folders of images and of their masks, which have the same names, on a disk or in an object store."""

from __future__ import annotations

import hashlib
import os
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.base import Row
from tfshards.prep.sources.classes import SPLIT_FOLDERS
from tfshards.prep.sources.fetching import (
    FetchedContent,
    changed,
    object_in,
    read_remote,
    stamp_of,
    unreadable,
)
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.remote_tree import RemoteTree
from tfshards.prep.sources.tree import ImageFile, Tree, is_link_out
from tfshards.schemas import InputError
from tfshards.schemas.storage import RemotePath

_IMAGES, _MASKS = b"images", b"masks"
# nearly all masks are PNG
MASK_SUFFIXES = tuple(dict.fromkeys([b".png", *SUFFIXES, *(suffix.upper() for suffix in SUFFIXES)]))


@dataclass(frozen=True)
class MaskFolders:
    """Where the images and the masks of a source are; both have the same folders and names inside.

    Attributes:
        images: folder of the images, relative to the source; empty for the source itself.
        masks: folder of the masks, relative to the source.
        in_splits: whether both are in each split folder, instead of in the source.
    """

    images: bytes
    masks: bytes
    in_splits: bool = False

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
        """Return whether a file is in a folder of images; if that is the source, masks are, too."""
        return not self.images or self._inside(key).startswith(self.images + b"/")

    def is_mask(self, key: bytes) -> bool:
        """Return whether a file is in a folder of masks."""
        return self._inside(key).startswith(self.masks + b"/")

    def path(self, key: bytes) -> bytes:
        """Return the path of an image without the folder of images: its splits, class and name."""
        start, name = self._divided(key)
        return start + name

    def key(self, path: bytes) -> bytes:
        """Return the key of the image with this ``path``."""
        split, slash, name = path.partition(b"/") if self.in_splits else (b"", b"", path)
        return split + slash + (self.images + b"/" if self.images else b"") + name

    def mask(self, key: bytes) -> bytes:
        """Return the path of the mask of an image, without its suffix."""
        start, name = self._divided(key)
        return start + self.masks + b"/" + os.path.splitext(name)[0]

    def _inside(self, key: bytes) -> bytes:
        return key.partition(b"/")[2] if self.in_splits else key

    def _divided(self, key: bytes) -> tuple[bytes, bytes]:
        """Return the split folder, if the folders are in splits, and the path in the folder of images."""
        inside = self._inside(key)
        return key[: len(key) - len(inside)], inside.removeprefix(self.images + b"/")


def find_mask_folders(
    tree: Tree, mask_dir: str | None, split_folders: Mapping[str, str] | None
) -> MaskFolders | None:
    """Return where the masks of a folder of images are, or None if it has none.

    They are in ``masks/`` next to ``images/``, in the folder or in its split folders; unless every folder is
    a class. With ``mask_dir`` they are in a folder of this name instead of ``masks/``, or, where there is no
    such pair, in this folder.

    Raises:
        InputError: ``mask_dir``, relative to the folder, is not a folder, or is the folder itself.
    """
    if mask_dir is None and split_folders is not None and not split_folders:
        return None
    masks = folder_name(tree, mask_dir)
    if _has_both(tree, b"", masks):
        return MaskFolders(_IMAGES, masks)
    if split_folders:
        splits = [to_bytes(folder) for folder in split_folders.values()]
    else:
        splits = [name for name in tree.folders() if name.lower() in SPLIT_FOLDERS]
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


class Paired(NamedTuple):
    """The images of a source, sorted, and warnings; size and time of each cover its mask."""

    images: list[ImageFile]
    warnings: list[str]


def pair_files(tree: Tree, folders: MaskFolders, found: Sequence[ImageFile], skipped: Counter[str]) -> Paired:
    """Return the images among the files ``found`` in a folder, each together with its mask.

    Files in neither folder, and masks without an image, are counted in ``skipped``.

    Raises:
        InputError: two masks have one name, two images have one mask, or no image has a mask.
        OSError: the folder of masks is outside of the folder and cannot be read.
    """
    masks = [file for file in found if folders.is_mask(file.key)]
    images = [file for file in found if folders.is_image(file.key) and not folders.is_mask(file.key)]
    if len(found) > len(images) + len(masks):
        skipped["beside the folders"] += len(found) - len(images) - len(masks)
    if folders.is_outside:
        outside = tree.below(folders.masks).images(skipped)
        masks = [file._replace(key=folders.masks + b"/" + file.key) for file in outside]
    by_name = _by_name(masks)
    pairs = [(image, by_name.get(folders.mask(image.key))) for image in images]
    image_of: dict[bytes, bytes] = {}
    for image, mask in pairs:
        if mask and image_of.setdefault(mask.key, image.key) != image.key:
            raise InputError(
                "masks-shared",
                image_of=os.fsdecode(image_of[mask.key]),
                key=os.fsdecode(image.key),
                key2=os.fsdecode(mask.key),
            )
    lone = [image.key for image, mask in pairs if mask is None]
    where = os.fsdecode(folders.masks)
    if len(lone) == len(pairs):
        such = f", such as {os.fsdecode(lone[0])!r}," if lone else ""
        raise InputError("masks-unmatched", root=to_text(tree.root), such=such, where=where)
    warnings = []
    if lone:
        warnings.append(
            f"{len(lone):,} of {len(pairs):,} images {'has' if len(lone) == 1 else 'have'} no mask in "
            f"{where!r}, such as {os.fsdecode(lone[0])!r}; images without a mask are not added to the dataset"
        )
    used = {mask.key for _, mask in pairs if mask}
    left = sorted(mask.key for mask in masks if mask.key not in used)
    if left:
        skipped["mask without an image"] += len(left)
        have = "mask has" if len(left) == 1 else "masks have"
        warnings.append(f"{len(left):,} {have} no image, such as {os.fsdecode(left[0])!r}")
    return Paired([together(image, mask) for image, mask in pairs], warnings)


def _by_name(masks: Sequence[ImageFile]) -> dict[bytes, ImageFile]:
    found: dict[bytes, ImageFile] = {}
    for mask in masks:
        name, suffix = os.path.splitext(mask.key)
        # others could not be found again by their names
        if suffix in MASK_SUFFIXES and found.setdefault(name, mask) is not mask:
            names = f"{os.fsdecode(found[name].key)!r} and {os.fsdecode(mask.key)!r}"
            raise InputError("masks-ambiguous", names=names)
    return found


def together(image: ImageFile, mask: ImageFile | None) -> ImageFile:
    """Return an image with the size of both files, and one number for their times."""
    if mask is None:
        return image
    digest = hashlib.blake2b(struct.pack("<3q", image.stamp, mask.size, mask.stamp), digest_size=8).digest()
    return ImageFile(image.key, image.size + mask.size, int.from_bytes(digest, "little", signed=True))


def files_of(
    root: bytes, folders: MaskFolders | None, row: Row, *, follow_links: bool
) -> list[tuple[bytes, Row]]:
    """Return the path of an image, and that of the mask with which it was listed, each with size and time.

    Args:
        root: the source, as a real path.
        folders: where its masks are, as ``find_mask_folders`` returns it.
        row: the image, with size and time of both files; of the image alone if it was listed without a mask.
        follow_links: as in the listing: whether a mask may be a link to a file outside of ``root``.

    Raises:
        InputError: one of them has changed since it was listed.
    """
    image = _stat(os.path.join(root, to_bytes(row.key)))
    files = [image]
    # what was listed without a mask has none, whatever there is now
    if folders and (image.size, image.stamp) != (row.size, row.stamp):
        stem = os.path.join(root, folders.mask(to_bytes(row.key)))
        top = os.path.realpath(os.path.join(root, folders.masks)) if folders.is_outside else root
        found = (stem + suffix for suffix in MASK_SUFFIXES if os.path.isfile(stem + suffix))
        files += [_stat(path) for path in found if follow_links or not is_link_out(path, top)][:1]
    both = together(image, files[1] if files[1:] else None)
    if (both.size, both.stamp) != (row.size, row.stamp):
        raise InputError("changed-file", path=os.fsdecode(image.key))
    return [(file.key, Row(row.key, row.label, file.size, file.stamp)) for file in files]


def _stat(path: bytes) -> ImageFile:
    try:
        status = os.stat(path)
    except OSError as error:
        raise InputError("unreadable", path=os.fsdecode(path), why=error.strerror) from None
    return ImageFile(path, status.st_size, status.st_mtime_ns)


# the suffix of the last mask first: usually all masks have it
_suffixes = [*MASK_SUFFIXES]


class FoundMask(NamedTuple):
    """An image or a mask that was read.

    Attributes:
        path: path of the file, whose suffix may identify the format.
        content: what was read.
    """

    path: bytes
    content: FetchedContent


@lru_cache(maxsize=8)
def masks_of(
    folder: RemotePath, mask_dir: str | None, split_folders: tuple[tuple[str, str], ...] | None
) -> MaskFolders | None:
    """Return where the masks are, see ``find_mask_folders``; the store is asked once."""
    return find_mask_folders(
        RemoteTree(folder), mask_dir, None if split_folders is None else dict(split_folders)
    )


def read_files(folder: RemotePath, masks: MaskFolders | None, row: Row, most_bytes: int) -> list[FoundMask]:
    """Return the image of a row, and its mask if it was listed with one.

    Args:
        folder: folder of the source.
        masks: where its masks are; None if it has none.
        row: the row, with the size and stamp of both.
        most_bytes: a larger file is returned without its bytes.

    Raises:
        InputError: a file cannot be read, or has changed since it was listed.
    """
    path = object_in(folder, row.key)
    most = min(most_bytes, row.size)
    image = read_remote(path, most)
    listed = ImageFile(b"", image.size, image.stamp)
    found = [FoundMask(to_bytes(row.key), image)]
    # what was listed without a mask has none, whatever there is now
    if masks is not None and (image.size, image.stamp) != (row.size, row.stamp):
        mask = _mask(folder, masks.mask(to_bytes(row.key)), most)
        if mask:
            found.append(mask)
            listed = together(listed, ImageFile(b"", mask.content.size, mask.content.stamp))
    if (listed.size, listed.stamp) != (row.size, row.stamp):
        raise changed(path)
    return found


def _mask(folder: RemotePath, stem: bytes, most_bytes: int) -> FoundMask | None:
    """Return the mask with a path without its suffix, relative to the folder of the source, or None."""
    tree = RemoteTree(folder)
    for suffix in tuple(_suffixes):
        path = tree.at(stem + suffix)
        try:
            status, data = path.get(most_bytes)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unreadable(path, error) from None
        if _suffixes[0] != suffix:
            _suffixes[:] = [suffix, *(each for each in _suffixes if each != suffix)]
        return FoundMask(stem + suffix, FetchedContent(status.st_size, stamp_of(status), data))
    return None
