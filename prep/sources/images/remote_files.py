"""Read an image of a folder of objects, and its mask, and check that they are those that were listed."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tfshards.prep.sources.base import Row
from tfshards.prep.sources.fetching import Content, changed, object_in, read_remote, stamp_of, unreadable
from tfshards.prep.sources.images.masks import MASK_SUFFIXES, MaskFolders, find_mask_folders, together
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.sources.remote_tree import RemoteTree
from tfshards.prep.sources.tree import ImageFile
from tfshards.schemas.storage import RemotePath
from tfshards.schemas.storage.reading import read_object

# the suffix of the last mask first: mostly it is that of all masks
_suffixes = [*MASK_SUFFIXES]


class FoundFile(NamedTuple):
    """An image or a mask that was read.

    Attributes:
        path: path of the file, whose suffix may identify the format.
        content: what was read.
    """

    path: bytes
    content: Content


@lru_cache(maxsize=8)
def masks_of(
    folder: RemotePath, mask_dir: str | None, split_folders: tuple[tuple[str, str], ...] | None
) -> MaskFolders | None:
    """Return where the masks are, see ``find_mask_folders``; the store is asked once."""
    return find_mask_folders(
        RemoteTree(folder), mask_dir, None if split_folders is None else dict(split_folders)
    )


def read_files(folder: RemotePath, masks: MaskFolders | None, row: Row, most_bytes: int) -> list[FoundFile]:
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
    found = [FoundFile(to_bytes(row.key), image)]
    # what was listed without a mask has none, whatever there is now
    if masks is not None and (image.size, image.stamp) != (row.size, row.stamp):
        mask = _mask(folder, masks.mask(to_bytes(row.key)), most)
        if mask:
            found.append(mask)
            listed = together(listed, ImageFile(b"", mask.content.size, mask.content.stamp))
    if (listed.size, listed.stamp) != (row.size, row.stamp):
        raise changed(path)
    return found


def _mask(folder: RemotePath, stem: bytes, most_bytes: int) -> FoundFile | None:
    """Return the mask with a path without its suffix, relative to the folder of the source, or None."""
    tree = RemoteTree(folder)
    for suffix in tuple(_suffixes):
        path = tree.at(stem + suffix)
        try:
            status, data = read_object(path, most_bytes)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unreadable(path, error) from None
        if _suffixes[0] != suffix:
            _suffixes[:] = [suffix, *(each for each in _suffixes if each != suffix)]
        return FoundFile(stem + suffix, Content(status.st_size, stamp_of(status), data))
    return None
