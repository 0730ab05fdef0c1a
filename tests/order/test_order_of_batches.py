"""``batches``, ``which`` and ``when`` follow the order that plain Python computes from its definition."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.campaigns import cases as scaled
from tests.order.cases import EPOCHS, Case, cases
from tests.order.conftest import quiet
from tests.order.reference import num_lanes, run_length
from tfshards.loader import Position, Worker, batches, when, which

PADDING = -2


def rows_of(numbers, remainder, damaged):
    """Return the rows of a batch from ``Batches.numbers``, which knows only damage that was met."""
    rows = [None if number == PADDING or number in damaged else number for number in numbers.tolist()]
    return [number for number in rows if number is not None] if remainder == "keep" else rows


def check_delivered(case, batch, share):
    """Compare the values and weights of a batch with what its rows should hold."""
    values, weights = case.delivered(share)
    assert batch[0].tolist() == values
    assert [each.tolist() for each in batch[1:]] == [weights] * (case.order["remainder"] == "pad")


@settings(max_examples=scaled(500, nightly=5000))
@given(data=st.data())
def test_every_batch_holds_the_examples_of_the_reference(datasets, data):
    case, epoch = data.draw(cases(datasets)), data.draw(EPOCHS)
    steps = case.batches(epoch)
    read_by = data.draw(st.integers(0, case.workers - 1))
    for index in range(case.workers):
        where = {"worker": Worker(index, case.workers), "start": Position(epoch), "epochs": epoch + 1}
        run = quiet(batches, case.data.path, select=("number",), **where, **case.options)
        assert len(run) == run.steps_per_epoch == len(steps)
        shares = [step[index] for step in steps]
        if index == read_by:
            for batch, share in zip(run, shares, strict=True):
                check_delivered(case, batch, share)
        else:
            found = [
                rows_of(run.numbers(epoch, step), case.order["remainder"], case.data.damaged)
                for step in range(len(steps))
            ]
            assert found == shares
    check_epoch(case, epoch, steps)


def check_epoch(case: Case, epoch, steps):
    """Check the promises: each example once over all workers, and as many steps for each."""
    members, whole = case.members(epoch), case.batch_size * case.workers
    remainder, rest = case.order["remainder"], len(members) % whole
    assert len(steps) == len(members) // whole + (remainder != "drop" and rest > 0)
    read = Counter(number for step in steps for share in step for number in share if number is not None)
    if remainder == "drop":
        assert read <= Counter(members)
        assert read.total() == len(members) - rest
    else:
        assert read == Counter(number for number in members if number not in case.data.damaged)
    if remainder != "keep":
        assert {len(share) for step in steps for share in step} <= {case.batch_size}


@settings(max_examples=scaled(60, nightly=1000))
@given(data=st.data())
def test_a_run_resumes_at_any_step_on_any_number_of_workers_that_divides_the_lanes(datasets, data):
    case = data.draw(cases(datasets).filter(lambda each: each.batches(0)))
    epochs, count, whole = data.draw(st.integers(1, 3)), case.workers, case.batch_size * case.workers
    shuffle, stored = case.order["shuffle"], case.data.stored
    lanes = num_lanes(stored, shuffle, case.batch_size, count)
    kept = {}
    if lanes:
        run = run_length(stored, shuffle, lanes, len(case.members(0)))
        kept["shuffle"] = replace(shuffle, run=run, lanes=lanes)
    num_steps = len(case.batches(0))
    options = {**case.options, "epochs": epochs, "select": ("number",)}
    first = quiet(batches, case.data.path, worker=Worker(0, count), **options)
    index = data.draw(st.integers(0, epochs * num_steps))
    start = Position(*divmod(index, max(1, first.steps_per_epoch)), first.order)
    for _ in range(3):
        count = data.draw(st.sampled_from([n for n in range(1, 7) if (lanes or whole) % n == 0]))
        taken = data.draw(st.integers(0, min(5, epochs * num_steps - index)))
        expected = {epoch: case.batches(epoch, count, **kept) for epoch in range(epochs)}
        start, positions = Position.from_json(json.loads(json.dumps(start.to_json()))), set()
        for worker in range(count):
            where = {"worker": Worker(worker, count), "start": start}
            run = quiet(batches, case.data.path, **where, **{**options, "batch_size": whole // count})
            assert len(run) == epochs * num_steps - index
            for at, batch in zip(range(index, index + taken), run, strict=False):
                epoch, step = divmod(at, num_steps)
                check_delivered(case, batch, expected[epoch][step][worker])
            positions.add((run.position.epoch, run.position.step))
        assert positions == {divmod(index + taken, num_steps)}
        start, index = run.position, index + taken


@settings(max_examples=scaled(100, nightly=1000))
@given(data=st.data())
def test_receipts_name_the_rows_of_the_reference(datasets, data):
    case = data.draw(cases({name: each for name, each in datasets.items() if not each.damaged}))
    epoch = data.draw(EPOCHS)
    where = {"workers": case.workers, **case.choice}
    position = quiet(batches, case.data.path, worker=Worker(0, case.workers), **case.options).position
    expected = {
        (number, step, worker, row, example)
        for number in (epoch, epoch + 1)
        for step, shares in enumerate(case.batches(number))
        for worker, share in enumerate(shares)
        for row, example in enumerate(share)
        if example is not None
    }
    num_steps = len(case.batches(epoch))
    if num_steps:
        run = range(epoch * num_steps, (epoch + 2) * num_steps)
        found = which(case.data.path, position, step=run, **where)
        assert [each[:5] for each in found] == sorted(expected)
        step = data.draw(st.integers(0, num_steps - 1))
        found = which(case.data.path, position, step=step, epoch=epoch, **where)
        assert [each[:5] for each in found] == sorted(each for each in expected if each[:2] == (epoch, step))
    every = range(len(case.data.numbers))
    found = when(case.data.path, position, every, epochs=range(epoch, epoch + 2), **where)
    assert [each[:5] for each in found] == sorted(expected)
