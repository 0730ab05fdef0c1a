"""A thin adapter from ``load`` to ``tf.distribute``, for training loops of one's own.

Where one host reads, the strategy splits the global batches of ``load`` over its replicas itself; what
several hosts read is in ``hosts.py``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tensorflow as tf

from tfshards.loader.assign import num_steps
from tfshards.loader.examples import Classes, Mix, Part, check_classes, check_take
from tfshards.loader.hosts import check_hosts, distribute_over_hosts, has_several_hosts, num_shares
from tfshards.loader.keras_limits import explain_to_keras
from tfshards.loader.options import Remainder, Worker, check_batch_size, check_remainder
from tfshards.loader.pipeline import load
from tfshards.loader.request import LoadOptions
from tfshards.loader.sources import source_of
from tfshards.schemas import OptionsError

if TYPE_CHECKING:
    from typing_extensions import Unpack


def distribute(
    strategy: tf.distribute.Strategy,
    path: str | os.PathLike[str] | Mix,
    split: str | None = None,
    *,
    global_batch_size: int,
    **options: Unpack[LoadOptions],
) -> tf.distribute.DistributedDataset:
    """Return the batches of one split, dealt to the replicas of ``strategy``.

    Each element holds one global batch: every replica has ``global_batch_size / num_replicas_in_sync`` of its
    examples. An epoch has ``steps_per_epoch(path, split, global_batch_size, remainder)`` elements. For
    ``Model.fit`` on one host give Keras the dataset of ``load`` instead, which it distributes itself.

    Under ``ParameterServerStrategy`` the result is what ``ClusterCoordinator.create_per_worker_dataset``
    takes, which looks at the shards a second time. An element is then what one worker takes for a step of
    its own: of ``W`` workers each has its own part of the split, in ``steps_per_epoch(...)`` batches of
    ``global_batch_size / W`` examples, so that an epoch is ``W * steps_per_epoch(...)`` steps.

    Args:
        strategy: of ``tf.distribute``.
        path: the directory with ``dataset.json``, which every host can read under this name.
        split: may be left out where there is one only.
        global_batch_size: of all replicas of all workers together.
        options: those of ``load``, but for ``worker``; ``remainder="keep"`` is refused, since it would leave
            replicas without examples.

    Raises:
        OptionsError: the replicas do not divide the batch, there are no steps, workers of parameter servers
            cannot do what an option says, or as for ``load``.
        InputError: as for ``load``.
        FormatError: as for ``load``.
    """
    check_batch_size("global_batch_size", global_batch_size)
    if not isinstance(strategy, tf.distribute.Strategy):
        raise OptionsError(f"strategy={strategy!r} must be a tf.distribute.Strategy")
    remainder = options.get("remainder", "drop")
    if remainder == "keep":
        raise OptionsError("remainder='keep' may leave a replica without examples; use 'pad' or 'drop'")
    shares = num_shares(strategy)
    if global_batch_size % shares:
        lower = global_batch_size - global_batch_size % shares
        raise OptionsError(
            f"global_batch_size={global_batch_size} cannot be split evenly over {shares} replicas; use "
            f"{lower + shares}" + (f" or {lower}" if lower else "")
        )
    take, classes = options.get("take"), options.get("classes")
    if not steps_per_epoch(path, split, global_batch_size, remainder, take=take, classes=classes):
        raise OptionsError(
            f"global_batch_size={global_batch_size} exceeds the examples of the split, so that "
            "remainder='drop' leaves no steps; use a smaller one or remainder='pad'"
        )
    several_hosts = has_several_hosts(strategy)
    if several_hosts:
        check_hosts(strategy, options)
        dataset = distribute_over_hosts(strategy, path, split, global_batch_size, options)
    else:
        whole = load(path, split, batch_size=global_batch_size, worker=Worker(), **options)
        # Its length stays known on this way, so that Keras, too, sees where an epoch ends.
        dataset = strategy.experimental_distribute_dataset(whole)
    return explain_to_keras(dataset, several_hosts)


def steps_per_epoch(
    path: str | os.PathLike[str] | Mix,
    split: str | None,
    global_batch_size: int,
    remainder: Remainder = "drop",
    *,
    take: int | Part | None = None,
    classes: Classes | None = None,
) -> int:
    """Return the steps of one epoch, the same for any number of workers.

    Args:
        path: the directory with ``dataset.json``, or a ``Mix`` of several.
        split: None where there is one only.
        global_batch_size: of all workers together.
        remainder: as for ``load``.
        take: as for ``load``.
        classes: as for ``load``.

    Raises:
        OptionsError: an option is not allowed, or does not fit the dataset.
        InputError: there is no dataset, or no such split.
    """
    check_batch_size("global_batch_size", global_batch_size)
    check_remainder(remainder)
    check_take(take)
    check_classes(classes)
    population = source_of(path, split).population(take, classes)
    return num_steps(population.num_places, global_batch_size, remainder)
