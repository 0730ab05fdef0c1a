"""The plan of a worker: the steps of its run, what it records, and what the kind of files decides."""

from pathlib import Path

import pytest

from tests.errors import raises
from tfshards.loader import Position, Progress, Shuffle
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.order.epoch import order_seed
from tfshards.loader.order.plan import make_plan
from tfshards.loader.order.source import OpenSplit
from tfshards.schemas import Feature, Manifest, OptionsError, Schema, Shard, Split, Totals

LABELED = Schema((Feature("label", "label", "int64"),))
DIGEST = "sha256:" + "0" * 64
BATCH = 8
FULL, RUNS = Shuffle(how="full"), Shuffle(seed=5)


def source_of(num_examples, *, record_bytes=1024, compression="none", options=None):
    """Return a split of one shard, of which no file is read to plan."""
    num_bytes = num_examples * record_bytes
    shard = Shard("a", num_examples, num_bytes, num_bytes, DIGEST, DIGEST, "0" * 16, "")
    splits, totals = {"train": Split((shard,))}, Totals(num_examples, num_examples)
    manifest = Manifest(
        "d", "0123abcd", LABELED, splits, totals, options=options or {}, compression=compression
    )
    return OpenSplit(Path("d"), manifest, "train")


def plan_of(source, **options):
    return make_plan(LoadOptions(path="d", batch_size=BATCH, **options), source)


# 20 examples are two steps of 8
@pytest.mark.parametrize(
    ("num_examples", "options", "steps"),
    [
        (20, {}, 2),
        (20, {"epochs": 3}, 6),
        (20, {"epochs": 3, "start": Position(1, 1)}, 3),
        (20, {"epochs": None}, None),
        (20, {"epochs": None, "start": Position(2, 1)}, None),
        (7, {}, 0),
        (7, {"epochs": 3}, 0),
        (7, {"epochs": None}, 0),
        (7, {"epochs": None, "start": Position(4)}, 0),
    ],
)
def test_a_run_has_the_steps_of_its_epochs_from_its_start(num_examples, options, steps):
    assert plan_of(source_of(num_examples), **options).num_steps == steps


def test_a_finished_run_has_no_steps_left():
    progress = Progress()
    facts = plan_of(source_of(20), epochs=3, start=progress).facts
    assert plan_of(source_of(20), epochs=3, start=Position(3, 0, facts)).num_steps == 0


def test_the_order_is_recorded_only_of_runs_that_are_tracked_or_resumed():
    source = source_of(20)
    assert plan_of(source, shuffle=RUNS).facts is None
    assert plan_of(source, shuffle=RUNS, start=Position(0, 1)).facts is None
    facts = plan_of(source, shuffle=RUNS, start=Progress()).facts
    assert plan_of(source, shuffle=RUNS, start=Position(0, 1, facts)).facts == facts
    assert (facts["how"], facts["seed"]) == ("runs", 5)


@pytest.mark.parametrize(
    ("options", "is_next"),
    [
        ({"shuffle": RUNS}, True),
        ({"shuffle": RUNS, "epochs": 2}, False),
        ({"shuffle": RUNS, "start": Position()}, False),
        ({}, False),
    ],
)
def test_each_iteration_of_one_epoch_is_the_next_one_if_epochs_differ(options, is_next):
    assert plan_of(source_of(20), **options).is_next_epoch_each_time == is_next


def test_the_seed_of_the_order_is_that_of_the_dataset_and_the_shuffle():
    assert plan_of(source_of(20), shuffle=RUNS).order.seed == order_seed(5, "0123abcd")
    assert plan_of(source_of(20), shuffle=FULL).order.seed == order_seed(0, "0123abcd")


ADOPTED = {"source": "adopt"}


@pytest.mark.parametrize(
    ("options", "run"),
    [
        ({"source": "images"}, 1024),
        ({"source": "merge", "of": [{"source": "images"}, {"source": "images"}]}, 1024),
        (ADOPTED, 128),
        ({"source": "merge", "of": [{"source": "images"}, ADOPTED]}, 128),
        ({"source": "reshard", "of": ADOPTED}, 128),
    ],
)
def test_runs_are_shorter_in_files_that_were_written_elsewhere(options, run):
    source = source_of(10**6, options=options)
    assert plan_of(source, shuffle=RUNS).assignment.run == run


def test_lanes_of_compressed_shards_are_entered_at_their_first_rank():
    assert plan_of(source_of(10**6), shuffle=RUNS).order.is_entered
    assert not plan_of(source_of(10**6, compression="gzip"), shuffle=RUNS).order.is_entered


def test_single_records_of_compressed_shards_are_not_read():
    assert plan_of(source_of(40), shuffle=FULL).assignment.run == 1
    with raises(OptionsError, "compressed-random"):
        plan_of(source_of(40, compression="gzip"), shuffle=FULL)
