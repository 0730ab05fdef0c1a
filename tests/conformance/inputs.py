"""Inputs of rows: files that are written from plain values."""

import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from PIL import Image

from tests.pictures import STAMP, image_file

# what no message may quote of a file outside of the source
SECRET = "root:x:0:0"
# Hugging Face's type of images
HF_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@dataclass(frozen=True)
class Link:
    """A symbolic link in place of a file."""

    target: str


def write(files: Mapping[str, Any], root: Path) -> None:
    """Write files below a folder.

    A number is a small PNG, text and bytes are written as they are, None is an empty folder, an array is
    encoded by the suffix of its file, and so are a dict of arrays (.npz), a dict of columns (.parquet), and a
    list (.jsonl) or a dict (.json) of plain values.
    """
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir(exist_ok=True)
        elif isinstance(content, Link):
            path.symlink_to(content.target)
        else:
            path.write_bytes(encoded(path.suffix.lower(), content))
            os.utime(path, ns=(STAMP, STAMP))


def encoded(suffix: str, content: Any) -> bytes:
    """Return the bytes of a file with a suffix."""
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return os.fsencode(content)
    if isinstance(content, int):
        return png(content)
    file = io.BytesIO()
    if suffix == ".npy":
        np.save(file, content, allow_pickle=False)
    elif suffix == ".npz":
        np.savez(file, **content)
    elif suffix == ".parquet":
        pyarrow.parquet.write_table(content if isinstance(content, pa.Table) else pa.table(content), file)
    elif suffix == ".jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content).encode()
    elif suffix == ".json":
        return json.dumps(content).encode()
    else:
        return picture(content, suffix)
    return file.getvalue()


def pixels(number: int, channels: int = 3) -> np.ndarray:
    """Return the pixels of picture ``number``: its size and its content differ from those of others."""
    shape = (5 + number % 4, 6 + number % 3) + ((channels,) if channels > 1 else ())
    return np.random.default_rng(number).integers(0, 256, shape, np.uint8)


def picture(array: np.ndarray | Image.Image, suffix: str = ".png", **options: Any) -> bytes:
    """Return pixels as a file."""
    kinds = {".jpg": "JPEG", ".jpeg": "JPEG", ".tif": "TIFF"}
    return image_file(array, kinds.get(suffix, suffix[1:].upper()), **options)


def png(number: int) -> bytes:
    """Return picture ``number`` as PNG, which builds store as it is."""
    return picture(pixels(number))


def jpeg(number: int, **options: Any) -> bytes:
    """Return picture ``number`` as JPEG, which builds store as it is."""
    return picture(pixels(number), ".jpg", **{"quality": 95, **options})


def hf_table(columns: Mapping[str, Any], features: Mapping[str, Any]) -> pa.Table:
    """Return a table with the metadata that Hugging Face's datasets write."""
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.table(dict(columns)).replace_schema_metadata(metadata)
