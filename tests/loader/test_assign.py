"""Assignment of positions to workers: complete, disjoint and even for any examples, batches and workers."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.errors import raises
from tfshards.loader import Shuffle, Worker
from tfshards.loader.order.assignment import Assignment, Stored, assign, lane_start, num_lanes, num_steps
from tfshards.schemas import OptionsError

from .epochs import step_intervals

SMALL = Stored(100)
REMAINDERS = ("drop", "pad", "keep")
SHUFFLES = (None, Shuffle(), Shuffle(run=3), Shuffle(how="full"))


def assignments(num_examples, batch_size, num_workers, remainder, shuffle, stored=SMALL):
    """Return what each of the workers reads."""
    return [
        assign(
            num_examples,
            stored,
            batch_size=batch_size,
            worker=Worker(index, num_workers),
            remainder=remainder,
            shuffle=shuffle,
        )
        for index in range(num_workers)
    ]


def positions(assignment: Assignment, step):
    """Return the positions that a worker reads for a step, and the number of rows that they fill."""
    found = step_intervals(assignment, step)
    return [position for start, count in found for position in range(start, start + count)]


def check_exactly_once(num_examples, batch_size, num_workers, remainder, shuffle):
    workers = assignments(num_examples, batch_size, num_workers, remainder, shuffle)
    global_batch_size = batch_size * num_workers
    steps = num_examples // global_batch_size
    if remainder != "drop":
        steps += num_examples % global_batch_size > 0
    assert {worker.num_steps for worker in workers} == {steps}
    read = []
    for step in range(steps):
        found = [positions(worker, step) for worker in workers]
        assert all(len(share) <= batch_size for share in found)
        # only the last step may be smaller than a full batch
        if step < steps - 1 or remainder == "drop":
            assert {len(share) for share in found} == {batch_size}
        read += itertools.chain.from_iterable(found)
    assert len(set(read)) == len(read)
    if remainder == "drop":
        assert len(read) == steps * global_batch_size
        assert set(read) <= set(range(num_examples))
    else:
        assert sorted(read) == list(range(num_examples))


@settings(max_examples=100, deadline=None)
@given(
    num_examples=st.integers(0, 5000),
    batch_size=st.integers(1, 300),
    num_workers=st.integers(1, 12),
    remainder=st.sampled_from(REMAINDERS),
    shuffle=st.sampled_from(SHUFFLES),
)
def test_each_position_is_read_once_for_any_split(num_examples, batch_size, num_workers, remainder, shuffle):
    check_exactly_once(num_examples, batch_size, num_workers, remainder, shuffle)


@pytest.mark.parametrize(
    ("num_examples", "global_batch_size", "remainder", "steps", "reason"),
    [
        (10, 5, "drop", 2, "nothing is left over"),
        (10, 5, "pad", 2, "nothing is to be padded"),
        (11, 5, "drop", 2, "one example is dropped"),
        (11, 5, "pad", 3, "one example begins a step"),
        (11, 5, "keep", 3, "one example is a step"),
        (4, 5, "drop", 0, "no batch is full"),
        (4, 5, "pad", 1, "a padded one is"),
        (0, 5, "drop", 0, "no examples, no steps"),
        (0, 5, "pad", 0, "no examples, nothing to pad with"),
        (0, 5, "keep", 0, "no examples, no empty step"),
    ],
)
def test_the_steps_of_an_epoch(num_examples, global_batch_size, remainder, steps, reason):
    assert num_steps(num_examples, global_batch_size, remainder) == steps, reason


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_global_batches_are_the_same_positions_for_every_worker_count_that_divides_the_lanes(remainder):
    (whole,) = assignments(1000, 48, 1, remainder, Shuffle())
    for num_workers in (2, 3, 4, 8, 12, 16, 24, 48):
        shares = assignments(1000, 48 // num_workers, num_workers, remainder, Shuffle())
        assert {share.run for share in shares} == {whole.run}
        for step in range(whole.num_steps):
            together = sorted(itertools.chain.from_iterable(positions(share, step) for share in shares))
            assert together == sorted(positions(whole, step))


@pytest.mark.parametrize("shuffle", [None, Shuffle(how="full")])
def test_the_steps_of_all_workers_are_consecutive_positions(shuffle):
    for num_workers in range(1, 9):
        workers = assignments(100, 3, num_workers, "keep", shuffle)
        for step in range(workers[0].num_steps):
            read = list(itertools.chain.from_iterable(positions(worker, step) for worker in workers))
            first = step * 3 * num_workers
            assert read == list(range(first, min(first + 3 * num_workers, 100)))


@pytest.mark.parametrize(
    ("num_examples", "stored", "run", "reason"),
    [
        (10**6, Stored(1024), 1024, "a MiB of records"),
        (10**6, Stored(1024, is_permuted=False), 128, "less where neighbors are similar"),
        (1000, Stored(1024), 7, "two runs a lane, in a small split"),
        (6400, Stored(1024, is_permuted=False), 12, "eight runs a lane where neighbors are similar"),
        (10**6, Stored(10**6), 2, "at least two records, even if large"),
        (0, Stored(1), 2, "no examples"),
        (10**6, Stored(1024, num_shards=8, is_compressed=True), 125_000, "a shard that is to be inflated"),
        (100, Stored(1024, is_compressed=True), 100, "the only shard"),
        (3, Stored(1024, num_shards=2, is_compressed=True), 2, "at least two records, even of small shards"),
        (0, Stored(1, num_shards=0, is_compressed=True), 2, "no shards"),
    ],
)
def test_runs_are_long_enough_for_sequential_reads(num_examples, stored, run, reason):
    (found,) = assignments(num_examples, 64, 1, "drop", Shuffle(), stored)
    assert found.run == run, reason


@pytest.mark.parametrize(
    ("record_bytes", "batch_size", "group", "chunk", "reason"),
    [
        (1024, 64, 16, 8, "a MiB is parsed together, and a stream has 8 MiB"),
        (1024, 1, 64, 128, "at most 64 steps are parsed together"),
        (2 << 20, 64, 1, 1, "at least one step, even if large"),
        (1 << 14, 32, 2, 8, "half a MiB for each step"),
    ],
)
def test_small_steps_are_parsed_together_and_streams_are_long(record_bytes, batch_size, group, chunk, reason):
    for shuffle, run in [(None, 0), (Shuffle(how="full"), 1)]:
        (found,) = assignments(1000, batch_size, 1, "drop", shuffle, Stored(record_bytes))
        assert (found.group, found.chunk, found.run) == (group, chunk, run), reason
        assert (found.lanes, found.usual_lanes, found.num_readers) == (0, 0, 1)
    (found,) = assignments(1000, batch_size, 1, "drop", Shuffle(), Stored(record_bytes))
    assert (found.group, found.chunk) == (group, 0), reason


@pytest.mark.parametrize(("batch_size", "lanes", "compressed"), [(1024, 256, 64), (257, 1, 1), (65, 65, 13)])
def test_compressed_shards_have_fewer_lanes(batch_size, lanes, compressed):
    for stored, expected in [(SMALL, lanes), (Stored(100, is_compressed=True), compressed)]:
        (found,) = assignments(1000, batch_size, 1, "drop", Shuffle(), stored)
        assert (found.lanes, found.usual_lanes) == (expected, expected)


@pytest.mark.parametrize(
    ("num_cpus", "num_workers", "lanes", "readers"),
    [(1, 1, 4, 2), (2, 1, 4, 2), (6, 1, 4, 4), (2, 1, 3, 1), (64, 3, 6, 2), (64, 2, 2, 1), (64, 1, 64, 16)],
)
def test_each_processor_reads_a_part_of_the_lanes(num_cpus, num_workers, lanes, readers, monkeypatch):
    monkeypatch.setattr("tfshards.loader.order.assignment.num_cpus", lambda: num_cpus)
    for worker in assignments(100, 192 // num_workers, num_workers, "drop", Shuffle(lanes=lanes)):
        assert worker.num_readers == readers


@given(num_examples=st.integers(0, 10**12), lanes=st.integers(1, 64))
def test_lanes_cover_the_epoch_and_differ_by_at_most_one(num_examples, lanes):
    bounds = [lane_start(num_examples, lanes, lane) for lane in range(lanes + 1)]
    lengths = [high - low for low, high in itertools.pairwise(bounds)]
    assert (bounds[0], bounds[-1]) == (0, num_examples)
    assert 0 <= min(lengths) <= max(lengths) <= min(lengths) + 1


@given(batch_size=st.integers(1, 5000), num_workers=st.integers(1, 100))
def test_the_default_lanes_divide_the_global_batch_and_are_even_over_the_workers(batch_size, num_workers):
    lanes = num_lanes(batch_size * num_workers, num_workers)
    assert (batch_size * num_workers) % lanes == 0
    assert lanes % num_workers == 0
    assert lanes <= max(256, num_workers)


def test_the_default_lanes_do_not_depend_on_the_workers_that_divide_them():
    assert {num_lanes(1024, num_workers) for num_workers in (1, 2, 4, 8, 16, 32, 64)} == {256}
    assert num_lanes(600, 300) == 300, "each of many workers has one lane"
    assert num_lanes(12, 3, 6) == 6


def test_lanes_that_do_not_fit_are_refused():
    with raises(OptionsError, "lanes-batch", wanted=5, global_batch_size=12):
        num_lanes(12, 1, 5)
    with raises(OptionsError, "lanes-workers", wanted=4, num_workers=3):
        num_lanes(12, 3, 4)
