"""The stages of a pipeline, compared with the methods of tf.data."""

import pytest
import tensorflow as tf

from tfshards.loader.graph.stages import flat_mapped, interleaved, mapped, unbatched


def elements():
    pairs = tf.reshape(tf.range(18.0), [9, 2])
    return tf.data.Dataset.from_tensor_slices(({"z": tf.range(9), "a": (pairs,)}, tf.range(9) % 4))


def rows(dataset):
    return [tf.nest.map_structure(lambda value: value.tolist(), row) for row in dataset.as_numpy_iterator()]


def worked(named, number):
    return number, {"sum": tf.reduce_sum(named["a"][0]), "again": named}


def counted(named, number):
    count = tf.cast(number, tf.int64)
    return tf.data.Dataset.range(count).map(lambda index: (index, named))


@pytest.mark.parametrize("calls", [None, 3])
def test_map_and_interleave_give_the_elements_of_tf_data(calls):
    given = elements()
    for ours, theirs in [
        (mapped(given, worked, calls), given.map(worked, calls)),
        (flat_mapped(given, counted), given.flat_map(counted)),
        (
            interleaved(given, counted, 3, 2, calls),
            given.interleave(counted, 3, 2, num_parallel_calls=calls, deterministic=calls and True),
        ),
        (mapped(given.batch(2), worked, calls), given.batch(2).map(worked, calls)),
        (unbatched(given.batch(2)), given.batch(2).unbatch()),
    ]:
        assert ours.element_spec == theirs.element_spec
        assert rows(ours) == rows(theirs)
        assert len(rows(ours)) >= 5


def test_ragged_lists_can_be_mapped_and_unbatched():
    given = tf.data.Dataset.range(5).batch(2)
    ragged = mapped(given, lambda numbers: tf.RaggedTensor.from_row_lengths(numbers, tf.ones_like(numbers)))
    assert [row.to_list() for row in mapped(ragged, lambda rows: rows * 2)] == [[[0], [2]], [[4], [6]], [[8]]]
    assert [row.numpy().tolist() for row in unbatched(ragged)] == [[0], [1], [2], [3], [4]]


def test_a_branch_in_a_function_that_returns_datasets_raises_instead_of_deadlocking():
    def branches(number):
        count = tf.cond(number > 3, lambda: number, lambda: 2 * number)
        return tf.data.Dataset.range(count)

    with pytest.raises(TypeError, match=r"If'\] in a function that returns a dataset could deadlock"):
        flat_mapped(tf.data.Dataset.range(5), branches)
