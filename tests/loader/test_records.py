"""``Records``: the values of examples by their numbers, compared with what ``load`` delivers of them."""

import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.errors import fault, raises
from tests.prep.table_files import encoded
from tests.storage.conftest import lead_to, new_bucket
from tfshards import prep
from tfshards.loader import Records, load
from tfshards.loader.resources import cache
from tfshards.loader.stored import frames
from tfshards.schemas import Feature, FormatError, InputError, OptionsError, Schema, columns

from .conftest import flip_bit, frames_of, shard_of

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
        Feature("none", "raw", "int32", (0, 2)),
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
        "none": np.zeros((0, 2), np.int32),
    }


SIZES = [17, 0, 40, 3]
COUNT = sum(SIZES)


@pytest.fixture(scope="module")
def varied(write_dataset, tmp_path_factory):
    ends = np.cumsum(SIZES).tolist()
    shards = [[*map(example, range(end - size, end))] for size, end in zip(SIZES, ends, strict=True)]
    return write_dataset(tmp_path_factory.mktemp("varied"), ALL, {"train": shards})


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
@given(numbers=st.lists(st.integers(0, COUNT - 1), max_size=80), checks=st.sampled_from(["crc", "none"]))
def test_any_numbers_give_what_load_delivers(varied, delivered, numbers, checks):
    records = Records(varied, "train", check=checks)
    found = records[numbers]
    assert [*found] == [*ALL.names]
    check(found, delivered, numbers)
    again = records.__getitems__(numbers)
    check({name: [each[name] for each in again] for name in found}, delivered, numbers)


# records of few layouts, which are parsed together
ALIKE = Schema(
    (
        Feature("key", "bytes", "bytes"),
        Feature("label", "label", "int64"),
        Feature("one", "bytes", "bytes", (1,)),
        Feature("some", "bytes", "bytes", (None,)),
        Feature("list", "int", "int32", (None,)),
        Feature("rows", "float", "float32", (None, 2)),
        Feature("pixels", "raw", "uint8", (2, 3)),
        Feature("brain", "raw", "bfloat16", (2,)),
        Feature("half", "float", "float16", (2,)),
        Feature("image", "image", "uint8", (None, None, 3)),
    )
)


@pytest.mark.parametrize(
    "select",
    [
        pytest.param(None, marks=pytest.mark.nightly),
        ("label", "key"),
        pytest.param(("rows", "pixels"), marks=pytest.mark.nightly),
    ],
)
def test_records_of_few_layouts(write_dataset, tmp_path, select):
    made = [
        {
            "key": b"%03d" % number,
            "label": [5, 127, 128, -1, 70_000][number % 5],
            "one": [b"1"],
            "some": [b"s"],
            "list": [number, 300 + number],
            "rows": np.full((1, 2), number, np.float32),
            "pixels": (np.arange(6).reshape(2, 3) + number).astype(np.uint8),
            "brain": np.full(2, number % 7, ml_dtypes.bfloat16),
            "half": np.full(2, number / 2, np.float16),
            "image": encoded(number % 3),
        }
        for number in range(200)
    ]
    path = write_dataset(tmp_path, ALIKE, {"train": [made]})
    ((batch,),) = [[*load(path, batch_size=200)]]
    expected = {name: [each.numpy() for each in column] for name, column in batch.items()}
    numbers = np.random.default_rng(0).permutation(200)
    records = Records(path, select=select)
    for _ in range(2):
        found = records[numbers]
        assert [*found] == [*(select or ALIKE.names)]
        check(found, expected, numbers, ALIKE)
    assert found.get("label", np.zeros(0, np.int64)).dtype == np.int64


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


MISTAKES = {
    "numbers": (lambda path: Records(path)[[0.5]], OptionsError, "record-numbers"),
    "truths": (lambda path: Records(path)[[True]], OptionsError, "record-numbers"),
    "a name": (lambda path: Records(path)["key"], OptionsError, "record-numbers"),
    "a feature": (lambda path: Records(path, select=("kex",)), OptionsError, "select-feature-unknown"),
    "no feature": (lambda path: Records(path, select=()), OptionsError, "select-empty"),
    "a feature twice": (lambda path: Records(path, select=("key", "key")), OptionsError, "select-repeated"),
    "a check": (lambda path: Records(path, check="crc32"), OptionsError, "not-a-choice"),
    "a split": (lambda path: Records(path, "test"), InputError, "split-not-shown"),
    "features": (lambda path: Records(path, select="key"), OptionsError, "select-type"),
}


@pytest.mark.parametrize(("call", "kind", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_named(call, kind, expected, varied):
    with raises(kind, fault(expected)):
        call(varied)


def test_datasets_without_keys_or_with_compressed_shards(texts, numbered):
    with raises(InputError, "records-no-keys"):
        _ = Records(numbered([3])).keys
    with raises(InputError, "records-compressed"):
        Records(texts["gzip"])


def test_a_pickle_is_small_and_only_of_its_build(tmp_path):
    path = tmp_path / "d"
    prep.build(prep.Arrays({"x": np.arange(3)}), path, log=lambda _: None)
    records = Records(path, select=("key",), check="none")
    stored = pickle.dumps(records)
    assert len(stored) < 1024
    again = pickle.loads(stored)
    assert [*again[:]["key"]] == [*records[:]["key"]]
    assert repr(again) == repr(records)
    assert "0x" not in repr(records)
    prep.build(prep.Arrays({"x": np.arange(4)}), path, overwrite=True, log=lambda _: None)
    with raises(InputError, "records-other-build"):
        pickle.loads(stored)


def test_damage_is_named(write_dataset, tmp_path, monkeypatch):
    path = write_dataset(tmp_path / "d", ALL, {"train": [[example(each) for each in range(8)]]})
    shard = shard_of(path, 0)
    offset = int(frames_of(shard).offsets[5])
    for place in (offset, offset + 30):
        flip_bit(shard, place)
        records = Records(path)
        assert records[4]["key"] == b"4"
        with pytest.raises(FormatError, match=f"record 5 at offset {offset}: its length or a checksum"):
            _ = records[[1, 5]]
        flip_bit(shard, place)
    assert Records(path)[5]["key"] == b"5"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(FormatError, match="bytes instead of the"):
        _ = Records(path)[0]
    shard.write_bytes(b"")
    with pytest.raises(FormatError, match="has 0 bytes instead of the"):
        _ = Records(path)[0]
    shard.unlink()
    with pytest.raises(FormatError, match="cannot be read: No such file"):
        _ = Records(path)[0]
    next((path / "index").glob("*.idx")).unlink()
    with pytest.raises(FormatError, match="indexes of the shards"):
        _ = Records(path)[0]


OTHERS = {
    "a list of another type": ([Feature("x", "int", "int64")], [Feature("x", "float", "float32")]),
    "a feature that is missing": ([Feature("x", "int", "int64")], [Feature("y", "int", "int64")]),
    "too few numbers": ([Feature("x", "int", "int64", (2,))], [Feature("x", "int", "int64", (3,))]),
    "too few bytes": ([Feature("x", "raw", "int64", (2,))], [Feature("x", "raw", "int64", (3,))]),
    "no rows": ([Feature("x", "float", "float32", (3,))], [Feature("x", "float", "float32", (None, 2))]),
}


def blocks_of(records):
    data = np.frombuffer(b"".join(records), np.uint8).reshape(len(records), -1)
    return [columns.Block(np.arange(len(records)), records, data)]


@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize(("written", "stated"), OTHERS.values(), ids=OTHERS)
def test_values_that_do_not_fit_the_schema_are_refused(written, stated, count):
    from .conftest import serialize

    values = {feature.name: np.ones(feature.shape, feature.dtype) for feature in written}
    data = serialize(Schema(tuple(written)), values)
    with pytest.raises(columns.UnparsedError, match=r"feature '[xy]' (is|has)"):
        columns.Columns(stated).parse(blocks_of([data] * count), count)
    with pytest.raises(columns.UnparsedError, match=r"not a tf\.train\.Example"):
        columns.Columns(stated).parse(blocks_of([b"\xff" * 20] * count), count)


def test_threads_read_at_the_same_time(varied, delivered, monkeypatch):
    monkeypatch.setattr(frames, "_MOST_MAPPED", 1)
    records = Records(varied)
    start = threading.Barrier(4)

    def read(seed):
        start.wait()
        for _ in range(20):
            numbers = np.random.default_rng(seed).integers(0, COUNT, 30)
            check(records[numbers], delivered, numbers)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(read, range(4)))


def test_adopted_records_are_read(write_dataset, tmp_path, varied):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for shard in varied.glob("*.tfrecord-*"):
        (folder / shard.name).write_bytes(shard.read_bytes())
    prep.adopt(folder, log=lambda _: None)
    assert Records(folder).keys == [b"%d" % number for number in range(COUNT)]


def test_a_bucket_is_read_from_copies_once_there_are_some(varied, running_servers, tmp_path, monkeypatch):
    lead_to(running_servers.get("moto"), monkeypatch)
    bucket = new_bucket(running_servers.get("moto"))
    for path in filter(Path.is_file, varied.rglob("*")):
        bucket.store().put(str(path.relative_to(varied)), path.read_bytes())
    near = tmp_path / "near"
    records = Records(bucket.url, cache=f"disk:{near}")
    for copied in near.rglob("*.tfrecord-*"):
        bucket.store().delete(copied.name)
    expected = [*Records(varied)]
    assert [each["key"] for each in records] == [each["key"] for each in expected]
    pickled = pickle.dumps(records)
    assert len(pickled) < 1000
    # what this process has verified is not read as a whole again, unless it was changed
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_is_copied", None)
        again = pickle.loads(pickled)
    assert again[3]["key"] == expected[3]["key"]
    one = min(near.rglob("*.tfrecord-*"))
    one.write_bytes(one.read_bytes()[:-1] + b"x")
    with pytest.raises(FormatError, match=f"{one.name}: cannot be read"):
        pickle.loads(pickled)
    assert again[3]["key"] == expected[3]["key"]
    with raises(OptionsError, "cache-has-bound"):
        Records(bucket.url, cache=f"disk:{near}, 1GiB")
    with raises(OptionsError, "cache-form"):
        Records(bucket.url, cache=str(near))


def test_a_bucket_is_read_by_few_ranges(varied, delivered, running_servers, monkeypatch):
    lead_to(running_servers.get("moto"), monkeypatch)
    bucket = new_bucket(running_servers.get("moto"))
    for path in filter(Path.is_file, varied.rglob("*")):
        bucket.store().put(str(path.relative_to(varied)), path.read_bytes())
    numbers = [30, 2, 31, 59, 2]
    records = Records(bucket.url)
    check(records[numbers], delivered, numbers)
    gone = shard_of(varied, 3).name
    bucket.store().delete(gone)
    with pytest.raises(FormatError, match=f"{gone}: cannot be read"):
        _ = records[numbers]


def test_nothing_is_imported_while_threads_read(varied):
    # a DataLoader's process has failed in NumPy, which imports numpy.ma for np.unique
    code = f"""
import sys
from tfshards import loader
records = loader.Records({str(varied)!r})
run = loader.batches({str(varied)!r}, batch_size=8, shuffle=loader.Shuffle(), select=("key",))
before = {{*sys.modules}}
assert len(records[[3, 41, 7]]["key"]) + len([*run]) == 10
print(sorted(name for name in {{*sys.modules}} - before if name.startswith("numpy.")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_records_are_read_without_tensorflow(varied):
    code = f"""
import sys
sys.modules["tensorflow"] = None
from tfshards import loader
assert len(loader.Records({str(varied)!r})[:5]["key"]) == 5
try:
    loader.load
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "tfshards.loader needs tensorflow: pip install 'tfshards[loader]'\n"


def test_bfloat16_needs_its_package(varied, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with raises(OptionsError, "bfloat16-missing", name="brain"):
        Records(varied)
    assert Records(varied, select=("key",))[0] == {"key": b"0"}
