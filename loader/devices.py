"""Thin adapters of ``load`` for several devices: ``distribute`` for one model, ``per_device`` for several."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, get_args

import tensorflow as tf

from tfshards.loader.graph.raw_ops import (
    current_worker_index,
    distributed,
    num_server_workers,
    without_autograph,
)
from tfshards.loader.options.image import Image
from tfshards.loader.options.load_options import LoadOptions, ReadOptions, takes
from tfshards.loader.options.order_options import Remainder
from tfshards.loader.options.selection import Classes, Mix, Part, Shuffle
from tfshards.loader.options.validation import check_choice, check_least
from tfshards.loader.options.worker import Worker
from tfshards.loader.order.assignment import num_steps
from tfshards.loader.order.epoch import order_seed
from tfshards.loader.order.plan import choose_population
from tfshards.loader.order.source import open_source
from tfshards.loader.pipeline import load_dataset
from tfshards.loader.training.strategies import (
    has_servers,
    has_several_hosts,
    num_shares,
    warn_of_other_workers,
)
from tfshards.schemas import OptionsError
from tfshards.schemas.storage import is_remote


@dataclass(frozen=True, eq=False)
class _GraphWorker(Worker):
    """A worker whose ``index`` is a scalar int64 tensor, known where the graph runs."""

    def __post_init__(self) -> None:
        """Skip the checks, since the index is not known yet."""


def _check_servers(options: LoadOptions) -> None:
    """Raise OptionsError if the workers of parameter servers do not support an option.

    They build the dataset again for each iterator, and only the coordinator has this process, a cache, and a
    ``Progress``.
    """
    is_random = options.shuffle is not None or options.is_augmented or options.resamples
    if options.is_one_pass and is_random:
        raise OptionsError("server-epochs")
    if is_remote(options.path):
        raise OptionsError("server-remote", path=options.path)
    if options.cache is not None:
        raise OptionsError("server-cache", cache=options.cache)
    if options.tracker is not None:
        raise OptionsError("server-progress")


def _over_hosts(strategy: tf.distribute.Strategy, whole: LoadOptions) -> tf.distribute.DistributedDataset:
    """Return the distributed dataset in which each host has its own part of every global batch."""
    per_replica = whole.batch_size // num_shares(strategy)

    def part(worker: Worker) -> tf.data.Dataset:
        batch_size = whole.batch_size // worker.count
        dataset = load_dataset(replace(whole, batch_size=batch_size, worker=worker))
        return dataset if per_replica == batch_size else dataset.rebatch(per_replica)

    def host_dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        if has_servers(strategy):
            return part(_GraphWorker(current_worker_index(), num_server_workers(strategy)))
        return part(Worker(context.input_pipeline_id, context.num_input_pipelines))

    if has_servers(strategy):
        _check_servers(whole)
        # Raises errors here, in plain form: the coordinator builds the dataset later, inside a graph.
        part(Worker(0, num_server_workers(strategy)))
    return strategy.distribute_datasets_from_function(without_autograph(host_dataset))


@dataclass(frozen=True)
class DistributeOptions(ReadOptions):
    """The parameters of ``distribute``.

    Attributes:
        strategy: any strategy of ``tf.distribute``.
        path: the directory with ``dataset.json``, which every host can read under this name.
        split: its name; may be left out if there is only one.
        global_batch_size: the number of examples in each batch of all replicas of all workers together.
    """

    strategy: tf.distribute.Strategy
    path: str | os.PathLike[str] | Mix
    split: str | None = None
    _: KW_ONLY
    global_batch_size: int


@takes(DistributeOptions)
def distribute(options: DistributeOptions) -> tf.distribute.DistributedDataset:
    """Return the batches of one split, divided among the replicas of ``strategy``.

    Each element holds one global batch: every replica has ``global_batch_size / num_replicas_in_sync`` of its
    examples. An epoch has ``steps_per_epoch(path, split, global_batch_size, remainder)`` elements. For
    ``Model.fit`` on one host give Keras the dataset of ``load`` instead, which it distributes itself;
    ``class_weight=`` requires that one. On several hosts ``fit`` and ``evaluate`` of Keras 3 refuse any
    input: write the loop with ``strategy.run``, or use tf_keras with ``epochs=None`` (it reads a finite
    distributed dataset once, and trains on nothing in later epochs).

    Under ``ParameterServerStrategy`` give the result to ``ClusterCoordinator.create_per_worker_dataset``,
    which checks the shards a second time. An element is then what one worker reads for one of its steps: of
    ``W`` workers each has its own part of the split, in ``steps_per_epoch(...)`` batches of
    ``global_batch_size / W`` examples, so that an epoch is ``W * steps_per_epoch(...)`` steps.

    ``remainder="keep"`` is refused, since it would leave replicas without examples.

    Args:
        {options}

    Raises:
        OptionsError: the replicas do not divide the batch, there are no steps, workers of parameter servers
            do not support an option, or as for ``load``.
        InputError: as for ``load``.
        FormatError: as for ``load``.
    """
    strategy, global_batch_size = options.strategy, options.global_batch_size
    check_least("global_batch_size", global_batch_size, 1)
    if not isinstance(strategy, tf.distribute.Strategy):
        raise OptionsError("strategy-type", strategy=strategy)
    whole = LoadOptions(
        options.path,
        options.split,
        batch_size=global_batch_size,
        worker=Worker(),
        **options.read_options(),
    )
    if whole.remainder == "keep":
        raise OptionsError("distribute-keep")
    shares = num_shares(strategy)
    if global_batch_size % shares:
        lower = global_batch_size - global_batch_size % shares
        fitting = f"{lower + shares} or {lower}" if lower else lower + shares
        raise OptionsError(
            "global-batch-uneven", global_batch_size=global_batch_size, shares=shares, fitting=fitting
        )
    if not _num_steps(whole):
        raise OptionsError("global-batch-too-large", global_batch_size=global_batch_size)
    if has_several_hosts(strategy):
        return _over_hosts(strategy, whole)
    # The length stays known, so that Keras also sees where an epoch ends.
    return distributed(strategy, load_dataset(whole))


def steps_per_epoch(
    path: str | os.PathLike[str] | Mix,
    split: str | None = None,
    global_batch_size: int | None = None,
    remainder: Remainder = "drop",
    *,
    take: int | Part | None = None,
    classes: Classes | None = None,
) -> int:
    """Return the steps of one epoch, the same for any number of workers.

    >>> loader.steps_per_epoch("data/photos", "train", 1024)
    >>> loader.steps_per_epoch("data/numbers", global_batch_size=1024)

    Args:
        path: the directory with ``dataset.json``, or a ``Mix`` of several.
        split: its name; may be left out if there is only one.
        global_batch_size: the number of examples in each batch of all workers together; required.
        remainder: as for ``load``.
        take: as for ``load``.
        classes: as for ``load``.

    Raises:
        OptionsError: an option is missing or not allowed, or does not fit the dataset.
        InputError: there is no dataset, or no such split.
    """
    if global_batch_size is None:
        raise OptionsError("global-batch-missing")
    check_least("global_batch_size", global_batch_size, 1)
    return _num_steps(
        LoadOptions(
            path=path,
            split=split,
            batch_size=global_batch_size,
            remainder=remainder,
            take=take,
            classes=classes,
        )
    )


def _num_steps(options: LoadOptions) -> int:
    population = choose_population(options, open_source(options))
    return num_steps(population.num_positions, options.batch_size, options.remainder)


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
    # names are compatible if no part differs; local devices have neither job nor task
    is_known = any(each.make_merged_spec(wanted) == wanted.make_merged_spec(each) for each in known)
    if wanted.device_type is None or not is_known:
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
    return replace(
        options,
        take=part,
        shuffle=None,
        epochs=1,
        start=None,
        remainder="keep" if options.remainder == "drop" else options.remainder,
        image=_each(options.image, _centered),
    )


def _centered(image: Image) -> Image:
    """Return the options with a centered box in place of a random one, and without flips."""
    if image.crop is None:
        return replace(image, flip=None)
    return replace(image, crop="center", scale=Image.scale, ratio=Image.ratio, flip=None)


def _each(
    image: Image | Mapping[str, Image] | None, change: Callable[[Image], Image]
) -> Image | Mapping[str, Image] | None:
    if isinstance(image, Mapping):
        return {name: change(each) for name, each in image.items()}
    return None if image is None else change(image)
