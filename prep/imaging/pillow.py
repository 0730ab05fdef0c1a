"""The decoder: open files with Pillow, report their headers, and name what others use of Pillow."""

from __future__ import annotations

import io
import logging
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.metadata import version
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias, cast

try:
    import PIL
    from PIL import Image as Image
    from PIL import ImageDraw as ImageDraw
    from PIL import ImageFile as ImageFile
    from PIL import TiffImagePlugin, UnidentifiedImageError
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f"images need {_error.name}: pip install 'tfshards[prep]'", name=_error.name
    ) from None

from tfshards.prep.imaging.formats import FORMATS, HEAD_BYTES, format_named, format_of
from tfshards.prep.imaging.jpeg import Structure, structure
from tfshards.prep.imaging.options import DEFAULT_MAX_PIXELS, MAX_FRAMES
from tfshards.prep.imaging.reasons import ImageError, Reason
from tfshards.schemas.errors import counted

# For modules that pass pictures on without importing Pillow.
Picture: TypeAlias = Image.Image


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


# Settings of Pillow, which belong to the process: training scripts often set the first one, the second is
# checked here, and messages of the third name no file.
_SETTINGS = (
    (ImageFile, "LOAD_TRUNCATED_IMAGES", False),
    (Image, "MAX_IMAGE_PIXELS", None),
    (logging.getLogger("PIL.TiffImagePlugin"), "disabled", True),
)
_lock = threading.Lock()
_users = 0
_restored = ExitStack()


@contextmanager
def opened(data: bytes, max_pixels: int = 2 * DEFAULT_MAX_PIXELS) -> Iterator[Image.Image]:
    """Open an image without Pillow's warnings and messages, whatever the settings of the process are.

    Whatever Pillow warns about is checked by this package.

    Raises:
        ImageError: the image cannot be opened, or decoded in the block, or has more than ``max_pixels``.
    """
    try:
        with _quiet(), Image.open(io.BytesIO(data), formats=formats()) as image:
            if image.width * image.height > max_pixels:
                sides = f"{image.width} x {image.height} pixels"
                raise ImageError(Reason.TOO_LARGE, f"{sides}; at most {max_pixels}")
            yield image
    except ImageError:
        raise
    except UnidentifiedImageError:
        why = _why_not_opened(data)
        if why is not None:
            raise ImageError(Reason.UNSUPPORTED, why) from None
        detail = f"starts with {data[:8].hex(' ')}, opens as none of {', '.join(formats())}"
        raise ImageError(Reason.UNREADABLE, detail) from None
    except Exception as error:  # Pillow's decoders raise almost anything for damaged bytes
        # what an OSError says needs no name
        detail = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}".strip()
        raise ImageError(Reason.DAMAGED, detail.encode("unicode_escape").decode()) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Set the settings of Pillow.

    The last thread restores them: if each had its own ``warnings.catch_warnings``, threads would restore each
    other's filters and leave them changed.
    """
    global _users
    with _lock:
        if not _users:
            _restored.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            for owner, name, value in _SETTINGS:
                _restored.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, value)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _restored.close()


class Header(NamedTuple):
    """What is known of an image whose pixels are not decoded yet: a file states more than Pillow applies.

    Attributes:
        format: by the table of formats.
        mode: Pillow's mode.
        size: width and height.
        num_frames: frames or pages; overviews of other pages do not count.
        bits: per sample in the file.
        has_profile: whether there is a color profile.
        is_transparent: whether one color, or one value of gray, is transparent.
        white: the number in the file that is decoded to white; None if numbers are decoded as they are.
        num_bands: bands of a TIFF, of which Pillow may drop some; else 0.
        compression: of a TIFF, by its number; else 0.
        is_signed: whether numbers of a TIFF are signed, which Pillow ignores for 8 bits.
        is_inverted: whether 0 is white in a TIFF, which Pillow applies up to 8 bits.
        built: structure of a JPEG.
    """

    format: str
    mode: str
    size: tuple[int, int]
    num_frames: int = 1
    bits: int = 8
    has_profile: bool = False
    is_transparent: bool = False
    white: int | None = None
    num_bands: int = 0
    compression: int = 0
    is_signed: bool = False
    is_inverted: bool = False
    built: Structure | None = None

    @property
    def depth(self) -> Literal["8", "gray", "color"]:
        """Whether samples have at most 8 bits, more in gray, or more that Pillow drops."""
        return "gray" if self.mode.startswith("I") else "color" if self.bits > 8 else "8"

    @property
    def kind(self) -> str:
        """Format, mode and bits as they are stored, such as ``JPEG, RGB, 8 bits``."""
        bits = 16 if self.depth != "8" else 1 if self.mode == "1" else 8
        return f"{self.format}, {self.mode.partition(';')[0]}, {bits} bits"


def header_of(image: Image.Image, data: bytes, built: Structure | None = None) -> Header:
    """Return what an opened image and its file state, and select its first frame that is not an overview.

    Args:
        image: its pixels are not loaded yet.
        data: content of its file.
        built: structure of a JPEG.
    """
    row, tags = format_named(image.format), _NO_TAGS
    if image.format == "TIFF":
        pages = [*islice(_pages_of(data), MAX_FRAMES + 1)]
        full = [number for number, each in enumerate(pages) if not (each[254] & 1 or each[255] == 2)] or [0]
        if full[0]:
            image.seek(full[0])
        tags, num_frames = pages[full[0]], len(full)
    else:
        num_frames = 1 if row.has_one_picture else getattr(image, "n_frames", 1)
    bits, white = tags[258] or _stated_bits(image, data), None
    if image.format == "PPM":
        # the layout of the samples, and the value of white
        args = cast("ImageFile.ImageFile", image).tile[0][3]
        white = int(str(args[1])) if isinstance(args, tuple) and len(args) == 2 else None
        bits = 8 if white is None else white.bit_length()
    elif image.mode == "1":
        white = 1
    elif image.format in ("PNG", "TIFF") and image.mode == "L" and bits < 8:
        white = (1 << bits) - 1
    return Header(
        row.name or str(image.format),
        image.mode,
        image.size,
        num_frames,
        bits,
        has_profile=bool(image.info.get("icc_profile")),
        is_transparent="transparency" in image.info,
        white=white,
        num_bands=tags[277],
        compression=tags[259],
        is_signed=tags[339] == 2,
        # Pillow takes a missing tag as 0 up to 8 bits
        is_inverted=tags[262] == 0 or (tags[262] < 0 and bits <= 8),
        built=built,
    )


# The codestream of a JPEG 2000 file: ISO 15444-1, A.5.1.
_CODESTREAM = re.compile(rb"\xff\x4f\xff\x51.{36}(..)", re.DOTALL)
# The configuration of the codec in an AVIF file, without its profile: AV1-ISOBMFF, 2.3.3.
_AV1 = re.compile(rb"av1C\x81.(.)", re.DOTALL)


def _stated_bits(image: Image.Image, data: bytes) -> int:
    """Return the largest number of bits per sample that the header of a file states."""
    if image.format == "PNG":
        return data[24]
    if image.format == "HEIF":
        return int(image.info.get("bit_depth", 8))
    if image.format == "AVIF":
        flags = [found[1][0] for found in _AV1.finditer(data)]
        return max((8 + (each >> 5 & 2) + (each >> 4 & 2) for each in flags), default=8)
    if image.format != "JPEG2000":
        return 8
    found = _CODESTREAM.search(data)
    channels = data[found.end() : found.end() + 3 * int.from_bytes(found[1], "big") : 3] if found else b""
    return max(((each & 0x7F) + 1 for each in channels), default=8)


# Tags of a page (TIFF 6.0, section 8) with their defaults: new and old kind of page, width, height, bits,
# compression, what 0 means (-1 if nothing is stated), bands, and format of samples.
_TAGS = {254: 0, 255: 1, 256: 0, 257: 0, 258: 1, 259: 1, 262: -1, 277: 1, 339: 1}
# Of other formats: nothing is stated, and 0 is black.
_NO_TAGS = dict.fromkeys(_TAGS, 0) | {262: 1}
_BIG_TIFF = 43


def _pages_of(data: bytes) -> Iterator[dict[int, int]]:
    """Yield tags of each page of a TIFF file, the largest value of each, up to the first damage."""
    file = io.BytesIO(data)
    seen: set[int] = set()
    try:
        tags = TiffImagePlugin.ImageFileDirectory_v2(data[: 16 if data[2] == _BIG_TIFF else 8])
        while tags.next and tags.next not in seen:
            seen.add(tags.next)
            file.seek(tags.next)
            tags.load(file)
            found = {tag: tags.get(tag, default) for tag, default in _TAGS.items()}
            # damaged tags may be text
            found |= {tag: _TAGS[tag] for tag, each in found.items() if isinstance(each, (str, bytes))}
            yield {tag: int(max(each) if isinstance(each, tuple) else each) for tag, each in found.items()}
    except Exception:  # the parser raises almost anything for damaged bytes
        return


def _why_not_opened(data: bytes) -> str | None:
    """Return why a sound file of a known format is not opened, or None if it is not one."""
    found = format_of(data[:HEAD_BYTES])
    if found is not None and found.name == "HEIF" and "HEIF" not in formats():
        return "HEIC; install tfshards[heic] to read it"
    if found is not None and found.name == "JPEG":
        frame = structure(data).frame
        is_deep = frame is not None and data[frame + 2 : frame + 3] == b"\x0c"
        return "JPEG of 12 bits per sample; convert it to PNG or TIFF" if is_deep else None
    with _quiet():
        tags = next(_pages_of(data), None)
    if tags is None or not tags[256] or not tags[257]:
        return None
    bands = f"{counted(tags[277], 'band')} of {'signed ' if tags[339] == 2 else ''}{tags[258]} bits"
    return f"TIFF of {bands}, compression {tags[259]}: 'tfshards build arrays' stores arrays of any bands"
