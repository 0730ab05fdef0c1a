"""Values are read exactly: every kind and dtype, selections, static shapes, lists of any length."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tests.pictures import image_file
from tfshards import loader
from tfshards.loader import Image, Position, Shuffle, batches, load
from tfshards.schemas import Feature, OptionsError, Schema
from tfshards.schemas.manifest import with_digest
from tfshards.schemas.schema import KINDS

COUNT = 5
SHAPES = [(), (2, 3)]

# Kinds that are stored encoded, and a shape of each.
IMAGE_SHAPES = {"image": [(4, 4, 3)], "mask": [(4, 4, 1)]}


def stored(feature):
    """Return ``COUNT`` values; numbers from random bits, so that extremes and NaN payloads are among them."""
    random = np.random.default_rng(len(feature.name))
    shape = (COUNT, *feature.shape)
    if feature.kind in IMAGE_SHAPES:
        return np.array([b"image %d" % number for number in range(COUNT)], object)
    if feature.dtype == "bytes":
        flat = [b"\x00\xff" * (number % 3) for number in range(int(np.prod(shape)))]
        return np.array(flat, object).reshape(shape)
    if feature.dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    dtype = np.dtype(getattr(ml_dtypes, feature.dtype, feature.dtype))
    if feature.kind == "float":
        return random.normal(size=shape).astype(dtype)
    raw = random.bytes(int(np.prod(shape)) * dtype.itemsize)
    return np.frombuffer(raw, dtype).reshape(shape)


FEATURES = tuple(
    Feature(f"{kind} {dtype} {shape}", kind, dtype, shape)
    for kind, allowed in sorted(KINDS.items())
    for dtype in sorted(allowed.dtypes)
    for shape in IMAGE_SHAPES.get(kind, SHAPES)
)
COLUMNS = {feature.name: stored(feature) for feature in FEATURES}
EXAMPLES = [{name: column[i] for name, column in COLUMNS.items()} for i in range(COUNT)]


def as_bytes(array):
    """The bytes, since NaN is not equal to itself."""
    return np.ascontiguousarray(array).tobytes()


@pytest.fixture(scope="module")
def everything(write_dataset, tmp_path_factory):
    shards = {"train": [EXAMPLES[:3], EXAMPLES[3:]]}
    return write_dataset(tmp_path_factory.mktemp("everything"), Schema(FEATURES), shards)


def test_every_kind_dtype_and_shape_is_read_bit_for_bit(everything):
    dataset = loader.load(everything, batch_size=2)
    batches = list(dataset.as_numpy_iterator())
    assert list(dataset.element_spec) == [feature.name for feature in FEATURES]
    for feature in FEATURES:
        spec = dataset.element_spec[feature.name]
        string = feature.kind in (*IMAGE_SHAPES, "bytes")
        shape = () if feature.kind in IMAGE_SHAPES else feature.shape
        assert spec.dtype == (tf.string if string else feature.dtype), feature
        assert spec.shape.as_list() == [2, *shape], feature
        found = np.concatenate([batch[feature.name] for batch in batches])
        wanted = COLUMNS[feature.name][:4]
        assert found.shape == wanted.shape, feature
        if string:
            assert found.tolist() == wanted.tolist(), feature
        else:
            assert (found.dtype, as_bytes(found)) == (wanted.dtype, as_bytes(wanted)), feature


def test_features_without_elements_are_refused(write_dataset, tmp_path):
    schema = Schema((Feature("x", "raw", "int8", (2, 0)), Feature("number", "int", "int64")))
    path = write_dataset(tmp_path, schema, {"train": [[{"x": np.zeros((2, 0), np.int8), "number": 3}] * 2]})
    with raises(OptionsError, "select=None", "'x'"):
        load(path, batch_size=2)
    (batch,) = batches(path, batch_size=2)
    assert batch["x"].shape == (2, 2, 0)
    (batch,) = load(path, batch_size=2, select=("number",))
    assert batch[0].numpy().tolist() == [3, 3]


# Lists of any length are read exactly, as ragged tensors, in the order of the examples


IMAGE = image_file(np.zeros((1, 1, 3), np.uint8))


TAGS = Feature("tags", "label", "int64", (None,))


SCHEMA = Schema(
    (
        Feature("number", "int", "int64"),
        Feature("words", "bytes", "bytes", (None,)),
        Feature("pairs", "float", "float32", (None, 2)),
        Feature("image", "image", "uint8", (1, 1, 3)),
        TAGS,
    ),
    ("cat", "dog", "eel"),
)


NUM_LISTED = 23


def lists_of(number):
    """Return lists of which some are empty, and that identify their example."""
    return {
        "words": [b"%d" % place for place in range((number + 1) % 3)],
        "pairs": [[number + 0.5, row] for row in range(number % 3)],
        "tags": [[], [number % 3], [2, 0], [1, 1]][number % 4],
    }


@pytest.fixture(scope="module")
def listed(write_dataset, tmp_path_factory):
    examples = [{"number": number, "image": IMAGE, **lists_of(number)} for number in range(NUM_LISTED)]
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
    for batch, wanted in zip(data, batches(listed, batch_size=4, **options), strict=True):
        numbers = batch["number"].numpy().tolist()
        assert numbers == wanted["number"].tolist()
        for name in ("words", "pairs", "tags"):
            assert batch[name].to_list() == [lists_of(number)[name] for number in numbers]


@pytest.mark.parametrize("options", [{}, {"image": Image(), "shuffle": Shuffle(2)}])
def test_lists_that_are_all_empty_are_empty_rows(write_dataset, tmp_path, options):
    empty = dict.fromkeys(("words", "pairs", "tags"), ())
    path = write_dataset(tmp_path, SCHEMA, {"train": [[{"number": 0, "image": IMAGE, **empty}] * 9]})
    for select in (("words", "pairs"), ("words", "image")):
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
        assert found == [number for number in range(NUM_LISTED) if wanted & {*lists_of(number)["tags"]}]
    with raises(OptionsError, "classes= requires"):
        read(listed, batch_size=1, classes={"cat": 1, "dog": 1})
