"""Positions: JSON, other numbers of workers, and what is refused; killed training is in test_resume.py."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfshards import loader
from tfshards.loader import Position, Progress, Shuffle, Worker
from tfshards.loader.assign import Stored, assign, divisors
from tfshards.loader.order import Order
from tfshards.loader.progress import check_same_order, check_workers, kept_shuffle, order_facts
from tfshards.schemas import Feature, InputError, OptionsError, Schema

from .epochs import members_by_place

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
    """Return a position with what it knows of a run, as it comes back from a file."""
    progress = Progress(Position(1, 2))
    load(numbered, start=progress)
    return Position.from_json(json.loads(json.dumps(progress.position.to_json())))


# other numbers of workers


@dataclass
class Nothing:
    """A population of which nothing is asked here."""


@settings(max_examples=60, deadline=None)
@given(
    num_examples=st.integers(0, 400),
    global_batch_size=st.sampled_from([1, 4, 6, 8, 24, 80]),
    remainder=st.sampled_from(["drop", "pad", "keep"]),
    shuffle=st.sampled_from([None, Shuffle(), Shuffle(run=5), Shuffle("full")]),
    seed=st.integers(0, 2**63 - 1),
    data=st.data(),
)
def test_each_example_comes_once_however_often_the_number_of_workers_changes(
    num_examples, global_batch_size, remainder, shuffle, seed, data
):
    def assigned(count, shuffle):
        size = global_batch_size // count
        workers = [Worker(index, count) for index in range(count)]
        return [assign(num_examples, Stored(100), size, worker, remainder, shuffle) for worker in workers]

    def batches(workers, first, last):
        """Return the members of each global batch."""
        found = []
        for step in range(first, last):
            places = [
                place
                for worker in workers
                for start, count in worker.step_places(step)
                for place in range(start, start + count)
            ]
            found.append(sorted(members[places].tolist()))
        return found

    first = assigned(data.draw(st.sampled_from(divisors(global_batch_size))), shuffle)
    order = Order(num_examples, first[0].run, seed, first[0].lanes)
    members = members_by_place(order, 3)
    num_steps = first[0].num_steps
    undisturbed = batches(first, 0, num_steps)
    facts = order_facts("0123abcd", "train", Nothing(), first[0], shuffle)

    step, consumed = 0, []
    while step < num_steps:
        count = data.draw(st.sampled_from(divisors(facts["lanes"] or global_batch_size)))
        check_workers(facts, global_batch_size // count, Worker(0, count))
        workers = assigned(count, kept_shuffle(shuffle, facts))
        check_same_order(facts, order_facts("0123abcd", "train", Nothing(), workers[0], shuffle))
        assert all(len(batch) <= global_batch_size // count for batch in batches(workers[:1], step, step + 1))
        last = data.draw(st.integers(step + 1, num_steps))
        consumed += batches(workers, step, last)
        step = last
    assert consumed == undisturbed
    together = [member for batch in consumed for member in batch]
    assert len(set(together)) == len(together)
    assert len(together) == (num_steps * global_batch_size if remainder == "drop" else num_examples)


def test_one_worker_reads_what_two_have_left_of_a_run(numbered):
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
    assert len(load(numbered, start=where)) == 0, "a run that is done has nothing left"


def test_lanes_that_a_run_began_with_are_kept(numbered):
    progress = Progress()
    load(numbered, 16, 3, global_batch_size=272, start=progress, epochs=None)
    assert progress.position.order["lanes"] == 16, "the default of as many workers, not that of one"
    progress.advance()
    load(numbered, 8, 3, global_batch_size=272, start=progress.position, epochs=None)
    with pytest.raises(OptionsError, match=r"34 workers cannot .* 16 lanes .* use 1, 2, 4, 8, 16 workers"):
        load(numbered, 34, 3, global_batch_size=272, start=progress.position, epochs=None)


# what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"num_workers": 3, "global_batch_size": 24},
            "3 workers cannot .* 8 lanes .* use 1, 2, 4, 8 workers",
        ),
        ({"global_batch_size": 16}, "global batch size is 16 .* a run with 8; use batch_size=8, or leave"),
        ({"num_workers": 2, "global_batch_size": 6}, "is 6 .*batch_size=3 on each of 2 .* use batch_size=4"),
        (
            {"shuffle": Shuffle(seed=4)},
            "in which Shuffle.seed was 3, here it is 4; give it as the run had it",
        ),
        (
            {"shuffle": Shuffle("full", seed=3)},
            r"the kind of order \(Shuffle.how\) was 'runs', here .* 'full'",
        ),
        ({"shuffle": None}, "was 'runs', here it is 'stored'"),
        ({"shuffle": Shuffle(seed=3, lanes=4)}, "Shuffle.lanes was 8, here it is 4; leave it out"),
        ({"shuffle": Shuffle(seed=3, run=7)}, "Shuffle.run was 2, here it is 7; leave it out"),
        ({"remainder": "drop"}, "remainder= was 'keep', here it is 'drop'"),
    ],
)
def test_another_order_is_not_gone_on_with(numbered, where, options, message):
    with pytest.raises(OptionsError, match=message):
        load(numbered, start=where, **options)


def test_another_split_or_dataset_is_not_gone_on_with(numbered, where):
    with pytest.raises(
        OptionsError, match=r"the choice of examples was '41 .*', here it is '40 .*'; give take="
    ):
        loader.load(numbered([40]), batch_size=8, shuffle=Shuffle(seed=3), remainder="keep", start=where)
    order = {**where.order, "build_id": "ffffffff"}
    with pytest.raises(OptionsError, match="the build of the dataset was 'ffffffff', here it is '0123abcd'"):
        load(numbered, start=Position(1, 2, order))
    order = {**where.order, "dealing": "by hand"}
    with pytest.raises(OptionsError, match=r"'dealing' was 'by hand', .* go on with the release that wrote"):
        load(numbered, start=Position(1, 2, order))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([0, 3], r"\[0, 3\] is no position; it is a dict with epoch and step"),
        ({"epoch": 1}, "is no position"),
        ({"epoch": 1, "step": 2, "stop": 3}, "is no position"),
        ({"epoch": 1, "step": -2}, "Position.step=-2 must be at least 0"),
        ({"epoch": 1, "step": 2, "order": "runs"}, "order='runs' of a position must be a dict"),
        ({"epoch": 1, "step": 2, "order": {"seed": 1}}, "Position.order lacks build_id, examples, "),
    ],
)
def test_what_is_no_position_is_refused(found, message):
    with pytest.raises(OptionsError, match=message):
        Position.from_json(found)


def test_a_position_of_numbers_alone_is_json_too():
    assert Position.from_json(json.loads(json.dumps(Position(3, 4).to_json()))) == Position(3, 4)


# progress


def test_a_checkpoint_holds_the_position_and_the_order(numbered, where, tmp_path):
    progress = Progress()
    load(numbered, start=progress)
    assert progress.steps_per_epoch == 6
    progress.advance(6 + 2)
    path = tf.train.Checkpoint(progress=progress).save(str(tmp_path / "run"))
    other = Progress()
    tf.train.Checkpoint(progress=other).restore(path).assert_existing_objects_matched()
    assert other.position.to_json() == progress.position.to_json() == where.to_json()
    with pytest.raises(OptionsError, match=r"Shuffle\.seed was 3, here it is 9"):
        load(numbered, start=other, shuffle=Shuffle(seed=9))


def test_progress_cannot_be_counted_wrongly(numbered, tmp_path):
    progress = Progress()
    with pytest.raises(OptionsError, match=r"nothing begins at this progress yet; .* load\(start="):
        progress.advance()
    load(numbered, start=progress)
    with pytest.raises(OptionsError, match=r"advance\(\) in a tf\.function would count once only"):
        tf.function(progress.advance, autograph=False)()
    path = tf.train.Checkpoint(progress=progress).save(str(tmp_path / "run"))
    progress.advance(2)
    tf.train.Checkpoint(progress=progress).restore(path)
    with pytest.raises(
        OptionsError, match=r"set to epoch 0, step 0 after .* at epoch 0, step 2; restore first"
    ):
        progress.advance()


def test_a_folder_whose_last_checkpoint_is_gone_is_refused(tmp_path):
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-7"\n')
    with pytest.raises(InputError, match="names a checkpoint that is not there; put it back, or use another"):
        loader.Resume(tmp_path)
    with pytest.raises(OptionsError, match="every=0 must be at least 1"):
        loader.Resume(tmp_path / "new", every=0)


def test_what_stands_before_a_position_is_not_read(write_dataset, tmp_path):
    schema, example = Schema((Feature("x", "raw", "uint8", (1000,)),)), {"x": np.zeros(1000, np.uint8)}
    dataset = write_dataset(tmp_path, schema, {"train": [[example] * 20_000]})
    for shuffle in (None, Shuffle(seed=3)):
        read = {}
        for step in (0, 8_000):
            before = bytes_read()
            next(iter(loader.load(dataset, batch_size=2, shuffle=shuffle, start=Position(0, step))))
            read[step] = bytes_read() - before
        assert read[8_000] < read[0] + 2_000_000, "of 16 MB that stand before it"


def bytes_read():
    """Return what this process has read by system calls so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])
