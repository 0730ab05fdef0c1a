"""Weights of examples by class or by a feature, weights of classes, and 0 for padding."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tfshards import loader
from tfshards.schemas import Feature, OptionsError, Schema

LABELS = [2, 0, 0, 1, 0, 0, 0]
OWN = [0.5, float("inf"), 2, 3, 0, 4, 5]
COUNTS = {"cat": 5, "dog": 1, "eel": 1, "fox": 0}
# 7 examples, 3 classes that occur
EVEN = {0: 7 / 15, 1: 7 / 3, 2: 7 / 3}
FEATURES = (
    Feature("x", "float", "float32", (2,)),
    Feature("label", "label", "int64"),
    Feature("sample_weight", "float", "float32"),
    Feature("times", "int", "uint8"),
    Feature("name", "bytes", "bytes"),
)


def examples():
    return [
        {"x": [i, -i], "label": LABELS[i], "sample_weight": OWN[i], "times": i, "name": b"n"}
        for i in range(7)
    ]


@pytest.fixture(scope="module")
def labeled(write_dataset, tmp_path_factory):
    path = tmp_path_factory.mktemp("labeled")
    schema, shards = Schema(FEATURES, tuple(COUNTS)), {"train": [examples()[:3], examples()[3:]]}
    return write_dataset(path, schema, shards, {"train": COUNTS})


@pytest.fixture(scope="module")
def numbered_classes(write_dataset, tmp_path_factory):
    """Return a dataset with unnamed classes and these counts in the manifest; the records have ``LABELS``."""

    def make(counts):
        path = tmp_path_factory.mktemp("numbers")
        return write_dataset(path, Schema(FEATURES), {"train": [examples()]}, {"train": counts})

    return make


def weights_of(dataset):
    *_, weights = zip(*dataset.as_numpy_iterator(), strict=True)
    assert {part.dtype for part in weights} == {np.dtype("float32")}
    return np.concatenate(weights).tolist()


@pytest.mark.parametrize(
    ("sample_weights", "wanted"),
    [
        ("balanced", [EVEN[label] for label in LABELS]),
        ({"cat": 1, "dog": 2.5, "eel": 0}, [0, 1, 1, 2.5, 1, 1, 1]),
        ({0: 1, "dog": np.float32(2.5), np.int64(2): 4, "fox": 9}, [4, 1, 1, 2.5, 1, 1, 1]),
        ("times", list(range(7))),
        ("sample_weight", OWN),
    ],
)
def test_each_example_has_its_weight_and_padding_has_weight_zero(labeled, sample_weights, wanted):
    options = {"batch_size": 3, "select": ("x",), "sample_weights": sample_weights}
    padded = loader.load(labeled, **options, remainder="pad")
    assert [spec.shape.as_list() for spec in padded.element_spec] == [[3, 2], [3]]
    assert weights_of(padded) == pytest.approx([*wanted, 0, 0])


def test_a_class_that_the_manifest_does_not_count_is_named_in_the_graph(numbered_classes):
    lying = numbered_classes({"0": 5, "1": 2})
    dataset = loader.load(lying, batch_size=7, sample_weights="balanced", select=("x",))
    message = "verify DATASET --deep.*label: holds the class 2, which no example has"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(dataset)


def test_invalid_weights_are_refused(labeled):
    for sample_weights, name in [
        ({"cat": -1}, "sample_weights['cat']"),
        ({"cat": float("nan")}, "sample_weights['cat']"),
        ({"cat": 1, "ox": 2}, "a class in sample_weights"),
        ({4: 1}, "a class in sample_weights"),
        ({"cat": 1, 0: 1}, "a class in sample_weights"),
        ({"cat": 1, "dog": 1}, "sample_weights"),
        *((feature, "sample_weights") for feature in ("even", "x", "name")),
    ]:
        with raises(OptionsError, f"{name}="):
            loader.load(labeled, batch_size=2, select=("x",), sample_weights=sample_weights)


def test_weights_by_class_require_counted_labels_and_an_unused_name(numbered, numbered_classes, labeled):
    for path, select in ((numbered([4]), None), (numbered_classes({}), ("x",))):
        for sample_weights in ("balanced", {0: 1}):
            with raises(OptionsError, "sample_weights="):
                loader.load(path, batch_size=2, select=select, sample_weights=sample_weights)
    with pytest.raises(OptionsError, match="add 'sample_weight', which is a feature already"):
        loader.load(labeled, batch_size=2, sample_weights="balanced")


COUNTED = {
    "names": (("cat", "dog"), [0, -1, 1, -1], 2),
    "numbers": ((), [3, -1], 1),
    "no one lacks a class": (("cat",), [0, 0], 0),
    "all": (("cat",), [-1, -1], 2),
}


@pytest.mark.parametrize(("names", "labels", "count"), COUNTED.values(), ids=COUNTED)
def test_examples_without_a_class_lead_to_a_warning(write_dataset, tmp_path, names, labels, count):
    path = write_dataset(
        tmp_path,
        Schema((Feature("label", "label", "int64"),), names),
        {"test": [[{"label": each} for each in labels]]},
    )

    def warned(**options):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            loader.load(path, batch_size=1, **options)
        return [str(each.message) for each in seen if "-1, for no class" in str(each.message)]

    assert len(warned()) == bool(count)
    assert all(f"{count} of {len(labels)} examples" in line and "'test'" in line for line in warned())
    if 0 in labels:
        assert not warned(classes=[0])
    # damage of labels that nothing else reads is not reported
    for file in path.glob("*/index/*.labels"):
        file.write_bytes(b"")
    assert len(warned()) == (bool(count) and not names)


def test_examples_without_a_class_count_for_no_weight(write_dataset, tmp_path):
    schema = Schema((Feature("label", "label", "int64"),))
    path = write_dataset(tmp_path, schema, {"test": [[{"label": each} for each in (-1, 0, 0, 0, 1)]]})
    assert loader.class_weights(path) == {0: 2 / 3, 1: 2.0}
    batches = loader.load(path, batch_size=5, sample_weights="balanced")
    (batch,) = batches.as_numpy_iterator()
    assert dict(zip(batch["label"].tolist(), batch["sample_weight"].tolist(), strict=True)) == {
        -1: 0.0,
        0: np.float32(2 / 3),
        1: 2.0,
    }


# Class weights follow from the counts of the manifest, steps from its number of examples


NAMED = Schema((Feature("label", "label", "int64"),), ("cat", "dog", "eel"))


NUMBERED = Schema((Feature("label", "label", "int64"),))


@pytest.fixture
def shares(write_dataset, tmp_path):
    def make(schema, counts):
        names = schema.class_names
        labels = {name: names.index(name) if names else int(name) for name in counts}
        examples = [{"label": labels[name]} for name, count in counts.items() for _ in range(count)]
        return write_dataset(tmp_path / "labeled", schema, {"train": [examples]}, {"train": counts})

    return make


@pytest.mark.parametrize(
    ("schema", "counts", "weights", "reason"),
    [
        (NAMED, {"cat": 2, "dog": 2, "eel": 2}, {0: 1, 1: 1, 2: 1}, "even classes"),
        (NAMED, {"cat": 1, "dog": 2, "eel": 9}, {0: 4, 1: 2, 2: 4 / 9}, "rare classes count more"),
        (NAMED, {"cat": 3, "dog": 0, "eel": 9}, {0: 2, 1: 0, 2: 2 / 3}, "a class without examples"),
        (NAMED, {"eel": 3, "cat": 1}, {0: 2, 2: 2 / 3}, "the names' order, not the counts'"),
        (NUMBERED, {"7": 1, "-1": 3, "10": 4}, {7: 5 / 2, 10: 5 / 8}, "classes without names"),
    ],
)
def test_all_classes_have_the_same_total_weight(shares, schema, counts, weights, reason):
    found = loader.class_weights(shares(schema, counts), "train")
    assert found == pytest.approx(weights), reason
    assert list(found) == sorted(weights)
