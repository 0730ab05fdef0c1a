"""Import and configure Pillow; no other file imports it."""

from __future__ import annotations

import threading
import zlib
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from importlib.metadata import version
from typing import TypeAlias

try:
    import PIL
    from PIL import Image, ImageDraw, ImageFile, ImageFont, UnidentifiedImageError
    from PIL.PngImagePlugin import PngInfo
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f"images need {_error.name}: pip install 'tfshards[prep]'", name=_error.name
    ) from None

from tfshards.prep.imaging.formats import BY_SUFFIX_ALONE, FORMATS, SUFFIXES
from tfshards.prep.imaging.overrides import Inside, Overrides, Setting

__all__ = [
    "Image",
    "ImageDraw",
    "ImageFile",
    "ImageFont",
    "Picture",
    "PngInfo",
    "UnidentifiedImageError",
    "decoder_versions",
    "formats",
    "formats_of",
    "one_at_a_time",
    "own_settings",
]

# For modules that pass pictures on without importing Pillow.
Picture: TypeAlias = Image.Image

# Above this, images are decoded one at a time, so that threads do not multiply the memory.
_LARGE_PIXELS = 16_000_000
_large = threading.Lock()
_NO_LOCK = nullcontext()
_overrides = Overrides()


def decoder_versions(*, writes_deep: bool = False) -> dict[str, str]:
    """Return the versions of the packages that decode and encode; converted bytes depend on them.

    Args:
        writes_deep: whether images with 16 bits per sample are written, which Pillow does not do.
    """
    versions = {"pillow": PIL.__version__, **({"zlib": zlib.ZLIB_RUNTIME_VERSION} if writes_deep else {})}
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


@lru_cache(maxsize=256)
def formats_of(suffix: bytes) -> tuple[str, ...]:
    """Return the names of the formats that a file with this suffix may have."""
    return tuple(n for n in formats() if n not in BY_SUFFIX_ALONE or n == SUFFIXES.get(suffix))


def one_at_a_time(size: tuple[int, int]) -> AbstractContextManager[object]:
    """Return a lock that lets one thread at a time decode large images; small ones are not locked."""
    return _NO_LOCK if size[0] * size[1] < _LARGE_PIXELS else _large


@lru_cache(maxsize=8)
def own_settings(max_pixels: int, *, allows_truncated: bool = False) -> Inside:
    """Suppress Pillow's warnings, and make what it accepts independent of the process's settings.

    Whatever Pillow warns about is checked by this package. Pillow opens no image above twice ``max_pixels``.

    Args:
        max_pixels: number of pixels of the largest image.
        allows_truncated: whether what a damaged file holds is decoded, to show it to people.
    """
    # training scripts often set LOAD_TRUNCATED_IMAGES
    truncated = Setting(ImageFile, "LOAD_TRUNCATED_IMAGES", allows_truncated)
    return Inside(_overrides, (truncated, Setting(Image, "MAX_IMAGE_PIXELS", max_pixels)))
