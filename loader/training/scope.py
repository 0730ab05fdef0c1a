"""Warn when ``load`` without ``worker=`` does not fit the strategy in scope, or the processes around it."""

from __future__ import annotations

import os
import warnings

import tensorflow as tf

from tfshards.loader.options.environment import TF_CONFIG, cluster_task
from tfshards.schemas import OptionsError


def warn_of_other_workers() -> None:
    """Warn, at the line that called ``load``, if each of several hosts would read the whole split."""
    surroundings = _surroundings()
    if surroundings is not None:
        warnings.warn(
            f"{surroundings}, but load() without worker= reads the whole split in each of them, so all would "
            "train on the same examples: use loader.distribute(strategy, ...), or pass "
            "worker=loader.Worker.from_environment(), or worker=loader.Worker() if this is intended",
            stacklevel=3,
        )


def warn_of_uneven_replicas(batch_size: int) -> None:
    """Warn, at the line that called ``load``, if Keras cannot split the batches over the replicas in scope.

    With TensorFlow 2.21 and Keras 3.15 ``fit`` and ``evaluate`` then fail in the operation AddN, with an
    error that names no batch. ``predict`` works, and so does a smaller last batch.
    """
    replicas = int(tf.distribute.get_strategy().num_replicas_in_sync)
    if batch_size % replicas and _surroundings() is None:
        lower = batch_size - batch_size % replicas
        warnings.warn(
            f"batch_size={batch_size} cannot be divided evenly among the {replicas} replicas of the strategy "
            "in scope, and fit and evaluate of Keras would end with an error of the operation AddN: use "
            f"{f'{lower} or ' if lower else ''}{lower + replicas}, or pass worker=loader.Worker() if this is "
            "intended",
            stacklevel=3,
        )


def _surroundings() -> str | None:
    strategy = tf.distribute.get_strategy()
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return "this is the scope of a ParameterServerStrategy"
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        cluster = strategy.cluster_resolver.cluster_spec().as_dict()
        count = sum(len(cluster.get(kind, ())) for kind in ("chief", "master", "worker"))
        if count > 1:
            return f"this is the scope of a MultiWorkerMirroredStrategy of {count} workers"
    try:
        _, count = cluster_task(os.environ) or (0, 1)
    except OptionsError:
        # TF_CONFIG describes parameter servers, whose coordinator may read for itself, or is not
        # TensorFlow's.
        return None
    return f"{TF_CONFIG} names {count} workers" if count > 1 else None
