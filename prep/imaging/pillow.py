"""Pillow: the one file that imports it, with the settings that it is used with."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from importlib.metadata import version
from typing import TypeAlias

import PIL
from PIL import Image, ImageFile, UnidentifiedImageError

from tfshards.prep.imaging.formats import BY_SUFFIX_ALONE, FORMATS, SUFFIXES
from tfshards.prep.imaging.overrides import Inside, Overrides, Setting

__all__ = [
    "Image",
    "Picture",
    "UnidentifiedImageError",
    "decoder_versions",
    "formats",
    "formats_of",
    "one_at_a_time",
    "own_settings",
]

# For those who pass pictures on without importing Pillow.
Picture: TypeAlias = Image.Image

# Above this, images are decoded one at a time, so that threads do not multiply the memory.
_LARGE_PIXELS = 16_000_000
_large = threading.Lock()
_NO_LOCK = nullcontext()
_overrides = Overrides()


def decoder_versions() -> dict[str, str]:
    """Return the releases of the packages that decode and encode: what is converted depends on them."""
    versions = {"pillow": PIL.__version__}
    if "HEIF" in formats():
        versions["pillow_heif"] = version("pillow-heif")
    return versions


@cache
def formats() -> tuple[str, ...]:
    """Return the names of the formats that are read here, the commonest first."""
    names = dict.fromkeys(row.name for row in FORMATS)
    try:
        import pillow_heif

        pillow_heif.register_heif_opener(thumbnails=False)
    except ImportError:
        del names["HEIF"]
    return tuple(names)


@lru_cache(maxsize=256)
def formats_of(suffix: bytes) -> tuple[str, ...]:
    """Return the names of the formats that a file with this suffix may be."""
    return tuple(n for n in formats() if n not in BY_SUFFIX_ALONE or n == SUFFIXES.get(suffix))


def one_at_a_time(size: tuple[int, int]) -> AbstractContextManager[object]:
    """Let no other thread decode a large image meanwhile."""
    return _NO_LOCK if size[0] * size[1] < _LARGE_PIXELS else _large


@lru_cache(maxsize=8)
def own_settings(max_pixels: int) -> Inside:
    """Keep Pillow from warning, and let it accept the same whatever the process has set.

    All that it warns about is decided here. Above twice ``max_pixels`` it opens nothing.
    """
    # training scripts like to set the first
    truncated = Setting(ImageFile, "LOAD_TRUNCATED_IMAGES", False)
    return Inside(_overrides, (truncated, Setting(Image, "MAX_IMAGE_PIXELS", max_pixels)))
