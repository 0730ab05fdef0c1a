"""Images with more than 8 bits per sample: recognize them, and read and write their exact samples.

Pillow has no pictures of several channels of 16 bits: it drops the lower byte of each sample. So these images
are decoded twice, the second time for the lower bytes.
"""

from __future__ import annotations

import io
import struct
import sys
import zlib
from typing import IO, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.imaging.pillow import Image, ImageFile, opened
from tfshards.prep.imaging.whitelist import ImageError
from tfshards.schemas.reasons import Reason

# Shape (height, width, channels): gray, gray and alpha, RGB, RGBA.
Samples: TypeAlias = "npt.NDArray[np.uint16]"

WHITE = 0xFFFF
_WHITE_OF_12 = 0xFFF
_BITS_PER_SAMPLE, _PLANES = 258, 284
# Pillow's names for the order of the bytes of a sample, and the order by which it reads the other byte.
_OTHER_BYTE = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}
# Pillow reads only the upper bytes of a PNG with gray and alpha; as RGBA it reads all four bytes.
_GRAY_ALPHA = "LA;16B"
_CODESTREAM = b"\xff\x4f\xff\x51"
_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_COLORS = {1: 0, 2: 4, 3: 2, 4: 6}
_PNG_LEVEL = 3
_ROWS = 64


def is_deep(image: Image.Image) -> bool:
    """Return whether an image, whose pixels are not loaded yet, has more than 8 bits per sample."""
    return _is_gray_or_float(image) or has_deep_colors(image)


def file_depth(file: IO[bytes]) -> Literal["8", "deep", "float"]:
    """Return whether the header of an image file has 8 bits per sample, more, or floats; "8" if damaged."""
    try:
        with opened(file) as image:
            if image.mode == "F":
                return "float"
            return "deep" if is_deep(image) else "8"
    except Exception:  # the build reports what is wrong with the file
        return "8"


def has_deep_colors(image: Image.Image) -> bool:
    """Return whether Pillow would drop the lower bits of an image, whose pixels are not loaded yet."""
    if _is_gray_or_float(image):
        return False
    if image.format == "JPEG2000":
        return _jpeg2000_bits(cast("IO[bytes]", cast("ImageFile.ImageFile", image).fp)) > 8
    tags: dict[int, tuple[int, ...]] = getattr(image, "tag_v2", {})
    if max(tags.get(_BITS_PER_SAMPLE, (8,))) > 8:
        return True
    return any(_is_deep_tile(tile, image.format) for tile in cast("ImageFile.ImageFile", image).tile)


def _is_deep_tile(tile: ImageFile._Tile, name: str | None) -> bool:
    """Return whether the arguments of Pillow's decoder of a PNG or PPM file state more than 8 bits."""
    args = tile[3]
    if name == "PPM":
        # the layout of the samples, and the value of white
        return isinstance(args, tuple) and len(args) == 2 and int(str(args[1])) > 0xFF
    return name == "PNG" and ";16" in _layout(args)


def _is_gray_or_float(image: Image.Image) -> bool:
    return image.mode.startswith("I") or image.mode == "F"


def _jpeg2000_bits(file: IO[bytes]) -> int:
    """Return the bits per sample of the first channel of a JPEG 2000 file; 8 if they are not found."""
    offset = file.tell()
    file.seek(0)
    head = file.read(1 << 12)
    file.seek(offset)
    start = head.find(_CODESTREAM)
    # the marker of the image's size, and 36 bytes on, the number of channels: ISO 15444-1, A.5.1
    bits = head[start + 42 : start + 43] if start >= 0 else b""
    return (bits[0] & 0x7F) + 1 if bits else 8


def samples_of(image: Image.Image, data: bytes, *, has_colors: bool) -> Samples:
    """Return the exact samples of a loaded image with more than 8 bits per sample, rotated if Pillow does so.

    Raises:
        ImageError: they do not fit 16 bits, or cannot be read exactly.
    """
    values = _colors(data, image) if has_colors else _gray(image)
    clear = image.info.get("transparency")
    if clear is None:
        return values
    alpha = np.where((values == np.asarray(clear)).all(axis=2, keepdims=True), 0, WHITE).astype(np.uint16)
    return np.concatenate([values, alpha], axis=2)


def _gray(image: Image.Image) -> Samples:
    if image.mode == "F":
        raise ImageError(
            Reason.UNSUPPORTED,
            "mode F: floats do not fit 16 bits; 'tfshards build arrays' stores them as float32",
        )
    values = np.asarray(image)
    if not ((values >= 0) & (values <= WHITE)).all():
        raise ImageError(Reason.UNSUPPORTED, f"mode {image.mode}: has values outside of 0 to {WHITE}")
    tags: dict[int, tuple[int, ...]] = getattr(image, "tag_v2", {})
    if image.mode == "I;16" and tags.get(_BITS_PER_SAMPLE) == (12,):
        # as for PGM, whose header states the value of white, and as for files of 8 bits
        values = (values.astype(np.uint32) * WHITE + _WHITE_OF_12 // 2) // _WHITE_OF_12
    return values.astype(np.uint16)[:, :, np.newaxis]


def _colors(data: bytes, image: Image.Image) -> Samples:
    with Image.open(io.BytesIO(data), formats=(image.format or "",)) as again:
        tiles = again.tile
        layouts = {_layout(tile[3]) for tile in tiles}
        planes = getattr(again, "tag_v2", {}).get(_PLANES, 1)
        (layout,) = layouts if len(layouts) == 1 else ("",)
        if planes != 1 or layout[:-1] not in ("RGB;16", "RGBA;16", _GRAY_ALPHA[:-1]):
            raise ImageError(
                Reason.UNSUPPORTED,
                f"{image.format} of mode {image.mode} with more than 8 bits per sample, in a layout whose "
                "lower bits cannot be read; convert it to PNG",
            )
        is_gray = layout == _GRAY_ALPHA
        other = "RGBA" if is_gray else layout[:-1] + _OTHER_BYTE[layout[-1]]
        again.tile = [tile._replace(args=_with_layout(tile[3], other)) for tile in tiles]
        found = np.asarray(again)
    if is_gray:
        # upper and lower byte of gray, then of alpha
        upper, lower = found[:, :, ::2], found[:, :, 1::2]
    else:
        upper, lower = np.asarray(image), found
    samples: Samples = upper * np.uint16(256) + lower
    return samples


def _layout(args: object) -> str:
    """Return the layout of the samples in the arguments of a decoder."""
    return str(args[0] if isinstance(args, tuple) else args)


def _with_layout(args: tuple[object, ...] | str | None, layout: str) -> tuple[object, ...] | str:
    return (layout, *args[1:]) if isinstance(args, tuple) else layout


def turned(values: Samples, orientation: int) -> Samples:
    """Return the samples rotated upright by an EXIF orientation from 2 to 8."""
    if orientation >= 5:
        values = values.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        values = values[::-1]
    return values[:, ::-1] if orientation in (2, 3, 6, 7) else values


def over_white(values: Samples) -> Samples:
    """Return samples with an alpha channel, blended over white and rounded."""
    wide = values.astype(np.uint64)
    alpha = wide[:, :, -1:]
    blended = wide[:, :, :-1] * alpha + WHITE * (WHITE - alpha)
    return ((blended + WHITE // 2) // WHITE).astype(np.uint16)


def to_gray(values: Samples) -> Samples:
    """Return the luma of RGB samples, with the weights of ITU-R 601-2, as Pillow computes it of 8 bits."""
    weights = np.array([19595, 38470, 7471], dtype=np.uint64)
    return ((values.astype(np.uint64) @ weights + 0x8000) >> 16).astype(np.uint16)[:, :, np.newaxis]


def resized(values: Samples, size: tuple[int, int]) -> Samples:
    """Return samples resized to ``(width, height)`` by the Lanczos filter, in float32, and rounded."""
    planes = values.astype(np.float32)
    if values.shape[2] == 4:
        # what is transparent has no weight
        planes[:, :, :3] *= planes[:, :, 3:] / WHITE
    whole = np.stack(
        [
            np.asarray(Image.fromarray(planes[:, :, index]).resize(size, Image.Resampling.LANCZOS))
            for index in range(values.shape[2])
        ],
        axis=2,
    )
    if values.shape[2] == 4:
        whole[:, :, :3] *= WHITE / np.maximum(whole[:, :, 3:], 1)
    rounded: Samples = np.rint(whole).clip(0, WHITE).astype(np.uint16)
    return rounded


def nearest(values: Samples, size: tuple[int, int]) -> Samples:
    """Return samples of one channel resized to ``(width, height)`` without mixing values."""
    picture = Image.fromarray(values[:, :, 0]).resize(size, Image.Resampling.NEAREST)
    return np.asarray(picture)[:, :, np.newaxis]


def encode_png(values: Samples) -> bytes:
    """Return a PNG file with 16 bits per sample.

    Each row has the filter of the least sum.
    """
    height, width, channels = values.shape
    step = 2 * channels
    packer = zlib.compressobj(_PNG_LEVEL)
    packed = []
    above = np.zeros((1, width * step), np.uint8)
    for start in range(0, height, _ROWS):
        rows = values[start : start + _ROWS].astype(">u2", order="C").view(np.uint8).reshape(-1, width * step)
        packed.append(packer.compress(_filtered(rows, np.concatenate([above, rows[:-1]]), step)))
        above = rows[-1:]
    packed.append(packer.flush())
    header = struct.pack(">II5B", width, height, 16, _PNG_COLORS[channels], 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", b"".join(packed)), (b"IEND", b"")]
    return _PNG_START + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def _filtered(rows: npt.NDArray[np.uint8], above: npt.NDArray[np.uint8], step: int) -> bytes:
    """Return rows, each after the number of its filter: 1 from the left, 2 from above, 4 Paeth's."""
    left, corner = np.zeros_like(rows), np.zeros_like(rows)
    left[:, step:], corner[:, step:] = rows[:, :-step], above[:, :-step]
    a, b, c = (part.astype(np.int16) for part in (left, above, corner))
    near_a, near_b, near_c = np.abs(b - c), np.abs(a - c), np.abs(a + b - 2 * c)
    paeth = np.where((near_a <= near_b) & (near_a <= near_c), left, np.where(near_b <= near_c, above, corner))
    candidates = np.stack([rows - left, rows - above, rows - paeth])
    sums = np.abs(candidates.view(np.int8).astype(np.int16)).sum(axis=2)
    best = sums.argmin(axis=0)
    numbers = np.array([1, 2, 4], np.uint8)[best]
    return np.concatenate([numbers[:, np.newaxis], candidates[best, np.arange(len(rows))]], axis=1).tobytes()
