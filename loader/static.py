"""Static tensors: held once by a worker's pipeline, or once by each replica, and in no batch."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from tfshards.schemas import OptionsError


def replicate(strategy: tf.distribute.Strategy, static: object) -> object:
    """Return ``static`` as tensors of which each replica of ``strategy`` has a copy on its own device.

    Give it to ``strategy.run`` as an argument, beside the batch; the copies are made once, here.

    Args:
        strategy: of one device or of many, but not ``ParameterServerStrategy``.
        static: tensors, or arrays and what makes one, alone or in dicts and tuples; a list is an array.

    Raises:
        OptionsError: a value is no tensor, or the strategy has no replicas that could hold a copy.
    """
    if not isinstance(strategy, tf.distribute.Strategy):
        raise OptionsError(f"strategy={strategy!r} must be a tf.distribute.Strategy")
    if isinstance(strategy, tf.distribute.experimental.ParameterServerStrategy):
        raise OptionsError(
            "ParameterServerStrategy has no replicas that hold values; keep static tensors in variables, "
            "which it places on its servers, or give them to map_fn by static="
        )
    tensors = static_tensors(static)
    try:
        devices = iter(strategy.extended.worker_devices)
    except RuntimeError:
        # the default strategy leaves the device to TensorFlow
        devices = iter([None])

    def copy(_: tf.distribute.experimental.ValueContext) -> object:
        # called for the replicas of this process in turn
        with tf.device(next(devices)):
            return tf.nest.map_structure(tf.identity, tensors)

    return strategy.experimental_distribute_values_from_function(copy)


def static_tensors(static: object) -> object:
    """Return ``static`` with each value as a tensor in the host's memory.

    Raises:
        OptionsError: a value is no tensor.
    """
    with tf.device("CPU:0"):
        return _converted(static, "static")


def _converted(value: object, place: str) -> object:
    if isinstance(value, Mapping):
        return {key: _converted(part, f"{place}[{key!r}]") for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_converted(part, f"{place}[{index}]") for index, part in enumerate(value))
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
        return value
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise OptionsError(
            f"{place} is {type(value).__name__}, which cannot become a tensor: {error}; give tensors or "
            "arrays. Tables of tf.lookup, layers and models need no static=: map_fn may use them as they are"
        ) from error
