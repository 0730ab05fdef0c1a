"""What Keras hears when it is given a distributed dataset with which it cannot work.

It fails by itself, but says nothing of strategies, and names no way that works. Found with TensorFlow 2.21,
Keras 3.15 and tf_keras 2.21.
"""

from __future__ import annotations

import types
from typing import NoReturn

import tensorflow as tf

from tfshards.schemas import OptionsError


def explain_to_keras(
    dataset: tf.distribute.DistributedDataset, several_hosts: bool
) -> tf.distribute.DistributedDataset:
    """Return ``dataset`` with what Keras asks of it, and it has not, as errors that say what to do instead.

    Args:
        dataset: as a strategy gave it; that of the default strategy is a plain one, which lacks nothing.
        several_hosts: whether Keras 3 cannot train on it at all. It asks for the cardinality first of all;
            tf_keras, which can, does not.
    """
    if isinstance(dataset, tf.data.Dataset):
        return dataset
    kind = type(dataset)
    body: dict[str, object] = {"__module__": kind.__module__, "map": _no_map}
    if several_hosts:
        body["cardinality"] = property(_no_cardinality)
    # What TensorFlow and Keras look for is the base: neither asks for exactly this class.
    dataset.__class__ = types.new_class(kind.__name__, (kind,), exec_body=lambda space: space.update(body))
    return dataset


def _no_map(*_: object) -> NoReturn:
    raise OptionsError(
        "a distributed dataset has no map(), which Keras needs for class_weight=: give fit the dataset of "
        "loader.load on one host, or give loader.distribute sample_weights='balanced' on any number"
    )


def _no_cardinality(_: tf.distribute.DistributedDataset) -> NoReturn:
    raise OptionsError(
        "a dataset that is distributed over several hosts has no cardinality, loader.steps_per_epoch has its "
        "steps; if Keras 3 asked: its fit and evaluate work under neither MultiWorkerMirroredStrategy nor "
        "ParameterServerStrategy, write the loop with strategy.run, or use tf_keras, as docs/guide.md shows"
    )
