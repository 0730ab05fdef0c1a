"""Read one image file, check that it is unchanged since it was listed, and normalize the image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from tfshards.prep.imaging.masks import View
from tfshards.prep.imaging.normalize import Normalized, normalize
from tfshards.prep.imaging.options import CONVERSION, ImageOptions
from tfshards.prep.imaging.pillow import decoder_versions
from tfshards.prep.imaging.whitelist import ImageError
from tfshards.prep.sources.base import Rejected, Row
from tfshards.prep.sources.fetching import Content
from tfshards.schemas import Feature, InputError
from tfshards.schemas.json_reader import Json


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
    path: bytes, row: Row, options: ImageOptions, images: Sequence[View] = ()
) -> Normalized | Rejected:
    """Return the normalized image in a file, or why it is rejected; for ``images`` see ``normalize``.

    Raises:
        InputError: the file cannot be read, is missing, or has changed since it was listed.
    """
    if row.size > options.max_bytes:
        return too_large(row.size, options)
    return checked_image(read_unchanged(path, row), path, options, images)


def checked_image(
    data: bytes, path: bytes, options: ImageOptions, images: Sequence[View] = ()
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
    path: bytes, content: Content, options: ImageOptions, images: Sequence[View]
) -> Normalized | Rejected:
    """Return the normalized image in what was read, or why it is rejected; see ``checked_image``."""
    if content.data is None:
        return too_large(content.size, options)
    return checked_image(content.data, path, options, images)


def too_large(num_bytes: int, options: ImageOptions) -> Rejected:
    """Return the rejection of a file of so many bytes."""
    return Rejected("too large", f"{num_bytes} bytes; at most {options.max_bytes}")


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
