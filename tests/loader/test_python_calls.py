"""Methods of Python objects in a pipeline: called by the graph, kept by the dataset, gone with it."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from tfshards.loader.graph import stages as python_calls

NUMBER = tf.TensorSpec([], tf.int64)


def test_a_method_is_called_in_the_graph_and_does_not_keep_its_object():
    class Adder:
        def add(self, one, other):
            return one + other, str(one).encode()

    adders = [Adder()]
    seen = weakref.ref(adders[0])
    data = tf.data.Dataset.range(3).map(
        lambda number: tuple(
            python_calls.call_method(
                adders[0].add, [number, number], [tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.string)]
            )
        )
    )
    assert data.element_spec == (NUMBER, tf.TensorSpec([], tf.string))
    kept = python_calls.keep_alive(data, adders[0])
    iterator = iter(kept)
    del kept, data
    adders.clear()
    gc.collect()
    assert [(int(total), text.numpy()) for total, text in iterator] == [(0, b"0"), (2, b"1"), (4, b"2")]
    del iterator
    gc.collect()
    assert seen() is None


def test_a_method_of_an_object_that_nobody_keeps_is_an_error():
    class Number:
        def get(self):
            return np.int64(7)

    numbers = [Number()]
    data = tf.data.Dataset.range(1).map(
        lambda _: python_calls.call_method(numbers[0].get, [], [tf.TensorSpec([], tf.int64)])[0]
    )
    assert [int(found) for found in data] == [7]
    numbers.clear()
    gc.collect()
    message = "the dataset was deleted while one of its iterators was in use"
    with pytest.raises(tf.errors.OpError, match=message):
        list(data)


def test_the_collection_of_garbage_is_put_off_until_all_loads_end():
    from tfshards.loader import pipeline

    first, second = pipeline._without_collection(), pipeline._without_collection()
    assert gc.isenabled()
    with first:
        assert not gc.isenabled()
        second.__enter__()
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()
    gc.disable()
    try:
        with pipeline._without_collection():
            pass
        # the user's choice
        assert not gc.isenabled()
    finally:
        gc.enable()
