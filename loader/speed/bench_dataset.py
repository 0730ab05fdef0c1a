"""``bench`` with options that are texts and numbers, and images of a usual size."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from tfshards.loader.options.image import Image
from tfshards.loader.options.selection import Shuffle
from tfshards.schemas import InputError, OptionsError, read_manifest

if TYPE_CHECKING:
    from tfshards.loader.speed.bench import Speeds


def bench(
    dataset: str | os.PathLike[str],
    split: str | None = None,
    *,
    batch_size: int = 32,
    select: Sequence[str] | None = None,
    shuffle: int | None = None,
    size: str | None = None,
    crop: Literal["center", "random", "shift"] | None = None,
    seconds: float = 2.0,
) -> Speeds:
    """Measure how fast this machine reads a dataset, stage by stage.

    Local files are read from the page cache; of a large split the first 512 MiB are read again and again.

    Args:
        dataset: folder of the dataset, or its URL.
        split: name of the split; by default the only one.
        batch_size: examples per batch.
        select: feature to deliver; by default all.
        shuffle: seed of a random order; by default the stored order.
        size: size of decoded images, as HEIGHTxWIDTH, or "none" to leave them encoded; by default 224x224 if
            there are images.
        crop: how to crop images; by default the whole image is resized.
        seconds: time to measure each stage.

    Raises:
        OptionsError: an argument is not valid, or does not fit the dataset.
        InputError: there is no dataset, or no such split in it.
    """
    has_images = any(feature.is_encoded for feature in read_manifest(dataset).schema.features)
    if not has_images and size not in (None, "none"):
        raise OptionsError(f"size={size!r} is for images, which {dataset} does not have; leave it out")
    sides = _sides(size or ("224x224" if has_images else "none"))
    if sides is None and crop:
        raise OptionsError(f"crop={crop!r} needs images of a fixed size, such as size=224x224")
    # leaves out what TensorFlow logs about processors and GPUs while it is imported
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    from tfshards import loader

    try:
        return loader.bench(
            dataset,
            split,
            batch_size=batch_size,
            select=select,
            shuffle=None if shuffle is None else Shuffle(seed=shuffle),
            image=None if sides is None else Image(size=sides, crop=crop),
            seconds=seconds,
        )
    except tf.errors.InvalidArgumentError:
        text = f"{dataset} has damaged records: `tfshards verify {dataset} --deep` lists them"
        raise InputError(text, code="shard-damaged") from None


def _sides(text: str) -> tuple[int, int] | None:
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()) and text != "none":
        raise OptionsError(f"size={text!r} must be HEIGHTxWIDTH, such as 224x224, or none")
    return None if text == "none" else (int(height), int(width))
