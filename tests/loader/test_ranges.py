"""Workers read ranges of records, not files, so any number of shards serves any number of workers."""

import itertools
import shutil

import numpy as np
import pytest

from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Shuffle, Worker
from tfshards.schemas import read_manifest
from tfshards.schemas.index import index_path, parse_index

pytestmark = pytest.mark.nightly


def numbers_of(dataset):
    """Return the numbers of each batch."""
    return [numbers.tolist() for (numbers,) in dataset.as_numpy_iterator()]


def share(path, index, count, **options):
    worker = Worker(index, count)
    # Without padding, since each worker would read the first record of the split for it.
    return loader.load(path, batch_size=2, worker=worker, remainder="drop", select=("number",), **options)


def spoil(root, kept):
    """Overwrite, in place, the length, data and checksums of each example that is not in ``kept``."""
    number = 0
    for shard in read_manifest(root).splits["train"].shards:
        index = parse_index((root / index_path(shard.path)).read_text(), shard.path)
        data = np.fromfile(root / shard.path, np.uint8)
        for offset, length in zip(index.offsets.tolist(), index.lengths.tolist(), strict=True):
            if number not in kept:
                data[offset : offset + length] ^= 0xA5
            number += 1
        data.tofile(root / shard.path)


RANGES = [
    ([61], 8, None, "one shard for eight workers"),
    ([9, 9, 9, 9, 9, 8, 8], 3, Shuffle(seed=3), "seven shards for three workers"),
]


@pytest.mark.parametrize(("sizes", "num_workers", "shuffle", "reason"), mostly_nightly(RANGES, RANGES[1:]))
def test_no_worker_reads_the_records_of_another(numbered, tmp_path, sizes, num_workers, shuffle, reason):
    wanted = [numbers_of(share(numbered(sizes), i, num_workers, shuffle=shuffle)) for i in range(num_workers)]
    steps = sum(sizes) // (2 * num_workers)
    assert {len(batches) for batches in wanted} == {steps}, reason
    assert len(set(itertools.chain.from_iterable(itertools.chain(*wanted)))) == steps * 2 * num_workers
    for index in (0, num_workers - 1):
        root = tmp_path / str(index)
        shutil.copytree(numbered(sizes), root)
        # After load(), which compares the shards with the manifest, only the worker's own records are read.
        dataset = share(root, index, num_workers, shuffle=shuffle)
        spoil(root, set(itertools.chain(*wanted[index])))
        assert numbers_of(dataset) == wanted[index], reason
