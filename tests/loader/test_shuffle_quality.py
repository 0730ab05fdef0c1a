"""The default shuffle is as computed, and does not repeat batches; benchmarks/shuffle.py compares it."""

import importlib.util
from pathlib import Path

import numpy as np

from tfshards import loader
from tfshards.loader import Shuffle, Worker
from tfshards.loader.order.assignment import Stored, assign
from tfshards.loader.order.epoch import RunOrder, order_seed

from .epochs import members_by_position, step_intervals

PATH = Path(__file__).parents[2] / "benchmarks" / "quality.py"
SPEC = importlib.util.spec_from_file_location("quality", PATH)
quality = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(quality)

SHARDS, BATCH_SIZE, EPOCHS = 16, 64, 3
COUNT = SHARDS * 512


def arithmetic(count, shuffle, record_bytes):
    """Return the orders of epochs as computed by the arithmetic of the loader."""
    stored = Stored(record_bytes, SHARDS)
    assignment = assign(
        count, stored, batch_size=BATCH_SIZE, worker=Worker(), remainder="keep", shuffle=shuffle
    )
    seed = order_seed(shuffle.seed, "0123abcd")
    order = RunOrder(
        num_positions=count, run=assignment.run, seed=seed, lanes=assignment.lanes, is_entered=True
    )
    steps = [step_intervals(assignment, step) for step in range(assignment.num_steps)]
    positions = [position for step in steps for start, n in step for position in range(start, start + n)]
    return [members_by_position(order, epoch)[positions] for epoch in range(EPOCHS)]


def test_the_delivered_order_is_that_of_the_arithmetic(numbered):
    sizes = [9, 0, 14, 7, 170]
    read = loader.load(
        numbered(sizes), batch_size=BATCH_SIZE, shuffle=Shuffle(seed=3), remainder="keep", epochs=EPOCHS
    )
    delivered = np.concatenate([batch["number"] for batch in read.as_numpy_iterator()])
    # records of one number have about 40 bytes; the run is the longest for a split of this size
    assert delivered.tolist() == np.concatenate(arithmetic(sum(sizes), Shuffle(seed=3), 40)).tolist()


def test_lanes_of_several_whole_runs_are_out_of_phase():
    # without random starts of lanes, pairs of examples would repeat 30 times as often as by chance
    first, second, _ = arithmetic(BATCH_SIZE * 4 * 40, Shuffle(seed=3, run=40), 40)
    assert quality.meet_again(first, second, BATCH_SIZE) < 1.5
