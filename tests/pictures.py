"""Encoded pictures for tests."""

import io

import numpy as np
from PIL import Image


def image_file(picture: Image.Image | np.ndarray, kind: str = "PNG", **options: object) -> bytes:
    """Return the bytes of a file that holds a picture, or an array of pixels."""
    file = io.BytesIO()
    picture = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture
    picture.save(file, kind, **options)
    return file.getvalue()
