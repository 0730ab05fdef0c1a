"""Separate models on separate devices: a dataset for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast, get_args

import tensorflow as tf

from tfshards.loader.examples import Mix, Part
from tfshards.loader.image_options import Image
from tfshards.loader.options import Shuffle
from tfshards.loader.order import order_seed
from tfshards.loader.pipeline import load
from tfshards.loader.request import LoadOptions
from tfshards.schemas import OptionsError

if TYPE_CHECKING:
    from typing_extensions import Unpack

How = Literal["all", "parts", "folds"]


@dataclass(frozen=True)
class DeviceData:
    """What the model on one device reads.

    Attributes:
        device: its name, as it was given.
        train: the batches of its training.
        validation: those of its fold, in stored order; None but for folds.
    """

    device: str
    train: tf.data.Dataset
    validation: tf.data.Dataset | None = None


def per_device(
    devices: Sequence[str],
    path: str | os.PathLike[str] | Mix,
    split: str | None = None,
    *,
    batch_size: int,
    how: How = "all",
    **options: Unpack[LoadOptions],
) -> list[DeviceData]:
    """Return independent datasets for models of their own on ``devices``, one each, in their order.

    Args:
        devices: names such as ``"GPU:0"``; a name may come several times, for several models on one device.
        path: the directory with ``dataset.json``, or a ``Mix`` of several.
        split: may be left out where there is one only.
        batch_size: of each model.
        how: "all" gives each the whole split, shuffled, and its images changed, by a seed of its own, for
            ensembles and searches; "parts" gives each an equal part of its own; "folds" cross-validates:
            the model at place ``i`` trains on all but the ``i``-th of ``len(devices)`` parts, and is tried
            on that, without crops and flips at random, each example once.
        options: those of ``load``. Without ``shuffle`` the order is that of ``Shuffle()``.

    Raises:
        OptionsError: there are no devices, ``how`` is no such word, ``take`` is given for parts or folds,
            or as for ``load``.
        InputError: as for ``load``.
        FormatError: as for ``load``.
    """
    if isinstance(devices, str) or not isinstance(devices, Sequence) or not devices:
        raise OptionsError(f"devices={devices!r} must be a list of names, such as ['GPU:0', 'GPU:1']")
    if how not in get_args(How):
        raise OptionsError(f"how={how!r} must be one of {', '.join(get_args(How))}")
    if how != "all" and options.get("take") is not None:
        raise OptionsError(f"take= and how={how!r} both choose examples; leave one out")
    options = {**options, "shuffle": options.get("shuffle") or Shuffle()}
    data = []
    for index, device in enumerate(devices):
        own, validation = _own(options, index), None
        if how != "all":
            own["take"] = Part(index, len(devices), rest=how == "folds")
        train = load(path, split, batch_size=batch_size, **own)
        if how == "folds":
            held_out = _held_out(own, Part(index, len(devices)))
            validation = load(path, split, batch_size=batch_size, **held_out)
        data.append(DeviceData(device, train, validation))
    return data


def _own(options: LoadOptions, index: int) -> LoadOptions:
    """Return the options of one model; those of the first are as they were given."""
    shuffle, image = options.get("shuffle"), options.get("image")
    own = dict(options)
    if index and shuffle is not None:
        own["shuffle"] = replace(shuffle, seed=_seed(shuffle.seed, index))
    if index and image is not None:
        own["image"] = _each(image, lambda each: replace(each, seed=_seed(each.seed, index)))
    return cast("LoadOptions", own)


def _held_out(options: LoadOptions, part: Part) -> LoadOptions:
    held_out = dict(options) | {"take": part, "shuffle": None, "epochs": 1, "start": None}
    if options.get("remainder", "drop") == "drop":
        held_out["remainder"] = "keep"
    image = options.get("image")
    if image is not None:
        held_out["image"] = _each(image, _steady)
    return cast("LoadOptions", held_out)


def _each(image: Image | Mapping[str, Image], change: Callable[[Image], Image]) -> Image | dict[str, Image]:
    if isinstance(image, Image):
        return change(image)
    return {name: change(each) for name, each in image.items()}


def _steady(image: Image) -> Image:
    """Return how an image is decoded without anything random."""
    return replace(image, crop="center" if image.crop == "random" else image.crop, flip=None)


def _seed(seed: int, index: int) -> int:
    return order_seed(seed, f"device {index}")
