"""Facts about a ``tf.distribute`` strategy: its hosts, replicas and parameter servers."""

from __future__ import annotations

import tensorflow as tf

from tfshards.loader.graph.raw_ops import num_server_workers


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
