"""The order is a pure function of (dataset, seed, epoch, global batch), and runs resume exactly."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Position, Shuffle, Worker
from tfshards.loader.order.epoch import RunOrder, order_seed, random_bits

from .epochs import lane_bounds, members_by_position, ranks

SIZES = [9, 0, 14, 7, 11]
COUNT = sum(SIZES)


def steps(dataset):
    return [batch["number"].tolist() for batch in dataset.as_numpy_iterator()]


def load(numbered, num_workers=1, index=0, global_batch_size=4, **options):
    batch_size = global_batch_size // num_workers
    worker = Worker(index, num_workers)
    return loader.load(numbered(SIZES), batch_size=batch_size, worker=worker, **options)


# the arithmetic of order.py and read.parts_of, without files


def test_the_random_bits_are_those_of_splitmix64():
    def splitmix64(state):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
        return state ^ state >> 31

    # the first output of splitmix64.c for the state 0
    assert random_bits(0, 0).numpy() == 0xE220A8397B1DCDAF >> 1
    for seed, *words in [(0, 0), (1, 2, 3), (-1, 5), (2**63 - 1, -(2**63)), (-(2**63), 2**63 - 1, -1)]:
        state = seed % 2**64
        for word in words:
            state = splitmix64((state + word) % 2**64)
        assert random_bits(seed, *words).numpy() == state >> 1


def test_the_order_of_an_epoch_never_changes_between_releases(numbered):
    read = steps(
        load(numbered, shuffle=Shuffle(seed=42, run=3, lanes=4), remainder="keep", global_batch_size=8)
    )
    assert read == PINNED


PINNED = [
    [5, 6, 15, 16, 38, 39, 19, 23],
    [7, 8, 32, 33, 40, 29, 24, 25],
    [0, 26, 34, 9, 30, 31, 35, 36],
    [27, 28, 10, 1, 11, 20, 37, 12],
    [3, 4, 2, 14, 21, 22, 13, 17],
    [18],
]


orders = st.builds(
    RunOrder,
    num_positions=st.integers(0, 300),
    run=st.integers(0, 40),
    seed=st.integers(0, 2**63 - 1),
    lanes=st.integers(0, 30),
    is_entered=st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(order=orders, epoch=st.integers(0, 2**40), data=st.data())
def test_the_positions_of_an_epoch_and_its_intervals_are_the_same_members(order, epoch, data):
    opened = order.epoch(tf.constant(epoch, tf.int64))
    members = members_by_position(order, epoch).tolist()
    assert sorted(members) == list(range(order.num_positions))
    assert opened.runs.shape == [order.num_runs]
    if not order.run:
        assert members == list(range(order.num_positions))
    lane = data.draw(st.integers(0, max(0, order.lanes - 1)))
    begin, end = lane_bounds(order)[lane : lane + 2]
    start = data.draw(st.integers(begin, end))
    count = data.draw(st.integers(0, end - start))
    segments = order.intervals(opened, *ranks(order, opened, lane, start, count))
    read = []
    for first, length in zip(*(each.numpy().tolist() for each in segments), strict=True):
        assert order.run == 0 or length <= order.run
        read += [member % order.num_positions for member in range(first, first + length)]
    assert read == members[start : start + count]


@pytest.mark.parametrize(
    ("num_positions", "is_entered", "entry"), [(8, True, 1), (7, True, 0), (8, False, 0), (0, True, 0)]
)
def test_lanes_are_entered_after_their_first_position_if_each_has_two(num_positions, is_entered, entry):
    order = RunOrder(num_positions=num_positions, run=2, seed=5, lanes=4, is_entered=is_entered)
    assert order.epoch(tf.constant(3, tf.int64)).entries.numpy().tolist() == [entry] * 4


def test_a_full_permutation_leaves_no_neighbors_together():
    order = RunOrder(num_positions=10_000, run=1, seed=5, lanes=0, is_entered=True)
    members = members_by_position(order, 0)
    assert np.mean(np.abs(np.diff(members)) == 1) < 0.001
    assert abs(np.corrcoef(members, np.arange(10_000))[0, 1]) < 0.05


def test_the_seed_of_an_order_depends_on_the_dataset():
    assert len({order_seed(0, "0123abcd"), order_seed(1, "0123abcd"), order_seed(0, "0123abce")}) == 3
    assert order_seed(0, "0123abcd") == 269957879372989789


# Orders of loaded datasets


@pytest.mark.parametrize("batch_size", [4, COUNT])
def test_without_shuffle_one_worker_reads_the_stored_order(numbered, batch_size):
    read = steps(load(numbered, global_batch_size=batch_size, remainder="keep"))
    assert [number for batch in read for number in batch] == list(range(COUNT))


def test_the_order_is_a_function_of_the_seed_and_the_epoch(numbered):
    first, again, other = (steps(load(numbered, shuffle=Shuffle(seed=seed), epochs=2)) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    half = len(first) // 2
    assert first[:half] != first[half:]
    assert first[:half] != steps(load(numbered))


@pytest.mark.parametrize("num_workers", mostly_nightly([2, 4], [2]))
def test_global_batches_are_the_same_sets_for_each_worker_count_that_divides_the_lanes(numbered, num_workers):
    options = {"shuffle": Shuffle(seed=3, run=3), "remainder": "keep"}
    whole = [set(batch) for batch in steps(load(numbered, **options))]
    shares = [steps(load(numbered, num_workers, index, **options)) for index in range(num_workers)]
    assert [set().union(*batches) for batches in zip(*shares, strict=True)] == whole
    assert set().union(*whole) == set(range(COUNT))


@pytest.mark.parametrize("num_workers", mostly_nightly([2, 3], [3]))
def test_in_stored_order_global_batches_are_the_same_for_every_worker_count(numbered, num_workers):
    whole = steps(load(numbered, global_batch_size=6))
    shares = [steps(load(numbered, num_workers, index, global_batch_size=6)) for index in range(num_workers)]
    assert [list(itertools.chain(*batches)) for batches in zip(*shares, strict=True)] == whole


def test_a_dataset_of_one_epoch_gives_the_next_one_each_time_it_is_iterated(numbered):
    options = {"shuffle": Shuffle(seed=3), "remainder": "keep"}
    dataset = load(numbered, **options)
    together = [batch for _ in range(3) for batch in steps(dataset)]
    assert together == steps(load(numbered, **options, epochs=3))


# Resuming


RESUMED = [
    (Position(0, 3), None, 1, "drop", "inside the first epoch, in stored order"),
    (Position(1, 9), Shuffle(seed=3), 1, "keep", "inside the second"),
    (Position(1, 7), None, 2, "pad", "two workers in stored order"),
    (Position(1, 5), Shuffle(seed=3, run=3), 2, "pad", "inside a run"),
    (Position(1, 6), Shuffle(seed=3, run=3), 1, "drop", "between two runs"),
    (Position(2, 10), Shuffle(seed=3), 1, "keep", "the last step of all"),
    (Position(1, 4), Shuffle(how="full", seed=3), 1, "keep", "a full permutation, which has no lanes"),
]


@pytest.mark.parametrize(
    ("position", "shuffle", "num_workers", "remainder", "reason"),
    mostly_nightly(RESUMED, [RESUMED[i] for i in (3, 6)]),
)
def test_a_run_resumes_exactly_where_it_stopped(numbered, position, shuffle, num_workers, remainder, reason):
    options = {"shuffle": shuffle, "remainder": remainder, "epochs": 3}
    for index in range(num_workers):
        run = load(numbered, num_workers, index, **options)
        whole, per_epoch = steps(run), len(run) // 3
        rest = load(numbered, num_workers, index, start=position, **options)
        passed = position.epoch * per_epoch + position.step
        assert len(rest) == 3 * per_epoch - passed, reason
        assert steps(rest) == whole[passed:], reason
