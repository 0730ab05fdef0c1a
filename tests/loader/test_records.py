"""``Records``: the values of examples by their numbers, compared with what ``load`` delivers of them."""

import dataclasses
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.errors import raises
from tests.prep.exported import write_manifest
from tests.prep.table_files import encoded
from tests.storage.conftest import lead_to, new_bucket
from tfshards import prep
from tfshards.loader import Records, load
from tfshards.schemas import Feature, FormatError, InputError, OptionsError, Schema, read_manifest

from .conftest import in_shards

ALL = Schema(
    (
        Feature("image", "image", "uint8", (None, None, 3)),
        Feature("label", "label", "int64"),
        Feature("key", "bytes", "bytes"),
        Feature("pair", "bytes", "bytes", (2,)),
        Feature("words", "bytes", "bytes", (None,)),
        Feature("grid", "int", "int32", (2, 3)),
        Feature("counts", "int", "int16", (None,)),
        Feature("boxes", "float", "float32", (None, 4)),
        Feature("half", "float", "float16", (2,)),
        Feature("brain", "float", "bfloat16"),
        Feature("truth", "raw", "bool", (3,)),
        Feature("wide", "raw", "float64", (2, 2)),
        Feature("wave", "raw", "complex64", (2,)),
    )
)


def example(number):
    draw = np.random.default_rng(number)
    return {
        "image": encoded(number % 7),
        "label": int(draw.choice([-1, 3, 200, -(2**63), 2**62])),
        "key": b"%d" % number,
        "pair": [b"a" * (number % 2), b"b"],
        "words": [b"w"] * (number % 4),
        "grid": draw.integers(-5, 300, (2, 3)),
        "counts": draw.integers(-300, 300, number % 3),
        "boxes": draw.random((number % 3, 4), np.float32),
        "half": draw.random(2).astype(np.float16),
        "brain": np.array(number, ml_dtypes.bfloat16),
        "truth": draw.random(3) < 0.5,
        "wide": draw.random((2, 2)),
        "wave": draw.random(2).astype(np.complex64),
    }


SIZES = [17, 0, 40, 3]
COUNT = sum(SIZES)


@pytest.fixture(scope="module")
def varied(write_dataset, tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("varied"), ALL, {"train": in_shards(example, SIZES)})


@pytest.fixture(scope="module")
def delivered(varied):
    """What ``load`` delivers, by feature: one value for each example."""
    ((batch,),) = [[*load(varied, batch_size=COUNT)]]
    return {name: [each.numpy() for each in column] for name, column in batch.items()}


def same(found, expected):
    if isinstance(expected, bytes):
        return found == expected
    found = np.asarray(found)
    return found.shape == expected.shape and (found == expected).all()


def check(columns_found, delivered, numbers, schema=ALL):
    for name, column in columns_found.items():
        assert len(column) == len(numbers), name
        for value, number in zip(column, numbers, strict=True):
            expected = delivered[name][number]
            assert same(value, expected), (name, number)
            if schema[name].dtype != "bytes" and not schema[name].is_encoded:
                assert np.asarray(value).dtype == np.asarray(expected).dtype, name


@settings(max_examples=60, deadline=None)
@given(numbers=st.lists(st.integers(0, COUNT - 1), max_size=80))
def test_any_numbers_give_what_load_delivers(varied, delivered, numbers):
    records = Records(varied, "train")
    found = records[numbers]
    assert [*found] == [*ALL.names]
    check(found, delivered, numbers)
    again = records.__getitems__(numbers)
    check({name: [each[name] for each in again] for name in found}, delivered, numbers)


def test_a_sequence_of_examples(varied, delivered):
    records = Records(varied)
    assert len(records) == COUNT
    check({name: [value] for name, value in records[7].items()}, delivered, [7])
    check({name: [value] for name, value in records[np.int32(-1)].items()}, delivered, [COUNT - 1])
    check(records[50:10:-7], delivered, [*range(50, 10, -7)])
    check(records[np.array([3, 1, 4], np.uint8)], delivered, [3, 1, 4])
    assert all(len(column) == 0 for column in records[[]].values())
    every = [*records]
    check({name: [each[name] for each in every] for name in ALL.names}, delivered, [*range(COUNT)])
    chosen = Records(varied, select=("key", "label"))
    assert [*chosen[[2]]] == ["key", "label"]
    assert (chosen.keys[:3], chosen.index_of("44"), chosen.index_of(b"44")) == ([b"0", b"1", b"2"], 44, 44)
    with pytest.raises(KeyError, match="nothing"):
        chosen.index_of("nothing")
    for outside in (COUNT, -COUNT - 1, [0, COUNT]):
        with pytest.raises(IndexError, match=f" of {COUNT}"):
            _ = records[outside]


OTHERS = [
    (Feature("x", "int", "int64"), Feature("x", "float", "float32")),
    (Feature("x", "int", "int64"), Feature("y", "int", "int64")),
    (Feature("x", "int", "int64", (2,)), Feature("x", "int", "int64", (3,))),
    (Feature("x", "int", "int64", (2,)), Feature("x", "int", "int64")),
    (Feature("x", "raw", "int64", (2,)), Feature("x", "raw", "int64", (3,))),
    (Feature("x", "raw", "int32", (3,)), Feature("x", "raw", "int64")),
    (Feature("x", "raw", "uint8", (3,)), Feature("x", "raw", "int32")),
]


@pytest.mark.parametrize("size", [1, 9000])
@pytest.mark.parametrize(("stored", "stated"), OTHERS)
def test_values_that_do_not_fit_the_schema_are_refused(write_dataset, tmp_path, stored, stated, size):
    other = Feature("other", "bytes", "bytes")
    values = {stored.name: np.ones(stored.shape, stored.dtype), "other": bytes(size)}
    path = write_dataset(tmp_path, Schema((stored, other)), {"train": [[values] * 9]})
    manifest = dataclasses.replace(read_manifest(path), schema=Schema((stated, other)))
    write_manifest(path, manifest)
    for numbers in ([3], [*range(9)]):
        with pytest.raises(FormatError, match=r"feature '[xy]' (is|has)"):
            _ = Records(path)[numbers]
    with pytest.raises(tf.errors.OpError):
        list(load(path, batch_size=3))


def test_long_records_have_the_values_of_short_ones(write_dataset, tmp_path):
    schema = Schema(
        (
            Feature("payload", "bytes", "bytes"),
            Feature("number", "int", "int64"),
            Feature("small", "int", "int8"),
            Feature("pair", "int", "int64", (2,)),
            Feature("raw", "raw", "int16", (3,)),
            Feature("words", "bytes", "bytes", (None,)),
            Feature("float", "float", "float32"),
        )
    )
    numbers = [0, 1, 127, 128, -1, 2**63 - 1, -(2**63)]
    found = []
    for name, size in ("short", 9), ("long", 9000):
        examples = [
            {
                "payload": b"p" * (size + row),
                "number": number,
                "small": row - 3,
                "pair": [number, row],
                "raw": np.arange(3, dtype=np.int16) - row,
                "words": [b"w"] * (1 + row // 6),
                "float": row / 3,
            }
            for row, number in enumerate(numbers)
        ]
        records = Records(
            write_dataset(tmp_path / name, schema, {"train": [examples]}), select=schema.names[1:]
        )
        found.append([records[:], records[[3]], *records])
    assert found[0][0]["number"].tolist() == numbers
    assert repr(found[0]) == repr(found[1])


def test_a_pickle_is_small_and_only_of_its_build(tmp_path):
    path = tmp_path / "d"
    prep.build(prep.Arrays({"x": np.arange(3)}), path)
    records = Records(path, select=("key",))
    stored = pickle.dumps(records)
    assert len(stored) < 1024
    again = pickle.loads(stored)
    assert [*again[:]["key"]] == [*records[:]["key"]]
    assert repr(again) == repr(records)
    assert "0x" not in repr(records)
    prep.build(prep.Arrays({"x": np.arange(4)}), path, overwrite=True)
    with raises(InputError, "was replaced", code="dataset-replaced"):
        pickle.loads(stored)


def test_threads_read_at_the_same_time(varied, delivered):
    records = Records(varied)
    start = threading.Barrier(4)

    def read(seed):
        start.wait()
        for _ in range(20):
            numbers = np.random.default_rng(seed).integers(0, COUNT, 30)
            check(records[numbers], delivered, numbers)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(read, range(4)))


def test_a_bucket_is_read_from_copies_once_there_are_some(varied, running_servers, tmp_path, monkeypatch):
    lead_to(running_servers.get("moto"), monkeypatch)
    bucket = new_bucket(running_servers.get("moto"))
    for path in filter(Path.is_file, varied.rglob("*")):
        bucket.store().put(str(path.relative_to(varied)), path.read_bytes())
    near = tmp_path / "near"
    records = Records(bucket.url, cache=f"disk:{near}")
    for shard in read_manifest(varied).shards:
        bucket.store().delete(shard.path)
    expected = [*Records(varied)]
    assert [each["key"] for each in records] == [each["key"] for each in expected]
    pickled = pickle.dumps(records)
    assert len(pickled) < 1000
    again = pickle.loads(pickled)
    assert again[3]["key"] == expected[3]["key"]
    one = min(near.rglob("*.tfrecord-*"))
    one.write_bytes(one.read_bytes()[:-1] + b"x")
    with pytest.raises(FormatError, match=f"{one.name}: cannot be read"):
        pickle.loads(pickled)
    assert again[3]["key"] == expected[3]["key"]
    with raises(OptionsError, "only load() keeps to"):
        Records(bucket.url, cache=f"disk:{near}, 1GiB")
    with raises(OptionsError, 'must be "disk:PATH"'):
        Records(bucket.url, cache=str(near))
