"""Who reads what, as arithmetic: for any examples, batches and workers complete, disjoint and even."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfshards.loader import Shuffle, Worker
from tfshards.loader.assign import Assignment, assign, divisors, lane_start, num_lanes, num_steps
from tfshards.schemas import OptionsError

REMAINDERS = ("drop", "pad", "keep")
SHUFFLES = (None, Shuffle(), Shuffle(window=1), Shuffle(window=3))


def assignments(num_examples, batch_size, num_workers, remainder, shuffle, record_bytes=100):
    """Return what each of the workers reads."""
    return [
        assign(
            num_examples,
            num_examples * record_bytes,
            batch_size,
            Worker(index, num_workers),
            remainder,
            shuffle,
        )
        for index in range(num_workers)
    ]


def places(assignment: Assignment):
    """Return the places that a worker reads in an epoch, and the number of rows that they fill."""
    read, rows = [], 0
    for window in range(assignment.num_windows):
        for piece in range(assignment.num_pieces):
            start, length, count = assignment.piece(window, piece)
            read.extend(range(start, start + count))
            rows += length
    return read, rows


def check_exactly_once(num_examples, batch_size, num_workers, remainder, shuffle, record_bytes):
    workers = assignments(num_examples, batch_size, num_workers, remainder, shuffle, record_bytes)
    read = [places(worker) for worker in workers]
    together = sorted(itertools.chain.from_iterable(numbers for numbers, _ in read))
    global_batch_size = batch_size * num_workers
    if remainder == "drop":
        steps = num_examples // global_batch_size
        assert len(together) == steps * global_batch_size
        assert len(set(together)) == len(together)
        assert set(together) <= set(range(num_examples))
        if shuffle is None:
            assert together == list(range(len(together)))
    else:
        steps = (num_examples + global_batch_size - 1) // global_batch_size
        assert together == list(range(num_examples))
    for worker, (_, rows) in zip(workers, read, strict=True):
        assert worker.num_steps == steps
        assert rows == steps * batch_size
        windows = [worker.window_steps(window) for window in range(worker.num_windows)]
        assert sum(windows) == steps
        assert all(windows)


@pytest.mark.parametrize("num_workers", range(1, 9))
@pytest.mark.parametrize("remainder", REMAINDERS)
def test_each_place_of_an_epoch_is_read_exactly_once_for_every_small_split(num_workers, remainder):
    for num_examples, batch_size, shuffle in itertools.product(range(31), range(1, 7), SHUFFLES):
        # some 100 bytes a record make windows of 64 steps; some MiB make windows of one step
        for record_bytes in (100, 3 << 20):
            check_exactly_once(num_examples, batch_size, num_workers, remainder, shuffle, record_bytes)


@settings(max_examples=100, deadline=None)
@given(
    num_examples=st.integers(0, 5000),
    batch_size=st.integers(1, 300),
    num_workers=st.integers(1, 12),
    remainder=st.sampled_from(REMAINDERS),
    shuffle=st.none() | st.builds(Shuffle, window=st.none() | st.integers(1, 20)),
    record_bytes=st.integers(16, 1 << 22),
)
def test_each_place_of_an_epoch_is_read_exactly_once_for_any_split(
    num_examples, batch_size, num_workers, remainder, shuffle, record_bytes
):
    check_exactly_once(num_examples, batch_size, num_workers, remainder, shuffle, record_bytes)


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


def step_places(worker: Assignment):
    """Return the set of places of each step of a shuffled epoch, as far as the windows tell: by window."""
    by_window = []
    for window in range(worker.num_windows):
        found = set()
        for piece in range(worker.num_pieces):
            start, _, count = worker.piece(window, piece)
            found.update(range(start, start + count))
        by_window.append(found)
    return by_window


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("window", [1, 2, None])
def test_the_global_windows_are_the_same_for_every_worker_count_that_divides_the_lanes(remainder, window):
    whole = step_places(assignments(1000, 48, 1, remainder, Shuffle(window=window))[0])
    for num_workers in (2, 4, 8, 16):
        shares = assignments(1000, 48 // num_workers, num_workers, remainder, Shuffle(window=window))
        together = [set().union(*found) for found in zip(*map(step_places, shares), strict=True)]
        assert together == whole


def test_in_stored_order_the_steps_of_all_workers_are_consecutive_places():
    for num_workers in range(1, 9):
        workers = assignments(100, 3, num_workers, "keep", None, 3 << 20)
        assert all(worker.window == 1 for worker in workers)  # of 3 MiB a record
        for step in range(workers[0].num_steps):
            read = []
            for worker in workers:
                for piece in range(worker.num_pieces):
                    start, _, count = worker.piece(step, piece)
                    read.extend(range(start, start + count))
            first = step * 3 * num_workers
            assert read == list(range(first, min(first + 3 * num_workers, 100)))


@given(num_examples=st.integers(0, 10**12), lanes=st.integers(1, 64))
def test_lanes_cover_the_epoch_and_differ_by_at_most_one(num_examples, lanes):
    bounds = [lane_start(num_examples, lanes, lane) for lane in range(lanes + 1)]
    lengths = [high - low for low, high in itertools.pairwise(bounds)]
    assert (bounds[0], bounds[-1]) == (0, num_examples)
    assert 0 <= min(lengths) <= max(lengths) <= min(lengths) + 1


@given(batch_size=st.integers(1, 5000), num_workers=st.integers(1, 100))
def test_the_default_lanes_divide_the_global_batch_and_fall_evenly_to_the_workers(batch_size, num_workers):
    lanes = num_lanes(batch_size * num_workers, num_workers)
    assert (batch_size * num_workers) % lanes == 0
    assert lanes % num_workers == 0
    assert lanes <= max(16, num_workers)


@pytest.mark.parametrize("num_workers", [1, 2, 4, 8, 16])
def test_the_default_lanes_do_not_depend_on_the_workers_where_these_divide_16(num_workers):
    assert num_lanes(256, num_workers) == 16


@pytest.mark.parametrize(
    ("global_batch_size", "num_workers", "lanes", "message"),
    [
        (12, 1, 5, r"Shuffle\.lanes=5 does not divide the global batch size 12; .* such as 4"),
        (12, 1, 24, r"Shuffle\.lanes=24 does not divide the global batch size 12; .* such as 12"),
        (12, 3, 4, r"Shuffle\.lanes=4 cannot be dealt evenly to 3 workers; .* multiple of 3, or 1, 2 or 4 w"),
        (12, 3, 1, r"cannot be dealt evenly to 3 workers; use a multiple of 3, or 1 workers"),
    ],
)
def test_lanes_that_do_not_fit_are_refused(global_batch_size, num_workers, lanes, message):
    with pytest.raises(OptionsError, match=message):
        assign(
            100,
            1000,
            global_batch_size // num_workers,
            Worker(0, num_workers),
            "drop",
            Shuffle(lanes=lanes),
        )


def test_lanes_that_fit_are_taken_as_they_are():
    assert num_lanes(12, 3, 6) == 6
    assert assignments(100, 4, 3, "drop", Shuffle(lanes=12))[0].num_pieces == 4


@given(st.integers(1, 2000))
def test_divisors_are_all_of_them_in_order(number):
    found = divisors(number)
    assert found == sorted(set(found))
    assert {number // divisor for divisor in found} == set(found)
    assert all(number % divisor == 0 for divisor in found)
    assert len(found) == sum(number % candidate == 0 for candidate in range(1, number + 1))


@settings(max_examples=200, deadline=None)
@given(
    num_examples=st.integers(1, 300),
    batch_size=st.integers(1, 40),
    num_workers=st.integers(1, 4),
    record_bytes=st.integers(16, 1 << 23),
)
def test_streams_of_stored_order_hold_all_pieces_of_an_epoch(
    num_examples, batch_size, num_workers, record_bytes
):
    worker = assignments(num_examples, batch_size, num_workers, "keep", None, record_bytes)[-1]
    pieces = worker.num_windows * worker.num_pieces
    assert (worker.num_streams - 1) * worker.chunk < pieces <= worker.num_streams * worker.chunk
    assert batch_size * worker.window % worker.num_pieces == 0
    if worker.window > 1:
        assert worker.num_pieces == 1, "a shorter last window would have other pieces"
    if num_workers > 1:
        assert worker.num_pieces % worker.chunk == 0, "the slices of two steps are no neighbours"
