"""Small inputs of each kind."""

import os
from pathlib import Path

import numpy as np

from tests.pictures import STAMP, image_file, write

BAD = (3, 11, 17)


def write_inputs(folder: Path) -> None:
    """Write an image folder with a few files that are rejected, and an array."""
    for number in range(24):
        write(folder / "photos" / ("cat", "dog")[number % 2] / f"{number:02}.bmp", image(number))
    for number in BAD:
        write(folder / "photos" / "cat" / f"bad-{number:02}.bmp", b"no image")
    np.save(folder / "x.npy", np.arange(6_000).reshape(60, 100))
    os.utime(folder / "x.npy", ns=(STAMP, STAMP))


def image(number: int, side: int = 40) -> bytes:
    """Return a BMP, which a build has to re-encode."""
    pixels = np.random.default_rng(number).integers(0, 256, (side, side + number, 3), dtype=np.uint8)
    return image_file(pixels, "BMP")
