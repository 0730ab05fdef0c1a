"""Facts about ``tf.distribute`` strategies, and warnings where ``load`` does not fit them."""

from __future__ import annotations

import warnings

import tensorflow as tf

from tfshards.loader.graph.raw_ops import num_server_workers
from tfshards.loader.options.worker import other_workers, reads_all


def has_several_hosts(strategy: tf.distribute.Strategy) -> bool:
    """Return whether ``strategy`` may read on more than one host."""
    return has_servers(strategy) or isinstance(
        strategy, (tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.TPUStrategy)
    )


def num_shares(strategy: tf.distribute.Strategy) -> int:
    """Return the number of equal shares of a global batch: one for each replica of each worker."""
    replicas = int(strategy.num_replicas_in_sync)
    return replicas * num_server_workers(strategy) if has_servers(strategy) else replicas


def has_servers(strategy: tf.distribute.Strategy) -> bool:
    """Return whether ``strategy`` uses parameter servers."""
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def warn_of_other_workers() -> None:
    """Warn, at the line that called ``load``, if each of several hosts would read the whole split."""
    surroundings = _surroundings()
    if surroundings is not None:
        warnings.warn(reads_all(surroundings, "load"), stacklevel=4)


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
            stacklevel=4,
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
    return other_workers()
