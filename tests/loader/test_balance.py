"""Class weights follow from the counts of the manifest, steps from its number of examples."""

import pytest

from tests.errors import raises
from tfshards import loader
from tfshards.schemas import Feature, InputError, Schema

NAMED = Schema((Feature("label", "label", "int64"),), ("cat", "dog", "eel"))
NUMBERED = Schema((Feature("label", "label", "int64"),))


@pytest.fixture
def labeled(write_dataset, tmp_path):
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
def test_all_classes_have_the_same_total_weight(labeled, schema, counts, weights, reason):
    found = loader.class_weights(labeled(schema, counts), "train")
    assert found == pytest.approx(weights), reason
    assert list(found) == sorted(weights)


def test_a_split_without_labels_has_no_weights(numbered, labeled):
    for path in (numbered([4]), labeled(NAMED, {"cat": 0, "dog": 0, "eel": 0})):
        with raises(InputError, "has no labels, or examples without a class", "'train'"):
            loader.class_weights(path)
