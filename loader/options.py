"""The values that say how a dataset is read; each checks itself, nothing here reads a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from tfshards.schemas import OptionsError

Remainder: TypeAlias = Literal["drop", "pad", "keep"]
Crop: TypeAlias = Literal["center", "random"]
Method: TypeAlias = Literal["bilinear", "nearest", "area"]
Lists: TypeAlias = Literal["ragged", "padded"]
Check: TypeAlias = Literal["files", "headers"]
OnDamage: TypeAlias = Literal["raise", "skip"]

IMAGE_DTYPES = ("uint8", "float32")


@dataclass(frozen=True)
class Worker:
    """Which of the processes that read together this one is.

    Attributes:
        index: from 0 to ``count - 1``; each index is used by one process.
        count: the number of processes.
    """

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        _at_least("Worker.count", self.count, 1)
        check_integer("Worker.index", self.index)
        if not 0 <= self.index < self.count:
            raise OptionsError(
                f"Worker.index={self.index} does not fit count={self.count}; use 0 to {self.count - 1}"
            )


@dataclass(frozen=True)
class Shuffle:
    """Another order in each epoch, a pure function of the dataset, the seed and the epoch.

    Attributes:
        seed: any integer of 64 bits.
        window: the number of steps over which the examples of a lane are mixed; None for about 16 MiB of
            records. 1 is the fastest: batches then still come from places all over the split, but inside
            a lane neighbours in the files stay neighbours.
        lanes: from how many places of the split a global batch is drawn; it divides the global batch size
            and is a multiple of the number of workers. None for the largest such number up to 16.
    """

    seed: int = 0
    window: int | None = None
    lanes: int | None = None

    def __post_init__(self) -> None:
        check_seed("Shuffle.seed", self.seed)
        if self.window is not None:
            _at_least("Shuffle.window", self.window, 1)
        if self.lanes is not None:
            _at_least("Shuffle.lanes", self.lanes, 1)


@dataclass(frozen=True)
class Position:
    """The place of a batch in a run: after ``step`` batches of epoch ``epoch``, both counted from 0."""

    epoch: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        _at_least("Position.epoch", self.epoch, 0)
        _at_least("Position.step", self.step, 0)


@dataclass(frozen=True)
class Image:
    """How images are decoded.

    Attributes:
        size: ``(height, width)`` of the result; None keeps the stored size, which must then be one and the
            same for all images, because a batch has one shape.
        crop: None resizes the whole image, whatever its aspect ratio; "center" first cuts the largest
            centred box of the result's aspect ratio; "random" cuts a random box of 8 to 100 % of the area
            with an aspect ratio of 3/4 to 4/3, as Inception was trained (Szegedy et al.,
            arXiv:1409.4842). The box is a pure function of the seed, the epoch, the example and the stored
            size: images of one size in one example, such as a photo and its mask, are cut alike.
        channels: 1 (grey), 3 (RGB) or 4 (RGBA, not for JPEG); None for those that the dataset was built with,
            or 3 if it keeps each image's own.
        dtype: "uint8", rounded, or "float32" with values from 0 to 255.
        seed: of the random boxes.
        method: of ``tf.image.resize``: "bilinear"; "nearest", which mixes no values, as masks of class
            numbers need it; or "area", the mean of what a pixel covers.
    """

    size: tuple[int, int] | None = None
    crop: Crop | None = None
    channels: int | None = None
    dtype: str = "uint8"
    seed: int = 0
    method: Method = "bilinear"

    def __post_init__(self) -> None:
        if self.size is not None and not _is_size(self.size):
            raise OptionsError(f"Image.size={self.size!r} must be (height, width), each at least 1")
        if self.crop not in (None, *get_args(Crop)):
            raise OptionsError(f"Image.crop={self.crop!r} must be None, 'center' or 'random'")
        if self.crop and self.size is None:
            raise OptionsError(f"Image.crop={self.crop!r} needs a size, as in Image(size=(224, 224))")
        if self.channels not in (None, 1, 3, 4):
            raise OptionsError(
                f"Image.channels={self.channels!r} must be 1, 3 or 4, or None for the dataset's"
            )
        if self.dtype not in IMAGE_DTYPES:
            raise OptionsError(f"Image.dtype={self.dtype!r} must be one of {', '.join(IMAGE_DTYPES)}")
        check_seed("Image.seed", self.seed)
        if self.method not in get_args(Method):
            raise OptionsError(f"Image.method={self.method!r} must be one of {', '.join(get_args(Method))}")


def _is_size(size: object) -> bool:
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        return False
    return all(isinstance(side, (int, np.integer)) and side >= 1 for side in size)


def check_remainder(remainder: str) -> None:
    """Raise unless ``remainder`` is one of the three words.

    Raises:
        OptionsError: it is none of them.
    """
    if remainder not in get_args(Remainder):
        raise OptionsError(f"remainder={remainder!r} must be one of {', '.join(get_args(Remainder))}")


def check_lists(lists: str) -> None:
    """Raise unless ``lists`` is one of the two words.

    Raises:
        OptionsError: it is none of them.
    """
    if lists not in get_args(Lists):
        raise OptionsError(f"lists={lists!r} must be one of {', '.join(get_args(Lists))}")


def check_damage(check: str, on_damage: str, remainder: str) -> None:
    """Raise unless both are one of their two words, and damaged records are skipped only with weights.

    Raises:
        OptionsError: they are not.
    """
    if check not in get_args(Check):
        raise OptionsError(f"check={check!r} must be one of {', '.join(get_args(Check))}")
    if on_damage not in get_args(OnDamage):
        raise OptionsError(f"on_damage={on_damage!r} must be one of {', '.join(get_args(OnDamage))}")
    if on_damage == "skip" and remainder != "pad":
        raise OptionsError(
            f"on_damage='skip' gives damaged records weight 0, which remainder={remainder!r} has no "
            "place for; use remainder='pad'"
        )


def check_images(image: object) -> None:
    """Raise unless ``image`` is None, an ``Image``, or a mapping that is not empty to such.

    Raises:
        OptionsError: it is something else.
    """
    if not isinstance(image, Mapping):
        check_type("image", image, Image)
        return
    if not image:
        raise OptionsError("image={} names no feature; leave it out for encoded bytes")
    for name, value in image.items():
        if not isinstance(value, Image):
            raise OptionsError(f"image[{name!r}]={value!r} must be loader.Image(...)")


def check_names(name: str, names: object) -> None:
    """Raise unless ``names`` is None or a sequence that is not itself a string.

    Raises:
        OptionsError: it is something else.
    """
    if names is not None and (isinstance(names, (str, bytes)) or not isinstance(names, Sequence)):
        raise OptionsError(f"{name}={names!r} must be a list of names, such as {name}=['cat', 'dog']")


def check_batch_size(name: str, batch_size: int) -> None:
    """Raise unless ``batch_size`` is at least 1.

    Raises:
        OptionsError: it is less.
    """
    _at_least(name, batch_size, 1)


def check_seed(name: str, seed: int) -> None:
    """Raise unless ``seed`` fits an int64.

    Raises:
        OptionsError: it does not.
    """
    check_integer(name, seed)
    if not -(2**63) <= seed < 2**63:
        raise OptionsError(f"{name}={seed} must lie between -2^63 and 2^63 - 1")


def check_type(name: str, value: object, kind: type) -> None:
    """Raise unless ``value`` is None or a ``kind``; a type checker would have said so, but few run one.

    Raises:
        OptionsError: it is something else.
    """
    if value is not None and not isinstance(value, kind):
        raise OptionsError(f"{name}={value!r} must be loader.{kind.__name__}(...)")


def check_integer(name: str, number: object) -> None:
    """Raise unless ``number`` is an integer of Python or NumPy.

    Raises:
        OptionsError: it is not.
    """
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        raise OptionsError(f"{name}={number!r} must be an integer")


def _at_least(name: str, number: int, least: int) -> None:
    check_integer(name, number)
    if number < least:
        raise OptionsError(f"{name}={number} must be at least {least}")
