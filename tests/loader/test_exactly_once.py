"""Each example occurs exactly once per epoch over all workers, read from files."""

import pytest

from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Position, Shuffle, Worker, pipeline
from tfshards.loader.records import shards as shard_tables

pytestmark = pytest.mark.nightly

MIXED = Shuffle(seed=5)


def batches(dataset):
    return [{name: value.tolist() for name, value in batch.items()} for batch in dataset.as_numpy_iterator()]


def load_all(path, num_workers, batch_size, **options):
    """Return the batches of each worker, after checking that ``len()`` is their number."""
    read = []
    for index in range(num_workers):
        dataset = loader.load(path, batch_size=batch_size, worker=Worker(index, num_workers), **options)
        read.append(batches(dataset))
        assert len(dataset) == len(read[-1])
    return read


def test_shuffled_epochs_drop_different_examples(numbered):
    dataset = loader.load(numbered([7, 6]), batch_size=4, shuffle=MIXED, epochs=8)
    read = [batch["number"] for batch in batches(dataset)]
    dropped = [set(range(13)) - {n for batch in read[i : i + 3] for n in batch} for i in range(0, 24, 3)]
    assert {len(numbers) for numbers in dropped} == {1}
    assert len(set().union(*dropped)) > 1


@pytest.mark.parametrize("shuffle", mostly_nightly([None, MIXED], [MIXED]))
def test_endless_datasets_continue_with_the_next_epoch(numbered, shuffle):
    path = numbered([5, 4, 4])
    endless = loader.load(path, batch_size=3, shuffle=shuffle, epochs=None)
    assert endless.cardinality() == -1  # tf.data.INFINITE_CARDINALITY
    finite = loader.load(path, batch_size=3, shuffle=shuffle, epochs=3)
    assert len(finite) == 12
    assert batches(endless.take(12)) == batches(finite)
    assert len(batches(endless.take(25))) == 25


def test_a_worker_without_examples_in_the_last_step_gets_an_empty_batch(numbered):
    first, second = load_all(numbered([5]), 2, 2, remainder="keep")
    assert [batch["number"] for batch in first] == [[0, 1], [4]]
    assert [batch["number"] for batch in second] == [[2, 3], []]


def test_padding_follows_the_examples_with_weight_zero(numbered):
    first, second = load_all(numbered([5]), 2, 2, remainder="pad")
    assert first[-1] == {"number": [4, 0], "sample_weight": [1, 0]}
    assert second[-1] == {"number": [0, 0], "sample_weight": [0, 0]}


@pytest.mark.parametrize("shuffle", [None, MIXED])
def test_a_split_smaller_than_a_batch_warns_and_has_no_steps(numbered, shuffle):
    message = r"split 'train' has 3 examples, fewer than the global batch size 4 .* on each of 2 workers"
    with pytest.warns(UserWarning, match=message):
        dataset = loader.load(numbered([3]), batch_size=2, worker=Worker(0, 2), shuffle=shuffle)
    assert len(dataset) == 0
    assert batches(dataset) == []
    with pytest.warns(UserWarning, match=r"on each of 1 worker\), so that remainder='drop' leaves no"):
        endless = loader.load(numbered([3]), batch_size=4, shuffle=shuffle, epochs=None)
    assert batches(endless) == []


@pytest.mark.parametrize("remainder", mostly_nightly(["drop", "pad", "keep"], ["pad"]))
def test_an_empty_split_has_no_steps(numbered, remainder):
    with pytest.warns(UserWarning, match="split 'train' has 0 examples"):
        dataset = loader.load(numbered([0, 0]), batch_size=2, remainder=remainder, shuffle=MIXED)
    assert len(dataset) == 0
    assert batches(dataset) == []


@pytest.mark.parametrize("shuffle", mostly_nightly([None, MIXED], [MIXED]))
def test_large_splits_with_only_some_offsets_in_memory_are_read_the_same(numbered, monkeypatch, shuffle):
    path = numbered([9, 0, 14, 7, 11])
    options = {"batch_size": 4, "shuffle": shuffle, "remainder": "keep", "start": Position(0, 2)}
    wanted = batches(loader.load(path, **options))
    monkeypatch.setattr(shard_tables, "MOST_OFFSETS", 9)  # every fifth of 41 then
    assert batches(loader.load(path, **options)) == wanted


WITHOUT_NUMBERS = [
    (1, {}),
    (1, {"shuffle": MIXED, "epochs": 3, "start": Position(1, 2)}),
    (3, {"epochs": 2}),
    (2, {"shuffle": MIXED}),
    (4, {"shuffle": Shuffle(seed=1, run=3, lanes=4)}),
    (2, {"shuffle": Shuffle(seed=1, how="full"), "epochs": 2}),
    (1, {"take": loader.Part(1, 2), "shuffle": Shuffle(seed=1, lanes=1)}),
]


@pytest.mark.parametrize("gaps", [1 << 17, 9], ids=["all offsets", "every fifth offset"])
@pytest.mark.parametrize(("num_workers", "options"), mostly_nightly(WITHOUT_NUMBERS, WITHOUT_NUMBERS[:2]))
def test_records_without_numbers_are_the_same(numbered, monkeypatch, num_workers, options, gaps):
    path = numbered([11, 0, 23, 7])
    monkeypatch.setattr(shard_tables, "MOST_OFFSETS", gaps)
    wanted = load_all(path, num_workers, 2, **options)
    monkeypatch.setattr(pipeline, "FEW_POSITIONS", 0)
    assert load_all(path, num_workers, 2, **options) == wanted
