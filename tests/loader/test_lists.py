"""Lists of any length are read exactly, as ragged tensors, in the order of the examples."""

import itertools
from itertools import islice

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Image, Position, Shuffle, Worker
from tfshards.schemas import Feature, Schema
from tfshards.schemas.manifest import with_digest
from tfshards.schemas.schema import KINDS

MIXED = Shuffle(seed=5)
PIXEL = tf.io.encode_png(np.zeros((1, 1, 3), np.uint8)).numpy()
SCHEMA = Schema(
    (
        Feature("number", "int", "int64"),
        Feature("list", "int", "int32", (None,)),
        Feature("words", "bytes", "bytes", (None,)),
        Feature("nothing", "int", "int64", (0,)),
        Feature("pairs", "float", "float32", (None, 2)),
        Feature("image", "image", "uint8", (1, 1, 3)),
    )
)


def list_of(number):
    """Return a list of 0 to 3 numbers that identifies its example."""
    return [10 * number + place for place in range(number % 4)]


def words_of(number):
    return [b"%d" % place for place in range((number + 1) % 3)]


def pairs_of(number):
    """Return 0 to 2 rows of two numbers."""
    return [[number + 0.5, row] for row in range(number % 3)]


def example(number, numbers):
    return {
        "number": number,
        "list": numbers,
        "words": words_of(number),
        "nothing": [],
        "pairs": pairs_of(number),
        "image": PIXEL,
    }


@pytest.fixture(scope="module")
def listed(write_dataset, tmp_path_factory):
    """Return the dataset with shards of these sizes, example ``i`` with ``i`` and its lists."""
    made = {}

    def make(sizes, lists=list_of):
        if (*sizes, lists) not in made:
            numbers = iter(range(sum(sizes)))
            shards = [[example(n, lists(n)) for n in islice(numbers, size)] for size in sizes]
            made[(*sizes, lists)] = write_dataset(tmp_path_factory.mktemp("lists"), SCHEMA, {"train": shards})
        return made[(*sizes, lists)]

    return make


def rows_of(value):
    return value.to_list() if isinstance(value, tf.RaggedTensor) else value.numpy().tolist()


def rows(dataset):
    """Return all rows of all batches, each a dict, after checking that each list is its example's."""
    found = []
    for batch in dataset:
        by_name = {name: rows_of(value) for name, value in batch.items()}
        for values in zip(*by_name.values(), strict=True):
            row = dict(zip(by_name, values, strict=True))
            assert row["list"] == list_of(row["number"])
            assert row["words"] == words_of(row["number"])
            assert row["pairs"] == pairs_of(row["number"])
            found.append(row)
    return found


ORDERS = [
    ({}, "stored order"),
    ({"shuffle": MIXED, "epochs": 3}, "other orders in other epochs"),
    ({"shuffle": MIXED, "epochs": 3, "start": Position(1, 2)}, "resumed inside an epoch"),
    ({"shuffle": Shuffle(seed=1, run=2), "epochs": 2, "start": Position(0, 1)}, "resumed inside a run"),
    ({"shuffle": MIXED, "worker": Worker(1, 2)}, "one of two workers"),
    ({"shuffle": MIXED, "remainder": "pad"}, "with padding"),
    ({"shuffle": MIXED, "remainder": "keep"}, "with a smaller last batch"),
]


@pytest.mark.parametrize(
    ("order", "image"),
    mostly_nightly(itertools.product(ORDERS, [None, Image()]), [(ORDERS[3], None), (ORDERS[5], Image())]),
)
def test_lists_do_not_change_the_order(listed, order, image):
    options, reason = order
    path = listed([9, 8, 6])
    plain = loader.load(path, batch_size=4, select=("number",), **options)
    wanted = [number for batch in plain.as_numpy_iterator() for number in batch[0].tolist()]
    found = rows(loader.load(path, batch_size=4, image=image, **options))
    assert [row["number"] for row in found] == wanted, reason


SPECS = [({}, 4), ({"image": Image()}, 4), ({"remainder": "pad"}, 4), ({"remainder": "keep"}, None)]


@pytest.mark.parametrize(("options", "num_rows"), mostly_nightly(SPECS, SPECS[1:]))
def test_specs_have_the_batch_size_and_an_unknown_length(listed, options, num_rows):
    path = listed([5, 4, 4])
    spec = loader.load(path, batch_size=4, **options).element_spec
    assert spec["list"] == tf.RaggedTensorSpec([num_rows, None], tf.int32, 1, tf.int64)
    assert spec["words"] == tf.RaggedTensorSpec([num_rows, None], tf.string, 1, tf.int64)
    assert spec["pairs"] == tf.RaggedTensorSpec([num_rows, None, 2], tf.float32, 1, tf.int64)
    assert spec["number"] == tf.TensorSpec([num_rows], tf.int64)
    assert spec["nothing"] == tf.TensorSpec([num_rows, 0], tf.int64)


def none(_):
    return []


EMPTY = [
    (("list",), {}, "a group of stored order without any element"),
    (("list",), {"shuffle": MIXED}, "a shuffled one"),
    (("list", "nothing"), {"shuffle": Shuffle(run=2)}, "runs of two"),
    (("list", "nothing"), {"remainder": "keep"}, "smaller last batches"),
    (("list", "image"), {"image": Image()}, "one example at a time"),
    (("list", "image"), {"image": Image(), "shuffle": MIXED}, "shuffled and decoded"),
    (None, {"image": Image(), "remainder": "pad"}, "with all other features"),
]


@pytest.mark.parametrize(("select", "options", "reason"), mostly_nightly(EMPTY, [*EMPTY[::2]]))
def test_lists_that_are_all_empty_are_empty_rows(listed, select, options, reason):
    dataset = loader.load(listed([5, 4], none), batch_size=3, select=select, **options)
    batches = list(dataset)
    assert len(batches) == 3
    for batch in batches:
        value = batch[0] if select else batch["list"]
        assert isinstance(value, tf.RaggedTensor), reason
        assert rows_of(value) == [[], [], []], reason


def extremes(dtype):
    if dtype == "bytes":
        return np.array([b"", b"\x00\xff", b"c"], object)
    if dtype == "bool":
        return np.array([True, False, True])
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if "int" in dtype:
        limits = np.iinfo(numpy_dtype)
        return np.array([limits.max, limits.min, 1], numpy_dtype)
    return np.array([0.1, -0.0, np.inf], numpy_dtype)


def test_every_dtype_is_read_exactly(write_dataset, tmp_path):
    kinds = [(kind, dtype) for kind, row in KINDS.items() if row.lists for dtype in sorted(row.dtypes)]
    schema = Schema(tuple(Feature(f"{kind} {dtype}", kind, dtype, (None,)) for kind, dtype in kinds))
    lengths = [3, 0, 1, 2]
    examples = [{f.name: extremes(f.dtype)[:length] for f in schema.features} for length in lengths]
    path = write_dataset(tmp_path / "dtypes", schema, {"train": [examples]})
    (batch,) = loader.load(path, batch_size=4)
    for feature in schema.features:
        value = batch[feature.name]
        assert value.dtype == (tf.string if feature.dtype == "bytes" else feature.dtype), feature
        for row, length in zip(value.to_list(), lengths, strict=True):
            wanted = extremes(feature.dtype)[:length]
            # as text, in which -0.0 is not 0.0
            assert (feature, repr(row)) == (feature, repr(wanted.tolist()))


def test_values_that_do_not_fill_their_rows_are_an_error(write_dataset, tmp_path):
    schema = Schema((Feature("x", "float", "float32", (None,)),))
    path = write_dataset(tmp_path / "floats", schema, {"train": [[{"x": [1.5, 2]}, {"x": [3]}, {"x": [4]}]]})
    text = (path / "dataset.json").read_text()
    wrong = text.replace("    null\n", "    null,\n    2\n")
    assert wrong != text
    (path / "dataset.json").write_text(with_digest(wrong))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"x\\' has values that are not rows of 2"):
        list(loader.load(path, batch_size=3))


def test_the_users_function_gets_and_returns_rows(listed):
    def last_first(example, seed):
        return {"number": example["number"], "pairs": example["pairs"][::-1, ::-1]}

    dataset = loader.load(listed([7]), batch_size=7, map_fn=last_first)
    (batch,) = dataset
    assert dataset.element_spec["pairs"] == tf.RaggedTensorSpec([7, None, 2], tf.float32, 1, tf.int64)
    wanted = [[pair[::-1] for pair in pairs_of(number)[::-1]] for number in batch["number"].numpy()]
    assert batch["pairs"].to_list() == wanted
