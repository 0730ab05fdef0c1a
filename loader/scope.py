"""What the surroundings of a ``load`` without ``worker=`` say: whether other hosts would read the same."""

from __future__ import annotations

import os
import warnings

import tensorflow as tf

from tfshards.loader.environment import TF_CONFIG, cluster_task
from tfshards.schemas import OptionsError


def warn_of_other_readers() -> None:
    """Warn, in the name of the line that called ``load``, if each of several hosts would read everything."""
    surroundings = _surroundings()
    if surroundings:
        warnings.warn(
            f"{surroundings}, but load() without worker= reads the whole split in each of them, so that all "
            "would train on the same examples: use loader.distribute(strategy, ...), or give "
            "worker=loader.Worker.from_environment(), or worker=loader.Worker() if this is meant",
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
        # of parameter servers, whose coordinator may read for itself, or none of our business
        return None
    return f"{TF_CONFIG} names {count} workers" if count > 1 else None
