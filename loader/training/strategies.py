"""Facts about ``tf.distribute`` strategies, and warnings where ``load`` does not fit them."""

from __future__ import annotations

import warnings

import tensorflow as tf

from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.options.worker import other_workers, reads_all
from tfshards.loader.order.plan import choose_population
from tfshards.loader.reading.source import open_source


def has_several_hosts(strategy: tf.distribute.Strategy) -> bool:
    """Return whether ``strategy`` may read on more than one host."""
    return isinstance(strategy, (tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.TPUStrategy))


def warn_of_strategy(options: LoadOptions) -> None:
    """Warn, at the line that called ``load`` without ``worker=``, where the strategy in scope does not fit.

    Either each of several hosts would read the whole split, or Keras could not split the batches over the
    replicas: with TensorFlow 2.21 and Keras 3.15 ``fit`` and ``evaluate`` then fail in the operation AddN,
    with an error that names no batch. ``predict`` works, and so does a smaller batch after the first one.
    """
    text = _of_hosts() or _of_replicas(options)
    if text:
        warnings.warn(text, stacklevel=4)


def _of_hosts() -> str:
    strategy, where = tf.distribute.get_strategy(), other_workers()
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        cluster = strategy.cluster_resolver.cluster_spec().as_dict()
        count = sum(len(cluster.get(kind, ())) for kind in ("chief", "master", "worker"))
        if count > 1:
            where = f"this is the scope of a MultiWorkerMirroredStrategy of {count} workers"
    return "" if where is None else reads_all(where, "load")


def _of_replicas(options: LoadOptions) -> str:
    replicas, size = int(tf.distribute.get_strategy().num_replicas_in_sync), options.batch_size
    what = f"batch_size={size}"
    if replicas > 1 and options.remainder == "keep":
        size = min(size, choose_population(options, open_source(options)).num_positions)
        what = what if size == options.batch_size else f"the only batch, of {size} examples,"
    if not size % replicas:
        return ""
    lower = options.batch_size - options.batch_size % replicas
    remedy = f"use {f'{lower} or ' if lower else ''}{lower + replicas}"
    if size < options.batch_size:
        remedy = "use remainder='pad' with weighted metrics, or evaluate outside of the scope"
    return (
        f"{what} cannot be divided evenly among the {replicas} replicas of the strategy in scope, and fit "
        f"and evaluate of Keras would end with an error of the operation AddN: {remedy}, or pass "
        "worker=loader.Worker() if this is intended"
    )
