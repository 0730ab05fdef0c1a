"""Values are read exactly: every kind and dtype, selections, static shapes."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import Feature, Schema
from tfshards.schemas.schema import KINDS

COUNT = 5
SHAPES = [(), (2, 3), (2, 0)]

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


def test_a_selection_is_a_tuple_in_the_requested_order(everything):
    names = ("raw int16 (2, 3)", "bytes bytes ()", "int int8 (2, 3)")
    dataset = loader.load(everything, batch_size=5, select=names)
    assert isinstance(dataset.element_spec, tuple)
    (batch,) = dataset.as_numpy_iterator()
    assert isinstance(batch, tuple)
    for name, found in zip(names, batch, strict=True):
        assert np.array_equal(found, COLUMNS[name]), name


@pytest.mark.parametrize("options", [{}, {"shuffle": loader.Shuffle(seed=1)}, {"remainder": "keep"}])
def test_only_features_without_elements_can_be_selected(everything, options):
    dataset = loader.load(
        everything, batch_size=2, select=["raw int8 (2, 0)", "bytes bytes (2, 0)"], **options
    )
    batches = list(dataset.as_numpy_iterator())
    assert sum(len(batch[0]) for batch in batches) == (5 if options.get("remainder") else 4)
    assert batches[0][0].shape == (2, 2, 0)
    assert batches[0][1].shape == (2, 2, 0)
