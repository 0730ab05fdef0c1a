"""A compressed dataset gives the same batches as an uncompressed one, with any options."""

import itertools

import pytest

from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Position, Shuffle, Worker

from .conftest import TEXT_SIZES

pytestmark = pytest.mark.nightly

OPTIONS = [
    {},
    {"shuffle": Shuffle(seed=5, run=3), "epochs": 2},
    {"shuffle": Shuffle(seed=5, run=2), "epochs": 2, "start": Position(1, 2)},
    {"start": Position(0, 3)},
]


@pytest.mark.parametrize(
    ("num_workers", "options"), mostly_nightly(itertools.product([1, 2], OPTIONS), [(2, OPTIONS[1])]), ids=str
)
def test_gzip_and_plain_shards_deliver_the_same_examples_and_stored_order(texts, options, num_workers):
    together = []
    for index in range(num_workers):
        worker = Worker(index, num_workers)
        plain, packed = (
            [
                batch["number"].tolist()
                for batch in loader.load(
                    path, batch_size=4, worker=worker, remainder="keep", **options
                ).as_numpy_iterator()
            ]
            for path in texts.values()
        )
        # With shuffle, lanes of compressed shards start at different ranks, to decompress less.
        assert plain == packed or "shuffle" in options
        assert [len(batch) for batch in plain] == [len(batch) for batch in packed]
        together += itertools.chain.from_iterable(packed)
    if "start" not in options:
        assert sorted(together) == sorted([*range(sum(TEXT_SIZES))] * options.get("epochs", 1))
