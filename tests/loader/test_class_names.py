"""``class_names=``: the dataset is loaded only if it has the classes that the model was trained with."""

import pytest
import tensorflow as tf

from tests.errors import raises
from tfshards import loader
from tfshards.schemas import Feature, OptionsError, Schema

LABEL = Feature("label", "label", "int64")
NAMES = ("cat", "dog", "eel")


@pytest.fixture(scope="module")
def named(write_dataset, tmp_path_factory):
    examples = [[{"label": number % 3} for number in range(6)]]
    return write_dataset(tmp_path_factory.mktemp("named"), Schema((LABEL,), NAMES), {"train": examples})


@pytest.fixture(scope="module")
def unnamed(write_dataset, tmp_path_factory):
    examples = [[{"label": number % 3} for number in range(6)]]
    return write_dataset(tmp_path_factory.mktemp("unnamed"), Schema((LABEL,)), {"train": examples})


@pytest.mark.parametrize("class_names", [None, NAMES, list(NAMES)])
def test_the_class_names_of_the_dataset_are_accepted(named, class_names):
    (batch,) = loader.load(named, batch_size=6, class_names=class_names).as_numpy_iterator()
    assert batch["label"].tolist() == [0, 1, 2, 0, 1, 2]


def test_empty_class_names_are_accepted_for_a_dataset_without_them(unnamed):
    assert len(loader.load(unnamed, batch_size=6, class_names=())) == 1


@pytest.mark.parametrize(
    ("class_names", "number", "stored", "asked"),
    [
        (("cat", "dog", "fox"), 2, "eel", "fox"),
        (("cat", "dog", "eel", "fox"), 3, None, "fox"),
        (("cat", "dog"), 2, "eel", None),
        ((), 0, "cat", None),
        (("dog", "cat", "eel"), 0, "cat", "dog"),
        (("cat", 1, "eel"), 1, "dog", 1),
    ],
)
def test_the_first_class_that_differs_is_named(named, class_names, number, stored, asked):
    with raises(OptionsError, "class-names-differ", number=number, stored=stored, asked=asked):
        loader.load(named, batch_size=2, class_names=class_names)


def test_class_names_are_refused_for_a_dataset_without_them(unnamed):
    with raises(OptionsError, "class-names-differ"):
        loader.load(unnamed, batch_size=2, class_names=NAMES)


def test_classes_are_compared_before_anything_is_distributed(named):
    strategy = tf.distribute.get_strategy()
    (batch,) = loader.distribute(strategy, named, global_batch_size=6, class_names=NAMES)
    assert batch["label"].numpy().tolist() == [0, 1, 2, 0, 1, 2]
    with raises(OptionsError, "class-names-differ"):
        loader.distribute(strategy, named, global_batch_size=6, class_names=("dog", "cat", "eel"))
