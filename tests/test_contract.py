"""The loader returns what prep writes; tests/conformance compares other readers."""

import math

import ml_dtypes
import numpy as np
import pytest

from tfshards import loader
from tfshards.prep import Arrays, build

NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
OTHERS = ("bool", "float16", "float32", "float64", "complex64", "complex128")
SHAPES = {"scalar": (), "vector": (3,), "matrix": (2, 3), "empty": (0,)}
COUNT = 23


def values(dtype, shape):
    """Random bits, so that NaN payloads, signed zeros, extremes and subnormal numbers are among them."""
    random = np.random.default_rng(len(dtype) + len(shape))
    if dtype == "bool":
        return random.integers(0, 2, (COUNT, *shape)).astype(bool)
    bits = np.dtype("uint16" if dtype == "bfloat16" else dtype).itemsize
    raw = random.bytes(COUNT * math.prod(shape) * bits)
    return np.frombuffer(raw, getattr(ml_dtypes, dtype, dtype)).reshape(COUNT, *shape)


def bits(array):
    """The bytes, since NaN is not equal to itself."""
    return np.ascontiguousarray(array).view(np.uint8).tobytes()


@pytest.fixture(scope="module")
def columns():
    made = {
        f"{dtype}_{name}": values(dtype, shape)
        for dtype in (*NUMBERS, *OTHERS, "bfloat16")
        for name, shape in SHAPES.items()
    }
    made["big_endian"] = values("int32", (4,)).astype(">i4")
    made["fortran"] = np.asfortranarray(values("float32", (3, 5)))
    made["list_int16"] = values("int16", (3,))
    made["list_bool"] = values("bool", (2,))
    made["list_float32"] = np.linspace(-1e30, 1e30, COUNT * 2, dtype=np.float32).reshape(COUNT, 2)
    made["list_float16"] = values("uint8", (2,)).astype(np.float16)
    made["text"] = np.array([f"näme {number}" for number in range(COUNT)])
    made["strings"] = np.array([[b"a" * number, b"\xff\x00x"] for number in range(COUNT)])
    made["label"] = np.arange(COUNT) % 5
    return made


@pytest.fixture(scope="module")
def dataset(columns, tmp_path_factory):
    out = tmp_path_factory.mktemp("contract") / "arrays"
    lists = tuple(name for name in columns if name.startswith("list_"))
    build(Arrays(columns, lists=lists), out, shards=3, seed=4, log=lambda _: None)
    return out


def expected(columns, keys):
    """The columns in the order of the keys, in this machine's byte order, text as UTF-8."""
    rows = np.array([int(key) for key in keys])
    taken = {name: array[rows] for name, array in columns.items()}
    taken["text"] = np.char.encode(taken["text"], "utf-8")
    taken["big_endian"] = taken["big_endian"].astype("=i4")
    return taken


def assert_same(found, wanted):
    for name, array in wanted.items():
        if array.dtype.kind == "S":
            assert np.array_equal(np.asarray(found[name], dtype=object), array.astype(object)), name
        else:
            got = np.asarray(found[name])
            assert (got.dtype, got.shape) == (array.dtype, array.shape), name
            assert bits(got) == bits(array), name


def test_the_loader_returns_every_dtype_and_shape_bit_for_bit(dataset, columns):
    batches = list(loader.load(dataset, batch_size=5, remainder="keep").as_numpy_iterator())
    found = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    assert sorted(map(int, found["key"])) == list(range(COUNT))
    assert_same(found, expected(columns, found["key"]))
