"""Import and configure Pillow; no other file imports it."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from importlib.metadata import version
from typing import IO, TypeAlias

try:
    import PIL
    from PIL import Image, ImageDraw, ImageFile, UnidentifiedImageError
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f"images need {_error.name}: pip install 'tfshards[prep]'", name=_error.name
    ) from None

from tfshards.prep.imaging.formats import FORMATS
from tfshards.prep.imaging.options import DEFAULT_MAX_PIXELS

__all__ = [
    "Image",
    "ImageDraw",
    "ImageFile",
    "Picture",
    "UnidentifiedImageError",
    "decoder_versions",
    "formats",
    "one_at_a_time",
    "opened",
]

# For modules that pass pictures on without importing Pillow.
Picture: TypeAlias = Image.Image

# Above this, images are decoded one at a time, so that threads do not multiply the memory.
_LARGE_PIXELS = 16_000_000
_large = threading.Lock()
_NO_LOCK = nullcontext()


def decoder_versions() -> dict[str, str]:
    """Return the versions of the packages that decode and encode."""
    versions = {"pillow": PIL.__version__}
    if "HEIF" in formats():
        versions["pillow_heif"] = version("pillow-heif")
    return versions


@cache
def formats() -> tuple[str, ...]:
    """Return the names of the formats that can be read, the most common first."""
    names = dict.fromkeys(row.name for row in FORMATS)
    try:
        import pillow_heif

        pillow_heif.register_heif_opener(thumbnails=False)
    except ImportError:
        del names["HEIF"]
    return tuple(names)


def one_at_a_time(size: tuple[int, int]) -> AbstractContextManager[object]:
    """Return a lock that lets one thread at a time decode large images; small ones are not locked."""
    return _NO_LOCK if size[0] * size[1] < _LARGE_PIXELS else _large


_lock = threading.Lock()
_users = 0
_restored = ExitStack()


@contextmanager
def opened(
    data: bytes | IO[bytes],
    allowed: tuple[str, ...] | None = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    *,
    allows_truncated: bool = False,
) -> Iterator[Image.Image]:
    """Open an image without Pillow's warnings, whatever the settings of the process are.

    Whatever Pillow warns about is checked by this package. Pillow opens no image above twice ``max_pixels``;
    of several threads, the largest value applies. The last one restores the settings: if each had its own
    ``warnings.catch_warnings``, threads would restore each other's filters and leave them changed.
    """
    global _users
    # training scripts often set LOAD_TRUNCATED_IMAGES
    truncated = (ImageFile, "LOAD_TRUNCATED_IMAGES", allows_truncated)
    with _lock:
        if not _users:
            _restored.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        for module, name, value in (truncated, (Image, "MAX_IMAGE_PIXELS", max_pixels)):
            before = getattr(module, name)
            if not _users:
                _restored.callback(setattr, module, name, before)
            setattr(module, name, max(before, value) if _users else value)
        _users += 1
    try:
        file = io.BytesIO(data) if isinstance(data, bytes) else data
        with Image.open(file, formats=allowed or formats()) as image:
            yield image
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _restored.close()
