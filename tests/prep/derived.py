"""Datasets of every kind for the tests of derivation, and their records as values."""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tests.format_reader import companion, read_frame
from tests.pictures import small_png, write
from tfshards.loader import Records
from tfshards.prep import Arrays, ImageFolder, Options, build
from tfshards.schemas import Manifest, read_manifest

RATIOS = {"train": "0.7", "val": "0.2", "test": "0.1"}


def write_images(root: Path, numbers: Iterable[int], bad: Iterable[str] = ()) -> Path:
    """Write a different PNG for each number into one of two class folders, and files that are not images."""
    for number in numbers:
        write(root / ("cat", "dog")[number % 2] / f"{number:03d}.png", small_png(number))
    for name in bad:
        write(root / name, b"no image")
    return root


def build_images(folder: Path, compression: str = "none") -> Manifest:
    """60 images of two classes in three splits, and two that are rejected."""
    source = ImageFolder(write_images(folder / "photos", range(60), ("cat/x.png", "dog/y.png")))
    return _build(source, folder, Options(splits=RATIOS, max_rejected=1, compression=compression))


def build_arrays(folder: Path, compression: str = "none") -> Manifest:
    """101 rows in one split."""
    x = np.random.default_rng(0).integers(0, 256, (101, 40), dtype=np.uint8)
    source = Arrays({"x": x, "label": np.arange(101) % 3})
    return _build(source, folder, Options(compression=compression))


def _build(source: ImageFolder | Arrays, folder: Path, options: Options) -> Manifest:
    return build(source, folder / "old", shards=3, options=options)


def keys(root: Path) -> dict[str, list[str]]:
    """Return the keys of each split, in order."""
    splits = read_manifest(root).splits
    return {split: [os.fsdecode(each["key"]) for each in Records(root, split)] for split in splits}


def repeat_a_record(shard: Path) -> None:
    """Overwrite a record of a plain shard with another of the same length; all checksums remain valid."""
    data, frames, start = shard.read_bytes(), [], 0
    while start < len(data):
        end = start + 16 + len(read_frame(data, start, shard))
        frames.append(data[start:end])
        start = end
    one, other = next((a, b) for a in frames for b in frames if a != b and len(a) == len(b))
    shard.write_bytes(data.replace(one, other))


def flip(path: Path, at: int | None = None) -> Path:
    """Replace a file with a copy in which a bit is flipped, by default in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.unlink()
    path.write_bytes(data)
    return path


def first_shard(root: Path) -> Path:
    """Return the path of the first shard."""
    return root / read_manifest(root).shards[0].path


def first_labels(root: Path) -> Path:
    """Return the path of the labels of the first shard."""
    return root / companion(read_manifest(root).shards[0].path, "labels")
