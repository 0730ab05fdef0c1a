"""The pixels of a file as decoded by Pillow, with rules written independently of those of the build.

Of 16 bits the upper eight count, floating point numbers range from 0 to 1, alpha is composed on white, a file
shows its first frame (a TIFF the first that is no preview), and gray is 0.299 red, 0.587 green and 0.114
blue.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tests.programs import Programs

# as Pillow names what a build reads
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "HEIF", "PPM", "JPEG2000")
# By orientation: whether rows and columns are swapped, and which of them are then reversed.
_TURNS = {
    1: (False, 1, 1),
    2: (False, 1, -1),
    3: (False, -1, -1),
    4: (False, -1, 1),
    5: (True, 1, 1),
    6: (True, 1, -1),
    7: (True, -1, -1),
    8: (True, -1, 1),
}


def shown(kind, channels=3, **_) -> np.ndarray:
    """Return the picture as uint8 of shape (height, width, 1, 3 or 4); gray is repeated in three channels."""
    values = _eight_bits(kind.data, formats()) if kind.pixels is None else kind.pixels
    # Pillow rotates a TIFF itself
    is_tiff = kind.suffix.startswith(".tif")
    swapped, down, across = _TURNS[kind.orientation]
    if not is_tiff:
        values = (values.swapaxes(0, 1) if swapped else values)[::down, ::across]
    if values.shape[2] == 4 and channels != 4:
        colors, opacity = values[..., :3].astype(int), values[..., 3:].astype(int)
        values = np.rint((colors * opacity + 255 * (255 - opacity)) / 255).astype(np.uint8)
    if channels == 1:
        weights = np.array([19_595, 38_470, 7_471])
        return ((values[..., :3] @ weights + 0x8000) >> 16).astype(np.uint8)[..., None]
    if channels == 4 and values.shape[2] == 3:
        return np.concatenate([values, np.full_like(values[..., :1], 255)], axis=2)
    return values


def formats() -> list[str]:
    """Return the formats that are read, as named by Pillow."""
    Image.init()
    return [name for name in _FORMATS if name in Image.OPEN]


def _eight_bits(data: bytes, formats: list[str]) -> np.ndarray:
    """Return the first frame as it is stored, in RGB or RGBA."""
    with Image.open(io.BytesIO(data), formats=formats) as image:
        if image.format == "TIFF":
            _seek_picture(image)
        image.load()
        has_alpha = image.has_transparency_data
        if image.mode.startswith("I") or image.mode == "F":
            values = np.asarray(image)
            bits = image.tag_v2[258][0] if image.format == "TIFF" and image.mode == "I;16" else 16
            gray = np.rint(values * 255) if image.mode == "F" else values >> bits - 8
            if image.format == "TIFF" and image.tag_v2.get(262) == 0:
                # 0 is white, which Pillow applies up to 8 bits
                gray = np.rint((1 - values) * 255) if image.mode == "F" else 255 - gray
            opacity = np.where(values == image.info["transparency"], 0, 255) if has_alpha else None
            parts = [gray] * 3 + ([opacity] if has_alpha else [])
            return np.stack(parts, axis=2).astype(np.uint8)
        return np.asarray(image.convert("RGBA" if has_alpha else "RGB"))


def _seek_picture(image: Image.Image) -> None:
    """Go to the first page of a TIFF that is not marked as a preview, by NewSubfileType or SubfileType."""
    number = 0
    while _is_preview(image):
        number += 1
        try:
            image.seek(number)
        except (EOFError, SyntaxError, TypeError, ValueError, KeyError):
            image.seek(0)
            return


def _is_preview(image: Image.Image) -> bool:
    new, old = (image.tag_v2.get(tag, 0) for tag in (254, 255))
    # a damaged tag may be text
    is_reduced = isinstance(new, int) and bool(new & 1)
    return is_reduced or (old[0] if isinstance(old, tuple) else old) == 2


def difference(pixels: np.ndarray, wanted: np.ndarray) -> str:
    """Return how pixels differ from the expected ones; empty if they do not."""
    if pixels.shape != wanted.shape:
        return f"shape {pixels.shape}, not {wanted.shape}"
    steps = np.abs(pixels.astype(int) - wanted)
    if not steps.any():
        return ""
    return f"differs by up to {steps.max()}, {steps.mean():.2f} on average"


# TensorFlow's decoders in processes of their own, which no file may end


class TensorFlow:
    """Decodes many images in a process that has already imported TensorFlow."""

    def __init__(self, folder: Path, programs: Programs) -> None:
        self.folder, self.programs, self.num_batches = folder, programs, 0

    def decode(self, encoded: Sequence[bytes], channels: int = 3) -> list[np.ndarray]:
        """Return the pixels of each image, or an empty array for those that TensorFlow refuses."""
        self.num_batches += 1
        path = self.folder / f"{self.num_batches}.npz"
        np.savez(path, *(np.frombuffer(data, np.uint8) for data in encoded))
        ended = self.programs.run([Path(__file__).with_name("decode_all.py"), path, channels])
        assert ended.returncode == 0, f"ended with {ended.returncode}; {path} has what killed it"
        with np.load(f"{path}.pixels.npz") as pixels:
            return [pixels[f"arr_{number}"] for number in range(len(encoded))]
