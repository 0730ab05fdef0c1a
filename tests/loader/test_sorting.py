"""Sorting in the arithmetic of the order; tests/order judges the order from outside."""

import numpy as np
import pytest
import tensorflow as tf

from tfshards.loader.graph.ops import GRAPH
from tfshards.loader.order.ops import NUMPY


@pytest.mark.parametrize("most", [2, 2**20, 2**62])
@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_values_of_which_many_share_their_upper_bits_are_sorted_and_equal_ones_keep_their_order(count, most):
    values = np.random.default_rng(0).integers(0, most, count)
    expected = np.argsort(values, kind="stable").tolist()
    assert NUMPY.ascending(values).tolist() == expected
    assert GRAPH.ascending(tf.constant(values)).numpy().tolist() == expected
