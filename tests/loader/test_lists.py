"""Lists of any length are read exactly, as ragged tensors, in the order of the examples."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tests.pictures import image_file
from tfshards.loader import Image, Position, Shuffle, batches, load
from tfshards.schemas import Feature, OptionsError, Schema
from tfshards.schemas.manifest import with_digest
from tfshards.schemas.schema import KINDS

IMAGE = image_file(np.zeros((1, 1, 3), np.uint8))
TAGS = Feature("tags", "label", "int64", (None,))
SCHEMA = Schema(
    (
        Feature("number", "int", "int64"),
        Feature("words", "bytes", "bytes", (None,)),
        Feature("nothing", "int", "int64", (0,)),
        Feature("pairs", "float", "float32", (None, 2)),
        Feature("image", "image", "uint8", (1, 1, 3)),
        TAGS,
    ),
    ("cat", "dog", "eel"),
)
COUNT = 23


def lists_of(number):
    """Return lists of which some are empty, and that identify their example."""
    return {
        "words": [b"%d" % place for place in range((number + 1) % 3)],
        "nothing": [],
        "pairs": [[number + 0.5, row] for row in range(number % 3)],
        "tags": [[], [number % 3], [2, 0], [1, 1]][number % 4],
    }


@pytest.fixture(scope="module")
def listed(write_dataset, tmp_path_factory):
    examples = [{"number": number, "image": IMAGE, **lists_of(number)} for number in range(COUNT)]
    shards = [examples[:9], examples[9:17], examples[17:]]
    return write_dataset(tmp_path_factory.mktemp("lists"), SCHEMA, {"train": shards})


ORDERS = [
    {"remainder": "keep"},
    {
        "image": Image(),
        "shuffle": Shuffle(1, run=2),
        "epochs": 2,
        "start": Position(0, 1),
        "remainder": "pad",
    },
]


@pytest.mark.parametrize("options", ORDERS)
def test_lists_stay_with_their_examples(listed, options):
    data = load(listed, batch_size=4, **options)
    rows = 4 if "image" in options else None
    assert data.element_spec["words"] == tf.RaggedTensorSpec([rows, None], tf.string, 1, tf.int64)
    assert data.element_spec["pairs"] == tf.RaggedTensorSpec([rows, None, 2], tf.float32, 1, tf.int64)
    assert data.element_spec["nothing"] == tf.TensorSpec([rows, 0], tf.int64)
    for batch, wanted in zip(data, batches(listed, batch_size=4, **options), strict=True):
        numbers = batch["number"].numpy().tolist()
        assert numbers == wanted["number"].tolist()
        for name in ("words", "pairs", "tags"):
            assert batch[name].to_list() == [lists_of(number)[name] for number in numbers]


@pytest.mark.parametrize("options", [{}, {"image": Image(), "shuffle": Shuffle(2)}])
def test_lists_that_are_all_empty_are_empty_rows(write_dataset, tmp_path, options):
    empty = dict.fromkeys(("words", "nothing", "pairs", "tags"), ())
    path = write_dataset(tmp_path, SCHEMA, {"train": [[{"number": 0, "image": IMAGE, **empty}] * 9]})
    for select in (("words", "nothing"), ("words", "image")):
        for batch in load(path, batch_size=3, select=select, **options if "image" in select else {}):
            assert isinstance(batch[0], tf.RaggedTensor)
            assert batch[0].to_list() == [[], [], []]


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
    (batch,) = load(path, batch_size=4)
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
        list(load(path, batch_size=3))


@pytest.mark.parametrize("read", [load, batches])
def test_classes_choose_the_examples_that_have_one(listed, read):
    for classes, wanted in ((["cat"], {0}), (["eel", "dog"], {1, 2})):
        found = [
            int(number[0]) for (number,) in read(listed, batch_size=1, select=("number",), classes=classes)
        ]
        assert found == [number for number in range(COUNT) if wanted & {*lists_of(number)["tags"]}]
    with raises(OptionsError, "classes= requires"):
        read(listed, batch_size=1, classes={"cat": 1, "dog": 1})
