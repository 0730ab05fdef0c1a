"""Disjoint, complete and even for every count of shards from 1 to 9 and of workers from 1 to 8."""

import itertools

import numpy as np
import pytest

from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Shuffle, Worker
from tfshards.loader.order.assignment import num_steps

pytestmark = pytest.mark.nightly

SHARDS, WORKERS = range(1, 10), range(1, 9)


ORDERS = (None, Shuffle(how="full", seed=1), Shuffle(seed=2), Shuffle(seed=3, run=2, lanes=1))
REMAINDERS = ("drop", "pad", "keep")


def sizes_of(count, num_shards):
    """Return the sizes of shards: uneven, and some of them 0 if there are few examples."""
    cuts = np.random.default_rng([count, num_shards]).integers(0, count + 1, num_shards - 1)
    return np.diff([0, *np.sort(cuts), count])


OFTEN = [(9, 1), (4, 2), (7, 3)]


@pytest.mark.filterwarnings("ignore:split 'train' has .* leaves no steps")
@pytest.mark.parametrize(
    ("num_shards", "num_workers"), mostly_nightly(itertools.product(SHARDS, WORKERS), OFTEN)
)
def test_all_workers_read_all_files_once(numbered, num_shards, num_workers):
    # each of the other options occurs with different counts of shards and workers
    pick = num_shards + num_workers * (num_workers + 1) // 2
    count, batch_size = (31, 23, 12)[pick % 3], (1, 2, 3)[num_workers % 3]
    remainder, order = REMAINDERS[pick // 3 % 3], (None, ORDERS[1], ORDERS[2])[num_shards % 3]
    found = []
    for index in range(num_workers):
        dataset = loader.load(
            numbered(sizes_of(count, num_shards).tolist()),
            batch_size=batch_size,
            worker=Worker(index, num_workers),
            shuffle=order,
            remainder=remainder,
        )
        read = list(dataset.as_numpy_iterator())
        assert len(read) == num_steps(count, num_workers * batch_size, remainder)
        for batch in read:
            assert len(batch["number"]) == batch_size or remainder == "keep"
            weights = batch.get("sample_weight", np.ones(len(batch["number"])))
            found += batch["number"][weights > 0].tolist()
    assert len(set(found)) == len(found)
    dropped = count % (num_workers * batch_size) if remainder == "drop" else 0
    assert len(found) == count - dropped
