"""Read one image file, check that it is unchanged since it was listed, and normalize the image."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tfshards.prep.imaging.depth import DEEP_FORMATS, file_depth
from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.imaging.masks import Geometry
from tfshards.prep.imaging.normalize import Normalized, normalize
from tfshards.prep.imaging.options import CONVERSION, ImageOptions
from tfshards.prep.imaging.pillow import decoder_versions
from tfshards.prep.imaging.whitelist import ImageError
from tfshards.prep.sources.base import Rejected, Row
from tfshards.prep.sources.fetching import FetchedContent
from tfshards.prep.sources.tree import Tree
from tfshards.schemas import Feature, InputError
from tfshards.schemas.json_reader import Json
from tfshards.schemas.reasons import Reason

_MAX_LOOKED = 300


def depth_warning(tree: Tree, paths: Sequence[bytes], options: ImageOptions) -> Iterator[str]:
    """Yield warnings if a build with these options reduces some of the files to 8 bits per sample.

    Args:
        tree: folder to which the paths are relative.
        paths: of the images; only a few hundred, evenly spread, are looked at.
        options: of the build.
    """
    if options.depth != 8 or options.check == "none" or not paths:
        return
    numbers = np.unique(np.linspace(0, len(paths) - 1, _MAX_LOOKED).astype(np.int64))
    some = [paths[number] for number in numbers.tolist()]
    opened = [path for path in some if _may_be_deep(path)]
    depths = dict(zip(opened, tree.map(lambda path: _depth(tree, path), opened), strict=True))
    for depth, found, remedy in (
        (
            "deep",
            "have more than 8 bits per sample",
            "of 16 bits, 4095 becomes 15; depth=16 keeps their values",
        ),
        (
            "float",
            "hold floating point numbers",
            "'tfshards build arrays' stores arrays of them as they are",
        ),
    ):
        paths = [path for path in some if depths.get(path) == depth]
        if paths:
            yield (
                f"{len(paths)} of {len(some)} images looked at {found}, such as {os.fsdecode(paths[0])!r}, "
                f"and are reduced to 8 bits; {remedy}"
            )


def _depth(tree: Tree, path: bytes) -> str:
    try:
        file = tree.opened(path)
    except (OSError, ValueError):
        # the build reports what is wrong with the file
        return "8"
    if file is None:
        return "8"
    with file:
        return file_depth(file, os.path.splitext(path)[1].lower())


def _may_be_deep(path: bytes) -> bool:
    return SUFFIXES.get(os.path.splitext(path)[1].lower(), "") in DEEP_FORMATS


def image_feature(name: str, options: ImageOptions) -> Feature:
    """Return the feature of images that are stored with these options."""
    return Feature(name, "image", options.dtype, options.shape)


def mask_feature(name: str, options: ImageOptions) -> Feature:
    """Return the feature of masks that are stored with these options of images."""
    options = mask_options(options)
    return Feature(name, "mask", options.dtype, options.shape)


def mask_options(images: ImageOptions) -> ImageOptions:
    """Return the image options for masks: the given ones, except that pixel values are kept.

    The headers of masks are checked even if those of images are not, since a palette would be decoded to
    colors.
    """
    check = "header" if images.check == "none" else images.check
    return replace(images, check=check, channels=1, alpha=None, format="keep", mask=True, jpeg_quality=None)


def decoders_of(options: ImageOptions, *, has_masks: bool = False) -> dict[str, Json]:
    """Return the versions of the code on which images that are stored with ``options`` depend."""
    if options.check == "none" and not has_masks:
        return {}
    return {"conversion": CONVERSION, **decoder_versions(writes_deep=options.depth != 8)}


def read_image(
    path: bytes, row: Row, options: ImageOptions, images: Sequence[Geometry] = ()
) -> Normalized | Rejected:
    """Return the normalized image in a file, or why it is rejected; for ``images`` see ``normalize``.

    Raises:
        InputError: the file cannot be read, is missing, or has changed since it was listed.
    """
    if row.size > options.max_bytes:
        return too_large(row.size, options)
    return checked_image(read_unchanged(path, row), path, options, images)


def checked_image(
    data: bytes, path: bytes, options: ImageOptions, images: Sequence[Geometry] = ()
) -> Normalized | Rejected:
    """Return the normalized image in the bytes of a file, or why it is rejected.

    Args:
        data: content of the file.
        path: path of the file, whose suffix may identify the format; may be empty.
        options: how images are checked, converted and stored.
        images: of a mask, the images that it may belong to.
    """
    if len(data) > options.max_bytes:
        return too_large(len(data), options)
    try:
        return normalize(data, options, os.path.splitext(path)[1].lower(), images)
    except ImageError as fault:
        return Rejected(fault.reason, fault.detail)


def checked_content(
    path: bytes, content: FetchedContent, options: ImageOptions, images: Sequence[Geometry]
) -> Normalized | Rejected:
    """Return the normalized image in what was read, or why it is rejected; see ``checked_image``."""
    if content.data is None:
        return too_large(content.size, options)
    return checked_image(content.data, path, options, images)


def too_large(num_bytes: int, options: ImageOptions) -> Rejected:
    """Return the rejection of a file of so many bytes."""
    return Rejected(Reason.TOO_LARGE, f"{num_bytes} bytes; at most {options.max_bytes}")


def read_unchanged(path: bytes, row: Row) -> bytes:
    """Return the bytes of a file.

    Raises:
        InputError: the file cannot be read, or its size or modification time differs from ``row``.
    """
    try:
        # os.open makes a third of the system calls of open, which matters for small files;
        # O_NONBLOCK, because the file may have become a pipe
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = _read_all(descriptor, row.size)
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InputError("unreadable", path=os.fsdecode(path), why=error.strerror) from None
    if (status.st_size, status.st_mtime_ns, len(data)) != (row.size, row.stamp, row.size):
        raise InputError("changed-file", path=os.fsdecode(path))
    return data


def _read_all(descriptor: int, size: int) -> bytes:
    """Return ``size`` bytes, or fewer if the file is shorter."""
    data = os.read(descriptor, size)
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data
