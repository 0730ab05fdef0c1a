"""Classes as one-hot and multi-hot vectors; a number for which these have no place is an error."""

import numpy as np
import pytest
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import Feature, OptionsError, Schema

SCHEMA = Schema(
    (
        Feature("x", "float", "float32"),
        Feature("label", "label", "int64"),
        Feature("tags", "label", "int32", (None,)),
        Feature("grid", "raw", "uint8", (2, 2)),
    ),
    ("cat", "dog", "eel"),
)
LABELS = [2, 0, 0, 1, 2, 0, 1]
TAGS = [[], [1], [0, 2], [2, 2, 1], [0], [], [1, 0]]
GRIDS = [np.arange(4, dtype=np.uint8).reshape(2, 2) % (i + 1) for i in range(7)]
EYE = np.eye(4, dtype=np.float32)


@pytest.fixture(scope="module")
def labelled(write_dataset, tmp_path_factory):
    examples = [{"x": i, "label": LABELS[i], "tags": TAGS[i], "grid": GRIDS[i]} for i in range(7)]
    counts = {"cat": 3, "dog": 2, "eel": 2}
    path = tmp_path_factory.mktemp("labelled")
    return write_dataset(path, SCHEMA, {"train": [examples[:3], examples[3:]]}, {"train": counts})


@pytest.fixture(scope="module")
def numbered_classes(write_dataset, tmp_path_factory):
    """Return a dataset whose classes have numbers only, counted so by the manifest."""

    def make(labels, counts):
        schema = Schema((Feature("label", "label", "int64"), Feature("size", "int", "int16")))
        examples = [{"label": label, "size": label} for label in labels]
        path = tmp_path_factory.mktemp("classes")
        return write_dataset(path, schema, {"train": [examples]}, {"train": counts})

    return make


def several_hot(tags):
    return np.array([sum((EYE[tag, :3] for tag in set(row)), np.zeros(3)) for row in tags], np.float32)


def as_tuple(example, _):
    return tuple(example.values())


@pytest.mark.parametrize(
    ("options", "shuffled"),
    [
        ({"remainder": "pad"}, False),
        ({"remainder": "keep"}, False),
        ({"remainder": "keep", "shuffle": loader.Shuffle(seed=2, run=2)}, True),
        ({"remainder": "keep", "map_fn": as_tuple}, False),
        ({"remainder": "pad", "map_fn": as_tuple}, False),
    ],
)
def test_classes_become_vectors_with_every_other_option(labelled, options, shuffled):
    select = ("x", "tags", "label", "grid")
    one_hot = {"label": 3, "tags": 3, "grid": 4}
    dataset = loader.load(labelled, batch_size=2, select=select, one_hot=one_hot, **options)
    padded = options["remainder"] == "pad"
    rows = 2 if padded else None
    assert [spec.shape.as_list()[1:] for spec in dataset.element_spec[1:4]] == [[3], [3], [2, 2, 4]]
    assert [spec.shape.as_list()[0] for spec in dataset.element_spec] == [rows] * (4 + padded)
    columns = zip(*dataset.as_numpy_iterator(), strict=True)
    x, tags, label, grid, *_ = map(np.concatenate, columns)
    order = x.astype(int).tolist()
    assert sorted(order) == [*([0] * padded), *range(7)]
    assert (order[:7] == list(range(7))) != shuffled
    assert {label.dtype, tags.dtype, grid.dtype} == {np.dtype("float32")}
    assert np.array_equal(label, EYE[[LABELS[i] for i in order], :3])
    assert np.array_equal(tags, several_hot([TAGS[i] for i in order]))
    assert np.array_equal(grid, EYE[np.stack([GRIDS[i] for i in order])])


def test_the_depth_is_the_number_of_classes_and_a_dict_keeps_its_order(labelled):
    dataset = loader.load(labelled, batch_size=7, one_hot=["tags", "label"])
    (batch,) = dataset.as_numpy_iterator()
    assert list(batch) == ["x", "label", "tags", "grid"]
    assert np.array_equal(batch["label"], EYE[LABELS, :3])
    assert np.array_equal(batch["tags"], several_hot(TAGS))


@pytest.mark.parametrize("map_fn", [None, as_tuple])
def test_a_number_without_a_place_is_named_in_the_graph(labelled, numbered_classes, map_fn):
    lying = numbered_classes([0, 1, 7, 9], {"0": 2, "1": 2})
    dataset = loader.load(lying, batch_size=4, one_hot={"label": 4}, map_fn=map_fn)
    message = (
        "feature label holds the class 7, for which one_hot= of depth 4 has no place; the classes are 0 to 3"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(dataset)
    below = loader.load(numbered_classes([-1], {}), batch_size=1, one_hot={"size": 4}, map_fn=map_fn)
    with pytest.raises(tf.errors.InvalidArgumentError, match="feature size holds the class -1, for"):
        list(below)
    grids = loader.load(labelled, batch_size=7, one_hot={"grid": 3}, map_fn=map_fn)
    with pytest.raises(tf.errors.InvalidArgumentError, match="feature grid holds the class 3, for"):
        list(grids)


@pytest.mark.parametrize(
    ("one_hot", "message"),
    [
        ("label", r"one_hot='label' must be a list of names"),
        (3, "one_hot=3 must be a list of names"),
        ((), r"one_hot=\(\) names no feature"),
        ({}, "one_hot={} names no feature"),
        ({"label": 0}, r"one_hot\['label'\]=0 must be at least 1"),
        ({"label": 2.5}, r"one_hot\['label'\]=2.5 must be an integer"),
        (["class"], "one_hot= names 'class', which is not delivered; there is 'x', 'label', 'tags', 'grid'"),
        (["x"], "one_hot= names 'x', which holds float32, not classes' numbers"),
        (["grid"], r"one_hot= names 'grid', whose classes have no names .* as in one_hot=\{'grid': 10\}"),
        ({"label": 2}, r"one_hot=\{'label': 2\} has no place for all classes; use 3"),
        ({"tags": 2}, r"one_hot=\{'tags': 2\} has no place for all classes; use 3"),
    ],
)
def test_vectors_that_cannot_be_made_are_refused(labelled, one_hot, message):
    with pytest.raises(OptionsError, match=message):
        loader.load(labelled, batch_size=2, one_hot=one_hot)


@pytest.mark.parametrize(
    ("labels", "one_hot", "message"),
    [
        ([0, 4], ["label"], r"could be counted; give their number, as in one_hot=\{'label': 5\}"),
        ([0, 4], {"label": 4}, r"one_hot=\{'label': 4\} has no place for all classes; use 5"),
        ([-2, 4], {"label": 9}, "one_hot= names 'label', which holds the class -2, below 0"),
    ],
)
def test_the_counted_classes_are_looked_at_before_the_first_step(numbered_classes, labels, one_hot, message):
    path = numbered_classes(labels, {str(label): 1 for label in labels})
    with pytest.raises(OptionsError, match=message):
        loader.load(path, batch_size=1, one_hot=one_hot)
