"""What the order of an epoch is good for, and ten orders that never change between releases."""

from __future__ import annotations

import hashlib
import itertools
import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.order.conftest import label_of, mix, quiet
from tests.order.reference import (
    MAP,
    Stored,
    batches_of,
    mixed,
    num_lanes,
    order_seed,
    random_bits,
    run_length,
)
from tfshards.loader import Part, Shuffle, Worker, batches, load

COUNT = 97
STORED = Stored("0123abcd", (30, 0, 21, 46), COUNT * 51, tuple(map(label_of, range(COUNT))))
LARGE = Stored("89abcdef", (5, 92), COUNT * 300_000)
ADOPTED = Stored("0123abcd", (30, 0, 21, 46), COUNT * 20_000, is_adopted=True)
ALL = [list(range(COUNT))]
CLASSES = [[number for number in range(COUNT) if label_of(number) == label] for label in (2, 0)]
RUNS = {"shuffle": Shuffle(seed=42), "remainder": "keep", "batch_size": 8, "workers": 1}

GOLDEN = [
    (STORED, ALL, {**RUNS, "shuffle": None}, "df3e9e718c55a438"),
    (STORED, ALL, RUNS, "3072c4ef3ee646cf"),
    (STORED, ALL, {**RUNS, "workers": 3, "remainder": "drop"}, "97360efca1f6f898"),
    (
        STORED,
        ALL,
        {**RUNS, "shuffle": Shuffle(-(2**63), run=3, lanes=4), "remainder": "pad"},
        "b52fd56ceef28d71",
    ),
    (STORED, ALL, {**RUNS, "shuffle": Shuffle(7, "full"), "workers": 2}, "64fbd61d7320499b"),
    (STORED, ALL, {**RUNS, "take": Part(1, 3, rest=True)}, "5c89b654716a733a"),
    (STORED, CLASSES, {**RUNS, "ratios": [1, 2.5], "take": 60}, "fa5e4bcc094ed4da"),
    (LARGE, ALL, RUNS, "b1a6057b26e89fb6"),
    (ADOPTED, ALL, {**RUNS, "batch_size": 1}, "2d211b6c89d44eb9"),
    (mixed([STORED, LARGE]), [*ALL, [97, 98, 99]], {**RUNS, "ratios": [3, 1]}, "480e656f9f045182"),
]


@pytest.mark.parametrize(("stored", "groups", "options", "digest"), GOLDEN)
def test_ten_orders_never_change_between_releases(stored, groups, options, digest):
    order = [batches_of(stored, groups, epoch, **options) for epoch in (0, 1, 2**40)]
    assert hashlib.sha256(json.dumps(order).encode()).hexdigest()[:16] == digest


def test_the_random_bits_are_those_of_splitmix64():
    # the first output of Vigna's splitmix64.c for the state 0
    assert random_bits(0, 0) == 0xE220A8397B1DCDAF >> 1
    assert order_seed(0, "0123abcd") == 269957879372989789


FACTS = {
    "build_id": "0123abcd",
    "split": "train",
    "examples": "41 f58bed387a79c553",
    "global_batch_size": 8,
    "remainder": "keep",
    "how": "runs",
    "seed": 3,
    "run": 2,
    "lanes": 8,
}
STORED_FACTS = {**FACTS, "how": "stored", "seed": 0, "run": 0, "lanes": 0}


@pytest.mark.parametrize(("shuffle", "facts"), [(Shuffle(seed=3), FACTS), (None, STORED_FACTS)])
def test_the_facts_in_a_position_never_change_between_releases(datasets, shuffle, facts):
    run = batches(datasets["uneven"].path, batch_size=8, remainder="keep", shuffle=shuffle)
    assert run.position.to_json() == {"epoch": 0, "step": 0, "order": facts}


LANES = [
    (1024, 1, 256, "at most 256"),
    (256, 4, 256, "as for one worker, where the workers divide them"),
    (16, 64, 256, "as for one worker, where the workers divide them"),
    (257, 1, 1, "a prime is divided by 1"),
    (65, 1, 65, "the whole batch, if it is small"),
    (600, 1, 200, "the largest divisor"),
    (2, 300, 300, "each of many workers has one"),
    (17, 16, 16, "each worker has as many"),
]


@pytest.mark.parametrize(("batch_size", "workers", "lanes", "reason"), LANES)
def test_lanes_and_runs_follow_from_the_batch_and_the_stored_bytes(
    datasets, batch_size, workers, lanes, reason
):
    how = {"batch_size": batch_size, "shuffle": Shuffle(), "remainder": "pad"}
    for name, data in datasets.items():
        order = quiet(batches, data.path, worker=Worker(0, workers), **how).position.order
        assert order["lanes"] == num_lanes(data.stored, Shuffle(), batch_size, workers) == lanes, reason
        assert order["run"] == run_length(data.stored, Shuffle(), lanes, len(data.numbers)), name


def numbers_of(run):
    return [batch[0].tolist() for batch in run]


def read(data, **options):
    return numbers_of(quiet(batches, data.path, select=("number",), **options))


def test_orders_differ_by_seed_epoch_and_dataset(datasets):
    options = {"batch_size": 41, "remainder": "keep", "epochs": 2}
    orders = [
        [data.numbers.index(number) for number in epoch]
        for data in (datasets["uneven"], mix([1], datasets["uneven"]))
        for shuffle in (None, Shuffle(3), Shuffle(4), Shuffle(3, "full"), Shuffle(3, lanes=41))
        for epoch in read(data, shuffle=shuffle, **options)
    ]
    assert {len(order) for order in orders} == {41}
    # the stored order, of both datasets in both epochs, is one
    assert len({tuple(order) for order in orders}) == 1 + 2 * 2 * 4 - 2 * 2


def test_epochs_drop_different_examples(datasets):
    data = datasets["uneven"]
    read_by = [
        set(itertools.chain(*numbers_of(itertools.islice(run, 5))))
        for run in [quiet(batches, data.path, batch_size=8, shuffle=Shuffle(5), select=("number",))] * 6
    ]
    dropped = [set(data.numbers) - epoch for epoch in read_by]
    assert {len(numbers) for numbers in dropped} == {1}
    assert len(set().union(*dropped)) > 2


CONTINUED = [
    ({"shuffle": Shuffle(3), "remainder": "keep"}, "an order of each epoch"),
    ({"classes": {"ant": 1, "bee": 1}, "take": 10}, "ratios continue where the epoch before ended"),
    ({}, "every epoch of the stored order is the same"),
]


@pytest.mark.parametrize(("options", "reason"), CONTINUED)
def test_iterations_of_one_epoch_are_the_epochs_of_a_run(datasets, options, reason):
    data, options = datasets["uneven"], {"batch_size": 4, "select": ("number",), **options}
    whole = numbers_of(batches(data.path, epochs=3, **options))
    one = batches(data.path, **options)
    assert [batch for _ in range(3) for batch in numbers_of(one)] == whole, reason
    graph = load(data.path, **options)
    assert [batch for _ in range(3) for batch in numbers_of(graph.as_numpy_iterator())] == whole, reason
    endless = batches(data.path, epochs=None, **options)
    assert numbers_of(itertools.islice(endless, len(whole))) == whole, reason
    with pytest.raises(TypeError, match="no number"):
        len(endless)
    again = batches(data.path, epochs=3, **options)
    assert numbers_of(again) == numbers_of(again) == whole, reason


@pytest.mark.parametrize("shuffle", [None, Shuffle(3)])
def test_a_split_that_is_smaller_than_a_batch_warns_and_has_no_steps(datasets, shuffle):
    options = {"shuffle": shuffle, "worker": Worker(1, 2), "batch_size": 4}
    with pytest.warns(UserWarning, match="has 6 examples, fewer than the global batch size 8"):
        assert list(batches(datasets["small"].path, epochs=None, **options)) == []
    with pytest.warns(UserWarning, match="has 0 examples"):
        assert len(batches(datasets["few"].path, remainder="pad", **options)) == 0


def epochs_of(shuffle, count, batch_size):
    """Return the orders of two epochs of a split with records of 40 bytes."""
    stored, groups = Stored("0123abcd", (count,), 40 * count), [list(range(count))]
    how = {"batch_size": batch_size, "workers": 1, "shuffle": shuffle, "remainder": "keep"}
    return [
        np.array([number for (batch,) in batches_of(stored, groups, epoch, **how) for number in batch])
        for epoch in range(2)
    ]


def test_a_full_permutation_leaves_no_neighbors_together():
    order, _ = epochs_of(Shuffle(5, "full"), 10_000, 100)
    assert np.mean(np.abs(np.diff(order)) == 1) < 0.001
    assert abs(np.corrcoef(order, np.arange(10_000))[0, 1]) < 0.05


def test_lanes_of_several_whole_runs_are_out_of_phase(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    quality = import_module("shuffle")
    first, second = epochs_of(Shuffle(3, run=40), 64 * 4 * 40, 64)
    # without random entries of lanes, pairs of examples would repeat 30 times as often as by chance
    assert quality.meet_again(first, second, 64) < 1.5


def test_the_seeds_of_map_fn_depend_on_the_seed_the_epoch_and_the_example(datasets):
    data = datasets["built"]
    options = {"shuffle": Shuffle(7), "batch_size": 16, "epochs": 2}
    run = batches(data.path, map_fn=lambda example, seed: (example["number"], seed), **options)
    for index, (numbers, seeds) in enumerate(run):
        epoch = index // run.steps_per_epoch
        for number, found in zip(numbers.tolist(), seeds.tolist(), strict=True):
            stored = data.numbers.index(number)
            assert found == [random_bits(7, MAP, epoch, stored, word) for word in range(2)]
