"""``per_device``: separate models on separate devices, a dataset for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, get_args

import tensorflow as tf

from tfshards.loader.options.image import Image
from tfshards.loader.options.load_options import LoadOptions, ReadOptions, takes
from tfshards.loader.options.position import Shuffle
from tfshards.loader.options.selection import Mix, Part
from tfshards.loader.options.validation import check_choice
from tfshards.loader.order.epoch import order_seed
from tfshards.loader.pipeline import load_dataset
from tfshards.loader.training.strategies import warn_of_other_workers
from tfshards.schemas import OptionsError

How = Literal["all", "parts", "folds"]


@dataclass(frozen=True)
class DeviceData:
    """The datasets of the model on one device.

    Attributes:
        device: the device, as given.
        train: the batches for training.
        validation: the batches of its fold, in stored order; None except for folds.
    """

    device: str
    train: tf.data.Dataset
    validation: tf.data.Dataset | None = None


@dataclass(frozen=True)
class DeviceOptions(ReadOptions):
    """The parameters of ``per_device``.

    Attributes:
        devices: names such as ``"GPU:0"``; a name may occur several times, for several models on one device.
        path: the directory with ``dataset.json``, or a ``Mix`` of several.
        split: its name; may be left out if there is only one.
        batch_size: the number of examples in each batch of one model.
        how: "all" gives each model the whole split, with a different seed for order, crops and flips, for
            ensembles and searches; "parts" gives each an equal part; "folds" cross-validates: model ``i``
            trains on all but the ``i``-th of ``len(devices)`` parts, and is validated on that part, without
            random crops and flips, each example once.
    """

    devices: Sequence[str]
    path: str | os.PathLike[str] | Mix
    split: str | None = None
    _: KW_ONLY
    batch_size: int
    how: How = "all"


@takes(DeviceOptions)
def per_device(options: DeviceOptions) -> list[DeviceData]:
    """Return independent datasets for separate models on ``devices``, one each, in their order.

    Without ``shuffle`` the order is as with ``Shuffle()``.

    Args:
        {options}

    Raises:
        OptionsError: there are no devices, TensorFlow does not see one of them, ``how`` is not allowed,
            ``take`` is given for parts or folds, ``start`` records the order of one model but there are
            several, or as for ``load``.
        InputError: as for ``load``.
        FormatError: as for ``load``.
    """
    devices, how = options.devices, options.how
    if isinstance(devices, str) or not isinstance(devices, Sequence) or not devices:
        raise OptionsError("devices-type", devices=devices)
    for device in devices:
        _check_device(device)
    check_choice("how", how, get_args(How))
    whole = LoadOptions(options.path, options.split, batch_size=options.batch_size, **options.read_options())
    if how != "all" and whole.take is not None:
        raise OptionsError("devices-take", how=how)
    if len(devices) > 1 and (whole.tracker is not None or whole.begin.order is not None):
        raise OptionsError("devices-start", num_devices=len(devices))
    whole = replace(whole, shuffle=whole.shuffle or Shuffle())
    warn_of_other_workers()
    data = []
    for index, device in enumerate(devices):
        own, validation = _with_seeds_of(whole, index), None
        if how != "all":
            own = replace(own, take=Part(index, len(devices), rest=how == "folds"))
        if how == "folds":
            validation = load_dataset(_held_out(own, Part(index, len(devices))))
        data.append(DeviceData(device, load_dataset(own), validation))
    return data


def _check_device(device: str) -> None:
    """Raise OptionsError if TensorFlow does not see the device, for which it would silently use a CPU."""
    known = [tf.DeviceSpec.from_string(each.name) for each in tf.config.list_logical_devices()]
    try:
        wanted = tf.DeviceSpec.from_string(device)
    except (ValueError, AttributeError):
        wanted = tf.DeviceSpec()
    if wanted.device_type is None:
        raise OptionsError("device-name", device=device)
    # names are compatible if no part differs; local devices have neither job nor task
    if not any(each.make_merged_spec(wanted) == wanted.make_merged_spec(each) for each in known):
        names = [each.to_string().removeprefix("/device:") for each in known]
        raise OptionsError("device-missing", device=device, names=names)


def _with_seeds_of(options: LoadOptions, index: int) -> LoadOptions:
    """Return the options of one model; the first model uses the options as given."""
    if not index:
        return options

    def own(seed: int) -> int:
        return order_seed(seed, f"device {index}")

    shuffle = options.shuffle
    return replace(
        options,
        shuffle=shuffle and replace(shuffle, seed=own(shuffle.seed)),
        image=_each(options.image, lambda image: replace(image, seed=own(image.seed))),
    )


def _held_out(options: LoadOptions, part: Part) -> LoadOptions:
    def without_randomness(image: Image) -> Image:
        return replace(image, crop="center" if image.crop == "random" else image.crop, flip=None)

    return replace(
        options,
        take=part,
        shuffle=None,
        epochs=1,
        start=None,
        remainder="keep" if options.remainder == "drop" else options.remainder,
        image=_each(options.image, without_randomness),
    )


def _each(
    image: Image | Mapping[str, Image] | None, change: Callable[[Image], Image]
) -> Image | Mapping[str, Image] | None:
    if isinstance(image, Mapping):
        return {name: change(each) for name, each in image.items()}
    return None if image is None else change(image)
