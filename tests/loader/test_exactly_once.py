"""Each example occurs exactly once per epoch over all workers, read from files."""

import numpy as np
import pytest

from tests.errors import fault, raises
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Position, Shuffle, Worker, pipeline
from tfshards.loader.records import shards as shard_tables
from tfshards.schemas import OptionsError

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


LAYOUTS = [
    ([7], 1, 3, "keep", MIXED, "one shard, one worker"),
    ([7], 3, 1, "pad", None, "one shard serves several workers"),
    ([5, 4, 4], 2, 2, "pad", MIXED, "shards and workers do not divide each other"),
    ([5, 4, 4], 2, 2, "keep", None, "the same in stored order"),
    ([1] * 9, 4, 1, "keep", Shuffle(run=2), "shards of one record, runs of two"),
    ([0, 3, 0, 5, 0], 2, 3, "pad", MIXED, "empty shards at the ends and between"),
    ([0, 3, 0, 5, 0], 1, 3, "keep", None, "the same in stored order"),
    ([2, 1, 2, 1, 2, 1], 8, 1, "pad", None, "more workers than shards"),
    ([3, 3, 2], 5, 1, "keep", MIXED, "five workers, whose lanes are five"),
    ([2], 2, 2, "pad", MIXED, "fewer examples than a global batch"),
    ([2], 2, 2, "keep", None, "the same, with an empty batch"),
    ([6, 6], 2, 3, "pad", None, "nothing is left over"),
]


@pytest.mark.parametrize(
    ("sizes", "num_workers", "batch_size", "remainder", "shuffle", "reason"),
    mostly_nightly(LAYOUTS, [LAYOUTS[i] for i in (0, 1, 5, 9, 10)]),
)
def test_with_pad_or_keep_every_example_is_read_exactly_once(
    numbered, sizes, num_workers, batch_size, remainder, shuffle, reason
):
    path, num_examples = numbered(sizes), sum(sizes)
    workers = load_all(path, num_workers, batch_size, remainder=remainder, shuffle=shuffle)
    assert {len(read) for read in workers} == {-(-num_examples // (batch_size * num_workers))}, reason
    found = []
    for batch in (batch for read in workers for batch in read):
        if remainder == "keep":
            assert len(batch["number"]) <= batch_size
            found += batch["number"]
            continue
        assert len(batch["number"]) == len(batch["sample_weight"]) == batch_size
        for number, weight in zip(batch["number"], batch["sample_weight"], strict=True):
            assert weight in (0, 1)
            if weight:
                found.append(number)
            else:
                assert number == 0, "padding repeats the first example"
    assert sorted(found) == list(range(num_examples)), reason


FULL_STEPS = [
    ([7, 6], 1, 4, None, "stored order leaves out its end"),
    ([5, 0, 6], 3, 1, None, "stored order on several workers"),
    ([7, 6], 2, 2, MIXED, "shuffled"),
    ([5, 4, 4], 2, 4, Shuffle(run=2, lanes=4), "runs of two"),
]


@pytest.mark.parametrize(
    ("sizes", "num_workers", "batch_size", "shuffle", "reason"), mostly_nightly(FULL_STEPS, FULL_STEPS[1:3])
)
def test_with_drop_each_step_is_full_and_no_example_occurs_twice(
    numbered, sizes, num_workers, batch_size, shuffle, reason
):
    workers = load_all(numbered(sizes), num_workers, batch_size, shuffle=shuffle)
    global_batch_size = batch_size * num_workers
    steps = sum(sizes) // global_batch_size
    assert {len(read) for read in workers} == {steps}, reason
    found = [batch["number"] for read in workers for batch in read]
    assert {len(numbers) for numbers in found} == {batch_size}, reason
    distinct = {number for numbers in found for number in numbers}
    assert len(distinct) == steps * global_batch_size
    assert distinct <= set(range(sum(sizes)))
    if shuffle is None:
        assert distinct == set(range(len(distinct)))


def test_shuffled_epochs_drop_different_examples(numbered):
    dataset = loader.load(numbered([7, 6]), batch_size=4, shuffle=MIXED, epochs=8)
    read = [batch["number"] for batch in batches(dataset)]
    dropped = [
        set(range(13)) - {number for batch in read[i : i + 3] for number in batch} for i in range(0, 24, 3)
    ]
    assert {len(numbers) for numbers in dropped} == {1}
    assert len(set().union(*dropped)) > 1


@pytest.mark.parametrize(
    ("remainder", "shuffle"), [("pad", None), ("keep", MIXED), ("pad", Shuffle(seed=5, run=2))]
)
def test_several_epochs_in_one_dataset_each_hold_every_example_once(numbered, remainder, shuffle):
    workers = load_all(numbered([5, 4, 4]), 2, 2, remainder=remainder, shuffle=shuffle, epochs=3)
    steps = 4
    assert {len(read) for read in workers} == {3 * steps}
    orders = []
    for epoch in range(3):
        taken = [batch for read in workers for batch in read[epoch * steps : (epoch + 1) * steps]]
        found = [
            number
            for batch in taken
            for number, weight in zip(
                batch["number"], batch.get("sample_weight", [1] * len(batch["number"])), strict=True
            )
            if weight
        ]
        assert sorted(found) == list(range(13))
        orders.append(found)
    assert (orders[0] == orders[1] == orders[2]) == (shuffle is None)


@pytest.mark.parametrize("sizes", mostly_nightly([[0, 3, 0, 5, 0], [8, 0], [4, 4, 0, 0]], [[0, 3, 0, 5, 0]]))
def test_shuffled_epochs_skip_empty_shards(numbered, sizes):
    # One lane reads all shards.
    dataset = loader.load(numbered(sizes), batch_size=1, shuffle=Shuffle(seed=3), epochs=10)
    read = [batch["number"].item() for batch in dataset.as_numpy_iterator()]
    for epoch in range(10):
        assert sorted(read[epoch * 8 : epoch * 8 + 8]) == list(range(8))


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


@pytest.mark.parametrize("run", [2, None])
def test_shuffled_epochs_are_padded_only_in_the_last_step(numbered, run):
    dataset = loader.load(
        numbered([6, 7]), batch_size=4, remainder="pad", shuffle=Shuffle(seed=1, run=run), epochs=2
    )
    weights = [sum(batch["sample_weight"]) for batch in batches(dataset)]
    assert weights == [4, 4, 4, 1] * 2


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


@pytest.mark.parametrize("gaps", [1 << 17, 9], ids=["all offsets", "every fifth offset"])
@pytest.mark.parametrize(
    ("num_workers", "options"),
    [
        (1, {}),
        (3, {"epochs": 2}),
        (1, {"shuffle": MIXED, "epochs": 3, "start": Position(1, 2)}),
        (2, {"shuffle": MIXED}),
        (4, {"shuffle": Shuffle(seed=1, run=3, lanes=4)}),
        (2, {"shuffle": Shuffle(seed=1, how="full"), "epochs": 2}),
        (1, {"take": loader.Part(1, 2), "shuffle": Shuffle(seed=1, lanes=1)}),
    ],
)
def test_records_without_numbers_are_the_same(numbered, monkeypatch, num_workers, options, gaps):
    path = numbered([11, 0, 23, 7])
    monkeypatch.setattr(shard_tables, "MOST_OFFSETS", gaps)
    wanted = load_all(path, num_workers, 2, **options)
    monkeypatch.setattr(pipeline, "FEW_POSITIONS", 0)
    assert load_all(path, num_workers, 2, **options) == wanted


def test_values_have_the_dtype_of_the_schema(numbered):
    (batch,) = loader.load(numbered([4]), batch_size=4).as_numpy_iterator()
    assert list(batch) == ["number"]
    assert batch["number"].dtype == np.int64


@pytest.mark.parametrize(
    ("epochs", "start", "message"),
    [
        (0, None, fault("epochs-range", epochs=0)),
        (-1, None, fault("epochs-range", epochs=-1)),
        (2, Position(2), fault("start-after-end", epochs=2, epoch=3)),
    ],
)
def test_invalid_epochs_are_rejected(numbered, epochs, start, message):
    with raises(OptionsError, message):
        loader.load(numbered([4]), batch_size=2, epochs=epochs, start=start)
