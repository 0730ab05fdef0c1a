"""``replicate``: copy static tensors to each replica of a strategy."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from tfshards.loader.graph.raw_ops import values_by_replica
from tfshards.schemas import OptionsError


def replicate(strategy: tf.distribute.Strategy, static: object) -> object:
    """Copy ``static`` to the device of each replica of ``strategy``.

    Pass the result to ``strategy.run`` as an argument in addition to the batch. The copies are made once,
    here.

    Args:
        strategy: any strategy except ``ParameterServerStrategy``, for one device or several.
        static: tensors or array-like values, alone or in dicts and tuples; a list becomes one array.

    Returns:
        A distributed value with the structure of ``static``.

    Raises:
        OptionsError: a value cannot be converted to a tensor, or the strategy has no replicas that hold
            values.
    """
    if not isinstance(strategy, tf.distribute.Strategy):
        raise OptionsError("strategy-type", strategy=strategy)
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise OptionsError("replicate-servers")
    with tf.device("CPU:0"):
        tensors = _converted(static, "static")
    try:
        devices = iter(strategy.extended.worker_devices)
    except RuntimeError:
        # The default strategy lets TensorFlow choose the device.
        devices = iter([None])

    def copy() -> object:
        with tf.device(next(devices)):
            return tf.nest.map_structure(tf.identity, tensors)

    return values_by_replica(strategy, copy)


def _converted(value: object, name: str) -> object:
    if isinstance(value, Mapping):
        return {key: _converted(part, f"{name}[{key!r}]") for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_converted(part, f"{name}[{index}]") for index, part in enumerate(value))
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
        return value
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise OptionsError("replicate-type", name=name, kind=type(value).__name__, error=error) from error
