"""Lists of classes, chosen by class; and the warning about examples without a class."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tfshards import loader
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.order.source import open_source
from tfshards.schemas import Feature, FormatError, OptionsError, Schema

pytestmark = pytest.mark.nightly

NAMES = ("cat", "dog", "eel")
PIXEL = tf.io.encode_png(np.zeros((1, 1, 3), np.uint8)).numpy()
TAGS = Feature("tags", "label", "int64", (None,))
SCHEMA = Schema(
    (Feature("number", "int", "int64"), TAGS, Feature("image", "image", "uint8", (1, 1, 3))), NAMES
)


def tags_of(number):
    """Return no, one or two classes, or a class twice."""
    return [[], [number % 3], [2, 0], [1, 1]][number % 4]


def expected(numbers):
    return [[float(index in tags_of(number)) for index in range(3)] for number in numbers]


@pytest.fixture(scope="module")
def tagged(write_dataset, tmp_path_factory):
    rows = [{"number": n, "tags": tags_of(n), "image": PIXEL} for n in range(21)]
    root = tmp_path_factory.mktemp("tagged")
    return write_dataset(root, SCHEMA, {"train": [rows[:9], rows[9:]]})


@pytest.mark.parametrize(("classes", "wanted"), [(["cat"], {0}), (["eel", "dog"], {1, 2})])
def test_classes_choose_the_examples_that_have_one(tagged, classes, wanted):
    data = loader.load(tagged, batch_size=1, select=("number",), classes=classes)
    found = [int(number[0]) for (number,) in data.as_numpy_iterator()]
    assert found == [number for number in range(21) if wanted & {*tags_of(number)}]


def test_ratios_of_lists_of_classes_are_refused(tagged):
    with raises(OptionsError, "classes-no-label"):
        loader.load(tagged, batch_size=1, classes={"cat": 1, "dog": 1})


def test_classes_of_lists_need_records_that_can_be_read(tmp_path, write_dataset):
    path = write_dataset(tmp_path, SCHEMA, {"train": [[{"number": 0, "tags": [0], "image": PIXEL}]]})
    shard = next(path.glob("*.tfrecord-*"))
    shard.write_bytes(shard.read_bytes()[:-30] + bytes(30))
    with pytest.raises(FormatError, match="record 0 at offset 0: its length or a checksum is wrong"):
        open_source(LoadOptions(path, batch_size=1)).having([0])


LABEL = Feature("label", "label", "int64")
COUNTED = {
    "names": (("cat", "dog"), [0, -1, 1, -1], 2),
    "numbers": ((), [3, -1], 1),
    "no one lacks a class": (("cat",), [0, 0], 0),
    "all": (("cat",), [-1, -1], 2),
}


@pytest.mark.parametrize(("names", "labels", "count"), COUNTED.values(), ids=COUNTED)
def test_examples_without_a_class_lead_to_a_warning(write_dataset, tmp_path, names, labels, count):
    path = write_dataset(tmp_path, Schema((LABEL,), names), {"test": [[{"label": each} for each in labels]]})

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
    for file in (path / "index").glob("*.labels"):
        file.write_bytes(b"")
    assert len(warned()) == (bool(count) and not names)
