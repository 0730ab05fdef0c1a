"""The random crops and flips of images: a pure function of the seed, the epoch and the example."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tfshards.loader.examples.ops import Array, Ops
from tfshards.loader.options.image import Image
from tfshards.loader.order.epoch import CROP, FLIP, random_bits
from tfshards.schemas.index import IntArray as Ints

ATTEMPTS = 10
_BITS = 24
AXES = ("vertical", "horizontal")
# libpng's weights of red, green and blue for gray, as TensorFlow asks for them, of 1 << GRAY_SHIFT.
GRAY_WEIGHTS, GRAY_SHIFT = (9797, 19234, 3737), 15


def draws_of(images: Iterable[Image], epoch: int, numbers: Ints) -> dict[str, npt.NDArray[Any]]:
    """Return the random draws for the examples ``numbers`` (int64) in an epoch, by name.

    Crops have the name ``crop_name``: shape ``(numbers, ATTEMPTS, 4)`` float32, as in ``random_box``, or
    ``(numbers, 2)``, as in ``shifted_box``. ``flip SEED`` has shape ``(numbers, 2)`` bool: vertical and
    horizontal. Images of equal seeds share their draws.
    """
    draws: dict[str, npt.NDArray[Any]] = {}
    for image in images:
        if image.crop == "random":
            draws[crop_name(image)] = _boxes(image, epoch, numbers)
        if image.crop == "shift":
            draws[crop_name(image)] = _uniform(image.seed, epoch, numbers, [2]).astype(np.float32)
        if image.flip:
            bits = random_bits(image.seed, FLIP, epoch, numbers[:, np.newaxis], np.arange(2))
            draws[f"flip {image.seed}"] = bits < 2**62
    return draws


def crop_name(image: Image) -> str:
    """Return the name of the random draws for the crop of an image."""
    return f"{image.crop} {image.seed} {image.scale} {image.ratio}"


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
        return random_box(ops, sides, image.size, draws[crop_name(image)])
    if image.crop == "shift":
        return shifted_box(ops, sides, image.size, draws[crop_name(image)])
    return center_box(ops, sides, image.size, image.crop_fraction)


def flips_of(image: Image, draws: Mapping[str, Array]) -> list[Array]:
    """Return whether an image with a flip is flipped vertically, and horizontally, as drawn."""
    drawn = draws[f"flip {image.seed}"]
    return [drawn[axis] & (word in (image.flip or "")) for axis, word in enumerate(AXES)]


def center_box(ops: Ops, sides: Array, size: tuple[int, int], fraction: float = 1.0) -> Array:
    """Return ``[top, left, height, width]`` int32 of a centered box with the aspect ratio of ``size``.

    Its sides are a fraction of the largest such box.
    """
    across = sides[::-1] * np.array(size, np.int32) // np.array(size[::-1], np.int32)
    box = ops.minimum(sides, ops.maximum(np.int32(1), across))
    if fraction < 1:
        part = ops.rint(ops.cast(box, "float32") * np.float32(fraction))
        box = ops.maximum(np.int32(1), ops.cast(part, "int32"))
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
    drawn = _placed(ops, sides - box, box, draws[first, 2:])
    return ops.where(fits[first], drawn, center_box(ops, sides, size))


def shifted_box(ops: Ops, sides: Array, size: tuple[int, int], draws: Array) -> Array:
    """Return ``[top, left, height, width]`` int32 of a box of ``size``; the centered one if it does not fit.

    ``draws`` are top and left from 0 to 1, shape ``(2,)`` float32.
    """
    box = np.array(size, np.int32)
    last = sides - box
    drawn = _placed(ops, last, box, draws)
    return ops.where(ops.all_of(last >= 0), drawn, center_box(ops, sides, size))


def _placed(ops: Ops, last: Array, box: Array, draws: Array) -> Array:
    """Return a box whose corner is drawn from 0 to ``last``."""
    corner = ops.cast(draws * ops.cast(last + 1, "float32"), "int32")
    return ops.concat([ops.minimum(corner, last), box])


def _boxes(image: Image, epoch: int, numbers: Ints) -> npt.NDArray[np.float32]:
    """Return boxes for ``random_box``: area uniform and aspect ratio log-uniform within their limits."""
    uniform = _uniform(image.seed, epoch, numbers, [ATTEMPTS, 4])
    area = image.scale[0] + uniform[..., 0] * (image.scale[1] - image.scale[0])
    low, high = map(math.log, image.ratio)
    aspect = np.exp(low + uniform[..., 1] * (high - low))
    sides = [np.sqrt(area / aspect), np.sqrt(area * aspect)]
    return np.stack([*sides, uniform[..., 2], uniform[..., 3]], -1).astype(np.float32)


def _uniform(seed: int, epoch: int, numbers: Ints, shape: list[int]) -> npt.NDArray[np.float64]:
    """Return uniform draws from 0 to 1, without 1, of this shape for each example.

    In float64, because the last bit of exp() may depend on the library and on the index of a value;
    rounding to whole pixels removes that bit.
    """
    words = np.arange(math.prod(shape)).reshape(shape)
    bits = random_bits(seed, CROP, epoch, numbers.reshape(-1, *[1] * len(shape)), words)
    drawn: npt.NDArray[np.float64] = (bits >> 63 - _BITS) / 2**_BITS
    return drawn
