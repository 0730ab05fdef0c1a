"""The loader delivers each dtype and shape bit for bit; tests/conformance compares other readers."""

import math

import ml_dtypes
import numpy as np

from tfshards import loader
from tfshards.prep import Arrays, build

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64", "complex64", "complex128", "bfloat16"]
SHAPES = {"scalar": (), "vector": (3,), "matrix": (2, 3), "empty": (0,)}
COUNT = 23


def values(dtype, shape):
    """Random bits, so that NaN payloads, signed zeros, extremes and subnormal numbers are among them."""
    random = np.random.default_rng(len(dtype) + len(shape))
    if dtype == "bool":
        return random.integers(0, 2, (COUNT, *shape)).astype(bool)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return np.frombuffer(random.bytes(COUNT * math.prod(shape) * kind.itemsize), kind).reshape(COUNT, *shape)


def test_the_loader_returns_every_dtype_and_shape_bit_for_bit(tmp_path):
    columns = {f"{dtype}_{name}": values(dtype, SHAPES[name]) for dtype in DTYPES for name in SHAPES}
    columns["list_bool"] = values("bool", (2,))
    columns["list_float32"] = np.linspace(-1e30, 1e30, COUNT * 2, dtype=np.float32).reshape(COUNT, 2)
    columns["strings"] = np.array([[b"a" * number, b"\xff\x00x"] for number in range(COUNT)])
    lists = ("list_bool", "list_float32")
    build(
        Arrays(columns, dict.fromkeys(lists, "list")),
        tmp_path / "arrays",
        shards=3,
        seed=4,
        log=lambda _: None,
    )
    batches = [*loader.load(tmp_path / "arrays", batch_size=5, remainder="keep").as_numpy_iterator()]
    found = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    rows = found["key"].astype(int)
    assert sorted(rows) == [*range(COUNT)]
    for name, column in columns.items():
        wanted = column[rows]
        if name == "strings":
            assert found[name].tolist() == wanted.tolist()
        else:
            # the bytes, since NaN is not equal to itself
            assert (found[name].dtype, found[name].shape) == (wanted.dtype, wanted.shape), name
            assert found[name].tobytes() == np.ascontiguousarray(wanted).tobytes(), name
