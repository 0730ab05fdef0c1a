"""``map_fn=``: its seeds, allowed results, and the static tensors that it captures."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from tfshards.loader import Image, load
from tfshards.schemas import Feature, OptionsError, Schema

SCHEMA = Schema(
    (
        Feature("photo", "image", "uint8", (None, None, 3)),
        Feature("label", "label", "int64"),
        Feature("tags", "int", "int64", (None,)),
    ),
    ("even", "odd"),
)


def png(number):
    pixels = np.full((3 + number % 2, 4, 3), number, np.uint8)
    return tf.io.encode_png(pixels).numpy()


@pytest.fixture(scope="module")
def photos(write_dataset, tmp_path_factory):
    """Ten photos of two sizes; number ``i`` has the gray value ``i`` and ``i`` tags ``i``."""
    examples = [{"photo": png(i), "label": i % 2, "tags": [i] * i} for i in range(10)]
    counts = {"even": 5, "odd": 5}
    path = tmp_path_factory.mktemp("photos")
    return write_dataset(path, SCHEMA, {"train": [examples[:4], examples[4:]]}, {"train": counts})


def test_python_conditions_on_tensors_work_and_images_are_decoded_in_their_own_size(photos):
    def grow(example, _):
        assert list(example) == ["photo", "label"]
        assert example["photo"].shape.as_list() == [None, None, 3]
        if example["label"] == 1:
            brighter = example["photo"] + 100
        else:
            brighter = example["photo"]
        return {"x": tf.image.resize(brighter, (2, 2), "nearest"), "height": tf.shape(example["photo"])[0]}

    dataset = load(
        photos, batch_size=4, select=("photo", "label"), image=Image(), map_fn=grow, remainder="pad"
    )
    assert list(dataset.element_spec) == ["x", "height", "sample_weight"]
    read = list(dataset.as_numpy_iterator())
    x, height, weight = (np.concatenate([batch[name] for batch in read]) for name in read[0])
    assert x[:, 0, 0, 0].tolist() == [0, 101, 2, 103, 4, 105, 6, 107, 8, 109, 0, 0]
    assert height.tolist() == [3, 4] * 5 + [3, 3]
    assert weight.tolist() == [1] * 10 + [0, 0]


def test_a_captured_tensor_is_read_and_not_copied_by_an_optimization(photos):
    table = tf.random.stateless_uniform([2, 6_250_000], [1, 2])

    def look_up(example, _):
        return tf.gather(table, example["label"])[:3]

    dataset = load(photos, batch_size=5, select=("label",), map_fn=look_up)
    for rows in dataset.repeat(2):
        assert rows.shape == [5, 3]
    assert np.array_equal(rows[0], table[1, :3])
    # otherwise the first pass copies all captured tensors into another graph
    assert dataset.options().experimental_optimization.apply_default_optimizations is False


def test_objects_used_by_the_function_live_as_long_as_the_dataset(photos):
    def made():
        initial = tf.lookup.KeyValueTensorInitializer([0, 1], [10, 11], tf.int64, tf.int64)
        table, offset = tf.lookup.StaticHashTable(initial, -1), tf.Variable(100, dtype=tf.int64)

        def look_up(example, _):
            found = table.lookup(example["label"]) + offset
            # TensorFlow releases a Python function together with the graph that contains it
            more = tf.numpy_function(lambda value: value + 1, [found], tf.int64)
            return example["label"], tf.ensure_shape(more, [])

        return load(photos, batch_size=5, remainder="keep", map_fn=look_up)

    dataset = made()
    gc.collect()
    for labels, found in dataset.repeat(2):
        assert found.numpy().tolist() == (labels + 111).numpy().tolist()


# the function, its options, and the message
REFUSED = [
    (lambda example, seed: None, {}, "map_fn returns None; return the tensors"),
    (lambda example, seed: {}, {}, "map_fn returns {}; return the tensors"),
    (lambda example, seed: seed, {"remainder": "pad"}, r"map_fn must return .* such as \(value,\)"),
    (lambda example, seed: {"sample_weight": seed}, {"sample_weights": "balanced"}, "map_fn must return"),
]


@pytest.mark.parametrize(("map_fn", "options", "message"), REFUSED)
def test_functions_whose_results_cannot_be_delivered_are_refused(photos, map_fn, options, message):
    with pytest.raises(OptionsError, match=message):
        load(photos, batch_size=2, map_fn=map_fn, **options)
