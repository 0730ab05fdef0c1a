"""The random crops and flips of images: a pure function of the seed, the epoch and the example."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from tfshards.loader.options.image import Image
from tfshards.loader.order.epoch import CROP, FLIP, random_bits
from tfshards.loader.order.ops import Array, Ops

MIN_AREA, MAX_AREA = 0.08, 1.0
MIN_ASPECT, MAX_ASPECT = 3 / 4, 4 / 3
ATTEMPTS = 10
_BITS = 24
AXES = ("vertical", "horizontal")


def draws_of(ops: Ops, images: Iterable[Image], epoch: Array, numbers: Array) -> dict[str, Array]:
    """Return the random draws for the examples ``numbers`` (int64) in an epoch, by name.

    ``box SEED`` has shape ``(numbers, ATTEMPTS, 4)`` float32, as in ``random_box``; ``flip SEED`` has
    shape ``(numbers, 2)`` bool: vertical and horizontal. Images of equal seeds share their draws.
    """
    draws = {}
    for image in images:
        if image.crop == "random":
            draws[f"box {image.seed}"] = _boxes(ops, image.seed, epoch, numbers)
        if image.flip:
            bits = random_bits(ops, image.seed, FLIP, epoch, numbers[:, None], np.arange(2))
            draws[f"flip {image.seed}"] = bits < 2**62
    return draws


def box_of(ops: Ops, sides: Array, image: Image, draws: Mapping[str, Array]) -> Array:
    """Return ``[top, left, height, width]`` int32 of an image's crop.

    Args:
        ops: the library of the arrays.
        sides: ``[height, width]`` int32 of the image.
        image: its options.
        draws: the random values of its example.
    """
    assert image.size is not None  # Image refuses a crop without a size
    if image.crop == "random":
        return random_box(ops, sides, image.size, draws[f"box {image.seed}"])
    return center_box(ops, sides, image.size)


def flips_of(image: Image, draws: Mapping[str, Array]) -> list[Array]:
    """Return whether an image with a flip is flipped vertically, and horizontally, as drawn."""
    drawn = draws[f"flip {image.seed}"]
    return [drawn[axis] & (word in (image.flip or "")) for axis, word in enumerate(AXES)]


def center_box(ops: Ops, sides: Array, size: tuple[int, int]) -> Array:
    """Return ``[top, left, height, width]`` int32 of the largest centered box with the ratio of ``size``."""
    across = sides[::-1] * np.array(size, np.int32) // np.array(size[::-1], np.int32)
    box = ops.minimum(sides, ops.maximum(np.int32(1), across))
    return ops.concat([(sides - box) // 2, box])


def random_box(ops: Ops, sides: Array, size: tuple[int, int], draws: Array) -> Array:
    """Return ``[top, left, height, width]`` int32 of the first drawn box that fits, or the centered one.

    Args:
        ops: the library of the arrays.
        sides: ``[height, width]`` int32 of the image.
        size: height and width of the result.
        draws: shape ``(ATTEMPTS, 4)`` float32: height and width relative to the square root of the image's
            area; top and left from 0 to 1, where 1 is the last possible position.
    """
    floats = ops.cast(sides, "float32")
    boxes = ops.cast(ops.rint(draws[:, :2] * ops.sqrt(floats[0] * floats[1])), "int32")
    fits = ops.all_of((boxes >= 1) & (boxes <= sides))
    first = ops.argmax(fits)
    box = boxes[first]
    last = sides - box
    corner = ops.cast(draws[first, 2:] * ops.cast(last + 1, "float32"), "int32")
    drawn = ops.concat([ops.minimum(corner, last), box])
    return ops.where(fits[first], drawn, center_box(ops, sides, size))


def _boxes(ops: Ops, seed: int, epoch: Array, numbers: Array) -> Array:
    """Return boxes for ``random_box``: area uniform and aspect ratio log-uniform within their limits."""
    words = np.arange(4 * ATTEMPTS).reshape(ATTEMPTS, 4)
    bits = random_bits(ops, seed, CROP, epoch, numbers[:, None, None], words)
    # In float64, because the last bit of exp() may depend on the library and on the index of a value;
    # rounding to whole pixels removes that bit.
    uniform = ops.cast(bits // 2 ** (63 - _BITS), "float64") / 2**_BITS
    area = MIN_AREA + uniform[..., 0] * (MAX_AREA - MIN_AREA)
    low, high = math.log(MIN_ASPECT), math.log(MAX_ASPECT)
    aspect = ops.exp(low + uniform[..., 1] * (high - low))
    sides = [ops.sqrt(area / aspect), ops.sqrt(area * aspect)]
    return ops.cast(ops.stack([*sides, uniform[..., 2], uniform[..., 3]], -1), "float32")
