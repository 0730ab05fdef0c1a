"""A thin adapter from ``load`` to ``tf.distribute``, for training loops of one's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from tfshards.loader.assign import num_steps
from tfshards.loader.checks import split_name
from tfshards.loader.options import Remainder, Worker, check_batch_size, check_remainder
from tfshards.loader.pipeline import load
from tfshards.loader.request import LoadOptions
from tfshards.schemas import OptionsError, read_manifest

if TYPE_CHECKING:
    from typing_extensions import Unpack


def distribute(
    strategy: tf.distribute.Strategy,
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    global_batch_size: int,
    **options: Unpack[LoadOptions],
) -> tf.distribute.DistributedDataset:
    """Return the batches of one split, dealt to the replicas of ``strategy``.

    Each element holds one global batch: every replica has ``global_batch_size / num_replicas_in_sync`` of its
    examples. An epoch has ``steps_per_epoch(path, split, global_batch_size, remainder)`` elements. For
    ``Model.fit`` give Keras the dataset of ``load`` instead, which it distributes itself.

    Args:
        strategy: ``MirroredStrategy``, or another that asks for its input with ``InputContext``.
        path: the directory with ``dataset.json``.
        split: may be left out where there is one only.
        global_batch_size: of all replicas together.
        options: those of ``load``, but for ``worker``; ``remainder="keep"`` is refused, since it would leave
            replicas without examples.

    Raises:
        OptionsError: the replicas do not divide the batch, there are no steps, or as for ``load``.
        InputError: as for ``load``.
        FormatError: as for ``load``.
    """
    check_batch_size("global_batch_size", global_batch_size)
    if not isinstance(strategy, tf.distribute.Strategy):
        raise OptionsError(f"strategy={strategy!r} must be a tf.distribute.Strategy")
    if isinstance(strategy, tf.distribute.experimental.ParameterServerStrategy):
        # Its InputContext says "pipeline 0 of 1" to each worker: all would read everything.
        raise OptionsError("ParameterServerStrategy is not served; use MirroredStrategy")
    remainder = options.get("remainder", "drop")
    if remainder == "keep":
        raise OptionsError("remainder='keep' may leave a replica without examples; use 'pad' or 'drop'")
    replicas = strategy.num_replicas_in_sync
    if global_batch_size % replicas:
        lower = global_batch_size - global_batch_size % replicas
        raise OptionsError(
            f"global_batch_size={global_batch_size} cannot be split evenly over {replicas} replicas; use "
            f"{lower + replicas}" + (f" or {lower}" if lower else "")
        )
    if not steps_per_epoch(path, split, global_batch_size, remainder):
        raise OptionsError(
            f"global_batch_size={global_batch_size} exceeds the examples of the split, so that "
            "remainder='drop' leaves no steps; use a smaller one or remainder='pad'"
        )

    def worker_dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        worker = Worker(context.input_pipeline_id, context.num_input_pipelines)
        dataset = load(path, split, batch_size=global_batch_size // worker.count, worker=worker, **options)
        return dataset.rebatch(context.get_per_replica_batch_size(global_batch_size))

    return strategy.distribute_datasets_from_function(worker_dataset)


def steps_per_epoch(
    path: str | os.PathLike[str],
    split: str | None,
    global_batch_size: int,
    remainder: Remainder = "drop",
) -> int:
    """Return the steps of one epoch, the same for any number of workers.

    Args:
        path: the directory with ``dataset.json``.
        split: None where there is one only.
        global_batch_size: of all workers together.
        remainder: as for ``load``.

    Raises:
        OptionsError: ``global_batch_size`` or ``remainder`` is not allowed.
        InputError: there is no dataset, or no such split.
    """
    check_batch_size("global_batch_size", global_batch_size)
    check_remainder(remainder)
    manifest = read_manifest(path)
    name = split_name(manifest, split, Path(path))
    return num_steps(manifest.splits[name].num_examples, global_batch_size, remainder)
