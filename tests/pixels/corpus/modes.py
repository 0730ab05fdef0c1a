"""One picture in each mode of Pillow."""

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 33, 25


def smooth() -> np.ndarray:
    """Return an image without symmetry, smooth enough for JPEG."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    return np.stack([columns * 7 % 256, rows * 9 % 256, (columns + rows) * 4 % 256], -1).astype(np.uint8)


def noise(channels: int = 3, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (HEIGHT, WIDTH, channels), dtype=np.uint8)


RGB = Image.fromarray(smooth())
OTHER = Image.fromarray(smooth()[::-1, ::-1].copy())
GRAY = RGB.convert("L")
BILEVEL = Image.fromarray(noise()[..., 0] > 99)
PALETTE = RGB.quantize(16)
RGBA = Image.fromarray(noise(4), "RGBA")
GRAY_ALPHA = Image.fromarray(noise(2), "LA")
CMYK = Image.fromarray(255 - smooth()).convert("CMYK")
# The same picture in every 16-bit mode.
WORDS = (noise().astype(np.uint16) << 8 | noise(seed=8))[..., 0]
GRAY_16 = Image.fromarray(WORDS)
