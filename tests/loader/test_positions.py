"""Positions: JSON, changes of the number of workers, and errors; test_resume.py tests killed training."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.errors import fault, raises
from tfshards import loader
from tfshards.loader import Position, Progress, Shuffle, Worker
from tfshards.loader.order.assignment import Stored, assign, divisors
from tfshards.loader.order.epoch import RunOrder
from tfshards.loader.order.plan import check_same_order, check_start, check_workers, kept_shuffle, order_facts
from tfshards.loader.order.population import ranges_of
from tfshards.loader.order.source import OpenSplit
from tfshards.schemas import Feature, InputError, Manifest, OptionsError, Schema, Totals

from .conftest import NUMBERS
from .epochs import members_by_position, step_intervals

SIZES = [9, 0, 14, 7, 11]
COUNT = sum(SIZES)


def load(numbered, num_workers=1, index=0, global_batch_size=8, **options):
    options = {"shuffle": Shuffle(seed=3), "remainder": "keep", "epochs": 3, **options}
    batch_size = global_batch_size // num_workers
    return loader.load(numbered(SIZES), batch_size=batch_size, worker=Worker(index, num_workers), **options)


def steps(dataset):
    return [batch["number"].tolist() for batch in dataset.as_numpy_iterator()]


@pytest.fixture(scope="module")
def where(numbered):
    """Return a position with the order of its run, after a round trip through JSON."""
    progress = Progress(Position(1, 2))
    load(numbered, start=progress)
    return Position.from_json(json.loads(json.dumps(progress.position.to_json())))


# Changes of the number of workers


def facts_of(num_examples, assignment, shuffle):
    manifest = Manifest("d", "0123abcd", NUMBERS, {}, Totals(num_examples, num_examples))
    source = OpenSplit(Path("d"), manifest, "train")
    return order_facts(source, ranges_of(num_examples, None), assignment, shuffle)


@settings(max_examples=60, deadline=None)
@given(
    num_examples=st.integers(0, 400),
    global_batch_size=st.sampled_from([1, 4, 6, 8, 24, 80]),
    remainder=st.sampled_from(["drop", "pad", "keep"]),
    shuffle=st.sampled_from([None, Shuffle(), Shuffle(run=5), Shuffle(how="full")]),
    seed=st.integers(0, 2**63 - 1),
    data=st.data(),
)
def test_each_example_occurs_once_even_if_the_number_of_workers_changes_often(
    num_examples, global_batch_size, remainder, shuffle, seed, data
):
    def assigned(count, shuffle):
        size = global_batch_size // count
        workers = [Worker(index, count) for index in range(count)]
        options = {"batch_size": size, "remainder": remainder, "shuffle": shuffle}
        return [assign(num_examples, Stored(100), worker=worker, **options) for worker in workers]

    def batches(workers, first, last):
        """Return the members of each global batch."""
        found = []
        for step in range(first, last):
            positions = [
                position
                for worker in workers
                for start, count in step_intervals(worker, step)
                for position in range(start, start + count)
            ]
            found.append(sorted(members[positions].tolist()))
        return found

    first = assigned(data.draw(st.sampled_from(divisors(global_batch_size))), shuffle)
    order = RunOrder(
        num_positions=num_examples, run=first[0].run, seed=seed, lanes=first[0].lanes, is_entered=True
    )
    members = members_by_position(order, 3)
    num_steps = first[0].num_steps
    undisturbed = batches(first, 0, num_steps)
    facts = facts_of(num_examples, first[0], shuffle)
    step, consumed = 0, []
    while step < num_steps:
        count = data.draw(st.sampled_from(divisors(facts["lanes"] or global_batch_size)))
        check_workers(facts, global_batch_size // count, Worker(0, count))
        workers = assigned(count, kept_shuffle(shuffle, facts))
        check_same_order(facts, facts_of(num_examples, workers[0], shuffle))
        assert all(len(batch) <= global_batch_size // count for batch in batches(workers[:1], step, step + 1))
        last = data.draw(st.integers(step + 1, num_steps))
        consumed += batches(workers, step, last)
        step = last
    assert consumed == undisturbed
    together = [member for batch in consumed for member in batch]
    assert len(set(together)) == len(together)
    assert len(together) == (num_steps * global_batch_size if remainder == "drop" else num_examples)


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
STORED = {"how": "stored", "seed": 0, "run": 0, "lanes": 0}


def assigned_to_one(shuffle, num_examples=41):
    options = {"batch_size": 8, "worker": Worker(0, 1), "remainder": "keep", "shuffle": shuffle}
    return assign(num_examples, Stored(100), **options)


@pytest.mark.parametrize(("shuffle", "facts"), [(Shuffle(seed=3), FACTS), (None, {**FACTS, **STORED})])
def test_the_facts_of_an_order_never_change_between_releases(shuffle, facts):
    assert facts_of(41, assigned_to_one(shuffle), shuffle) == facts


@pytest.mark.parametrize(
    ("shuffle", "order", "kept"),
    [
        (None, FACTS, None),
        (Shuffle(), None, Shuffle()),
        (Shuffle(), FACTS, Shuffle(run=2, lanes=8)),
        (Shuffle(run=7), FACTS, Shuffle(run=7, lanes=8)),
        (Shuffle(lanes=4), FACTS, Shuffle(run=2, lanes=4)),
        (Shuffle(how="full"), FACTS, Shuffle(how="full")),
        (Shuffle(), {**FACTS, **STORED}, Shuffle()),
    ],
)
def test_a_shuffle_has_the_lanes_and_runs_of_the_position_unless_they_are_given(shuffle, order, kept):
    assert kept_shuffle(shuffle, order) == kept


@pytest.mark.parametrize(
    ("order", "batch_size", "num_workers", "message"),
    [
        (FACTS, 8, 3, fault("resume-workers", count=3, what="8 lanes")),
        ({**FACTS, **STORED}, 8, 3, fault("resume-workers", what="global batch of 8 examples")),
        (FACTS, 16, 1, fault("resume-batch", batch_size=16, batch_size2=16)),
        (FACTS, 3, 2, fault("resume-batch", batch_size=6, batch_size2=3)),
    ],
)
def test_workers_that_cannot_resume_a_run_are_refused(order, batch_size, num_workers, message):
    with raises(OptionsError, message):
        check_workers(order, batch_size, Worker(0, num_workers))
    check_workers(None, batch_size, Worker(0, num_workers))


@pytest.mark.parametrize(
    ("start", "epochs", "shuffle", "num_examples", "message"),
    [
        (Position(), 1, Shuffle(), 41, None),
        (Position(0, 5), 1, None, 41, None),
        (Position(0, 6), 1, None, 41, fault("start-step", num_steps=6)),
        (Position(), 1, None, 0, None),
        (Position(1), 2, None, 41, None),
        (Position(2), 2, None, 41, fault("start-after-end", epochs=2, epoch=3)),
        (Position(2, order=FACTS), 2, None, 41, None),
        (Position(2, 1, order=FACTS), 2, None, 41, "start-after-end"),
        (Position(3, order=FACTS), 2, None, 41, "start-after-end"),
        (Position(9), None, None, 41, None),
        (Position(), 0, None, 41, fault("epochs-range", epochs=0)),
    ],
)
def test_a_run_starts_before_its_end(start, epochs, shuffle, num_examples, message):
    assignment = assigned_to_one(shuffle, num_examples)
    if message is None:
        check_start(start, epochs, assignment, shuffle)
    else:
        with raises(OptionsError, message):
            check_start(start, epochs, assignment, shuffle)


@pytest.mark.parametrize(
    ("start", "lanes", "is_known"),
    [(Position(), None, True), (Position(0, 1), None, False), (Position(0, 1), 16, True)],
)
def test_the_default_lanes_of_a_run_of_an_unknown_number_of_workers_are_refused(start, lanes, is_known):
    shuffle = Shuffle(lanes=lanes)
    options = {"batch_size": 17, "worker": Worker(0, 16), "remainder": "keep", "shuffle": shuffle}
    assignment = assign(1000, Stored(100), **options)
    if is_known:
        check_start(start, None, assignment, shuffle)
        return
    with raises(OptionsError, "resume-lanes", count=16, usual=136):
        check_start(start, None, assignment, shuffle)


def test_one_worker_can_resume_the_run_of_two(numbered):
    whole = [set(batch) for batch in steps(load(numbered))]
    seen = []
    where = Position()
    for num_workers, taken in ((2, 2), (1, None)):
        progresses = [Progress(where) for _ in range(num_workers)]
        shares = [
            steps(load(numbered, num_workers, index, start=progress))[:taken]
            for index, progress in enumerate(progresses)
        ]
        seen += [set().union(*batches) for batches in zip(*shares, strict=True)]
        for progress in progresses:
            progress.advance(len(shares[0]))
        (where,) = {progress.position for progress in progresses}
        where = Position.from_json(json.loads(json.dumps(where.to_json())))
    assert seen == whole
    assert where == Position(3, 0)
    assert len(load(numbered, start=where)) == 0, "a finished run has no steps left"


def test_a_resumed_run_keeps_its_lanes(numbered):
    progress = Progress()
    load(numbered, 16, 3, global_batch_size=272, start=progress, epochs=None)
    assert progress.position.order["lanes"] == 16, "the default of as many workers, not that of one"
    progress.advance()
    load(numbered, 8, 3, global_batch_size=272, start=progress.position, epochs=None)
    with raises(OptionsError, "resume-workers", count=34, what="16 lanes"):
        load(numbered, 34, 3, global_batch_size=272, start=progress.position, epochs=None)


# Errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": Shuffle(seed=4)}, fault("resume-order", what="Shuffle.seed", get=3)),
        ({"shuffle": Shuffle(how="full", seed=3)}, fault("resume-order", get="runs", get2="full")),
        ({"shuffle": None}, fault("resume-order", get="runs", get2="stored")),
        ({"shuffle": Shuffle(seed=3, lanes=4)}, fault("resume-order", what="Shuffle.lanes", get=8)),
        ({"shuffle": Shuffle(seed=3, run=7)}, fault("resume-order", what="Shuffle.run", get=2)),
        ({"remainder": "drop"}, fault("resume-order", what="remainder=", get="keep")),
    ],
)
def test_a_run_with_a_different_order_cannot_be_resumed(numbered, where, options, message):
    with raises(OptionsError, message):
        load(numbered, start=where, **options)


def test_a_run_of_a_different_split_or_dataset_cannot_be_resumed(numbered, where):
    with raises(OptionsError, "resume-order", what="the choice of examples"):
        loader.load(numbered([40]), batch_size=8, shuffle=Shuffle(seed=3), remainder="keep", start=where)
    order = {**where.order, "build_id": "ffffffff"}
    with raises(OptionsError, "resume-order", what="the build of the dataset", get="ffffffff"):
        load(numbered, start=Position(1, 2, order))
    order = {**where.order, "unknown": "value"}
    with raises(OptionsError, "resume-order", what="'unknown'", get="value"):
        load(numbered, start=Position(1, 2, order))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([0, 3], r"\[0, 3\] is not a position, a dict with epoch, step"),
        ({"epoch": 1}, "is not a position"),
        ({"epoch": 1, "step": 2, "stop": 3}, "is not a position"),
        ({"epoch": 1, "step": -2}, "Position.step=-2 must be at least 0"),
        ({"epoch": 1, "step": 2, "order": "runs"}, "order='runs' of a position must be a dict"),
        ({"epoch": 1, "step": 2, "order": {"seed": 1}}, "Position.order lacks build_id, examples, "),
    ],
)
def test_invalid_positions_are_rejected(found, message):
    with pytest.raises(OptionsError, match=message):
        Position.from_json(found)


def test_a_position_without_order_is_restored_from_json():
    assert Position.from_json(json.loads(json.dumps(Position(3, 4).to_json()))) == Position(3, 4)


# Progress


def test_a_checkpoint_holds_the_position_and_the_order(numbered, where, tmp_path):
    progress = Progress()
    load(numbered, start=progress)
    assert progress.steps_per_epoch == 6
    progress.advance(6 + 2)
    path = tf.train.Checkpoint(progress=progress).save(str(tmp_path / "run"))
    other = Progress()
    tf.train.Checkpoint(progress=other).restore(path).assert_existing_objects_matched()
    assert other.position.to_json() == progress.position.to_json() == where.to_json()
    with raises(OptionsError, "resume-order", what="Shuffle.seed", get=3):
        load(numbered, start=other, shuffle=Shuffle(seed=9))


def test_advance_raises_if_it_would_miscount(numbered, tmp_path):
    progress = Progress()
    with raises(OptionsError, "progress-unstarted"):
        progress.advance()
    load(numbered, start=progress)
    with raises(OptionsError, "advance-in-graph"):
        tf.function(progress.advance, autograph=False)()
    path = tf.train.Checkpoint(progress=progress).save(str(tmp_path / "run"))
    progress.advance(2)
    tf.train.Checkpoint(progress=progress).restore(path)
    with raises(OptionsError, "progress-moved", now=0, now2=0):
        progress.advance()


def test_a_folder_whose_last_checkpoint_is_missing_is_an_error(tmp_path):
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-7"\n')
    with raises(InputError, "checkpoints-unreadable"):
        loader.Resume(tmp_path)
    with raises(OptionsError, "below-least", name="every", number=0):
        loader.Resume(tmp_path / "new", every=0)


def test_records_before_a_position_are_not_read(write_dataset, tmp_path):
    schema, example = Schema((Feature("x", "raw", "uint8", (1000,)),)), {"x": np.zeros(1000, np.uint8)}
    dataset = write_dataset(tmp_path, schema, {"train": [[example] * 20_000]})
    for shuffle in (None, Shuffle(seed=3)):
        read = {}
        for step in (0, 8_000):
            before = bytes_read()
            next(iter(loader.load(dataset, batch_size=2, shuffle=shuffle, start=Position(0, step))))
            read[step] = bytes_read() - before
        assert read[8_000] < read[0] + 2_000_000, "16 MB of records come before it"


def bytes_read():
    """Return what this process has read by system calls so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def test_a_load_that_fails_leaves_the_progress_as_it_was(numbered):
    progress = Progress()
    with raises(OptionsError, "budget-too-small"):
        loader.load(numbered(SIZES), batch_size=8, start=progress, memory_budget="1MiB")
    with raises(OptionsError, "progress-unstarted"):
        _ = progress.steps_per_epoch
    loader.load(numbered(SIZES), batch_size=4, start=progress)
    assert progress.steps_per_epoch == COUNT // 4
