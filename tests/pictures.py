"""Small files of inputs: encoded pictures, and files with one modification time."""

import io
import os
from pathlib import Path

import numpy as np
from PIL import Image

# Modification times are part of the build id; with one time for all files, equal files are equal inputs.
STAMP = 1_600_000_000 * 10**9


def image_file(picture: Image.Image | np.ndarray, kind: str = "PNG", **options: object) -> bytes:
    """Return the bytes of a file that holds a picture, or an array of pixels."""
    file = io.BytesIO()
    picture = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture
    picture.save(file, kind, **options)
    return file.getvalue()


def small_png(number: int) -> bytes:
    """Return a PNG of random pixels whose sides also depend on its number."""
    side = 4 + number % 5
    return image_file(np.random.default_rng(number).integers(0, 256, (side, side, 3), dtype=np.uint8))


def write(path: str | Path, data: bytes | str) -> Path:
    """Write a file with the fixed modification time, and the folders above it; return its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    os.utime(path, ns=(STAMP, STAMP))
    return path
