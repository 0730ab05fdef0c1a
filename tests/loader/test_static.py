"""``replicate`` on one replica; examples/static_tensor.py tests it on two."""

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tfshards import loader
from tfshards.schemas import OptionsError

STATIC = {"mean": [0.5, 0.25], "pair": (np.arange(3), "a")}


@pytest.mark.parametrize(
    "strategy",
    [
        tf.distribute.get_strategy(),
        tf.distribute.OneDeviceStrategy("CPU:0"),
        tf.distribute.MirroredStrategy(["CPU:0"]),
    ],
    ids=["default", "one device", "mirrored"],
)
def test_replicas_of_each_strategy_get_the_tensors(strategy):
    given = loader.replicate(strategy, STATIC)
    assert sorted(given) == ["mean", "pair"]

    @tf.function
    def run(number, given):
        return strategy.run(
            lambda n, each: (n * each["mean"], each["pair"][0], each["pair"][1]), (number, given)
        )

    for found in (run(tf.constant(2.0), given), run(tf.constant(4.0), given)):
        doubled, numbers, text = (strategy.experimental_local_results(value)[0].numpy() for value in found)
        assert numbers.tolist() == [0, 1, 2]
        assert text == b"a"
    assert doubled.tolist() == [2, 1]


def test_invalid_strategies_and_values_are_rejected():
    with raises(OptionsError, "strategy-type", strategy="mirrored"):
        loader.replicate("mirrored", STATIC)
    kind = tf.distribute.experimental.ParameterServerStrategy
    with raises(OptionsError, "replicate-servers"):
        loader.replicate(kind.__new__(kind), STATIC)
    message = r"static\['f'\] has type object, which cannot be converted to a tensor"
    with pytest.raises(OptionsError, match=message):
        loader.replicate(tf.distribute.get_strategy(), {"f": object()})
