"""The order is a pure function of (dataset, seed, epoch, global batch), and runs resume exactly."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Part, Position, Shuffle, Worker
from tfshards.loader.graph.ops import GRAPH
from tfshards.loader.order.assignment import Stored, assign
from tfshards.loader.order.epoch import RunOrder, order_seed, random_bits
from tfshards.loader.order.ops import NUMPY
from tfshards.loader.order.population import Members, grouped, ranges_of
from tfshards.loader.order.ranks import ranks_of_lanes, ranks_of_steps

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
    assert random_bits(NUMPY, 0, 0) == 0xE220A8397B1DCDAF >> 1
    for seed, *words in [(0, 0), (1, 2, 3), (-1, 5), (2**63 - 1, -(2**63)), (-(2**63), 2**63 - 1, -1)]:
        state = seed % 2**64
        for word in words:
            state = splitmix64((state + word) % 2**64)
        for ops in (NUMPY, GRAPH):
            assert int(random_bits(ops, seed, *words)) == state >> 1
            assert int(random_bits(ops, seed, *map(np.int64, words))) == state >> 1


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
    opened = order.epoch(np.int64(epoch))
    members = members_by_position(order, epoch).tolist()
    assert sorted(members) == list(range(order.num_positions))
    assert opened.runs.shape == (order.num_runs,)
    if not order.run:
        assert members == list(range(order.num_positions))
    lane = data.draw(st.integers(0, max(0, order.lanes - 1)))
    begin, end = lane_bounds(order)[lane : lane + 2]
    start = data.draw(st.integers(begin, end))
    count = data.draw(st.integers(0, end - start))
    segments = order.intervals(opened, *ranks(order, opened, lane, start, count))
    read = []
    for first, length in zip(*(each.tolist() for each in segments), strict=True):
        assert order.run == 0 or length <= order.run
        read += [member % order.num_positions for member in range(first, first + length)]
    assert read == members[start : start + count]


populations = st.sampled_from(
    [
        ranges_of(300, None),
        ranges_of(300, Part(1, 3, rest=True)),
        Members(np.arange(0, 600, 2)),
        grouped([np.arange(200), np.arange(200, 250), np.array([299])], [100, 150, 50]),
    ]
)


@settings(max_examples=40, deadline=None)
@given(
    order=orders,
    epoch=st.integers(0, 2**40),
    population=populations,
    workers=st.sampled_from([1, 2, 3]),
    data=st.data(),
)
def test_numpy_and_the_graph_compute_the_same_order(order, epoch, population, workers, data):
    def same(one, other):
        assert np.array_equal(np.asarray(one), np.asarray(other))

    in_graph = replace(order, ops=GRAPH)
    opened = order.epoch(np.int64(epoch)), in_graph.epoch(tf.constant(epoch, tf.int64))
    for one, other in zip(*opened, strict=True):
        same(one, other)
    every = np.arange(order.num_positions)
    members = order.members(opened[0], every)
    same(members, in_graph.members(opened[1], tf.constant(every)))
    starts = np.sort(data.draw(st.permutations(range(20))))[:5] * order.num_positions // 20
    counts = np.diff(np.append(starts, order.num_positions))
    for one, other in zip(
        order.intervals(opened[0], starts, counts),
        in_graph.intervals(opened[1], tf.constant(starts), tf.constant(counts)),
        strict=True,
    ):
        same(one, other)
    numbers = population.numbers(NUMPY, np.int64(epoch), members % population.num_positions)
    tensor = tf.constant(members % population.num_positions)
    same(numbers, population.numbers(GRAPH, tf.constant(epoch, tf.int64), tensor))
    shuffle = data.draw(st.sampled_from([None, Shuffle(run=3), Shuffle(how="full")]))
    worker = Worker(data.draw(st.integers(0, workers - 1)), workers)
    assignment = assign(300, Stored(100), batch_size=4, worker=worker, remainder="pad", shuffle=shuffle)
    step = data.draw(st.integers(0, assignment.num_steps - 1))
    end = data.draw(st.integers(step, assignment.num_steps))
    lanes = RunOrder(num_positions=300, run=3, seed=1, lanes=assignment.lanes, is_entered=True)
    for ops, number in ((NUMPY, np.int64), (GRAPH, lambda each: tf.constant(each, tf.int64))):
        entered = replace(lanes, ops=ops).epoch(number(epoch))
        found = (
            ranks_of_lanes(ops, assignment, entered, number(0), number(step), number(end))
            if assignment.lanes
            else ranks_of_steps(ops, assignment, number(step), number(end))
        )
        if ops is NUMPY:
            expected = found
    for one, other in zip((*found[0], found[1]), (*expected[0], expected[1]), strict=True):
        same(one, other)


@pytest.mark.parametrize("most", [2, 2**20, 2**62])
@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_values_of_which_many_share_their_upper_bits_are_sorted_and_equal_ones_keep_their_order(count, most):
    values = np.random.default_rng(0).integers(0, most, count)
    expected = np.argsort(values, kind="stable").tolist()
    assert NUMPY.ascending(values).tolist() == expected
    assert GRAPH.ascending(tf.constant(values)).numpy().tolist() == expected


@pytest.mark.parametrize(
    ("num_positions", "is_entered", "entry"), [(8, True, 1), (7, True, 0), (8, False, 0), (0, True, 0)]
)
def test_lanes_are_entered_after_their_first_position_if_each_has_two(num_positions, is_entered, entry):
    order = RunOrder(num_positions=num_positions, run=2, seed=5, lanes=4, is_entered=is_entered)
    assert order.epoch(np.int64(3)).entries.tolist() == [entry] * 4


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


@pytest.mark.parametrize(
    ("remainder", "lanes", "num_cpus"),
    mostly_nightly(
        [(r, *pair) for r in ("drop", "pad") for pair in ((4, 3), (4, 4), (8, 64), (6, 8))],
        [("drop", 8, 64), ("pad", 4, 3)],
    ),
)
def test_the_order_does_not_depend_on_the_number_of_processors(
    numbered, lanes, num_cpus, remainder, monkeypatch
):
    options = {"shuffle": Shuffle(lanes=lanes, seed=3, run=2), "remainder": remainder, "epochs": 2}
    read = []
    for count in (1, num_cpus):
        monkeypatch.setattr("tfshards.loader.order.assignment.num_cpus", lambda count=count: count)
        read.append(steps(load(numbered, global_batch_size=24 if lanes == 6 else 8, **options)))
    assert read[0] == read[1]


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
