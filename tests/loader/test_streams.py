"""Many short streams and groups keep the stored order, from any step.

The datasets of other tests are so small that each is one stream; these tests lower the limits instead.
"""

import itertools

import pytest

from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Position, Worker
from tfshards.loader.order import assignment as assign

pytestmark = pytest.mark.nightly

SIZES = [50, 0, 7, 3, 28]
COUNT = sum(SIZES)
# A record of these datasets has about 40 bytes.
LIMITS = [
    (1, 1, "a step a group, a group a stream"),
    (1, 2500, "a step a group, several groups a stream"),
    (1000, 2500, "several steps a group, several groups a stream"),
    (1 << 20, 1 << 20, "the epoch in one group"),
]


# batch size, number of workers, remainder, and the number after the last
BATCHES = [(32, 1, "drop", 64), (12, 1, "keep", COUNT), (32, 2, "pad", 96)]


@pytest.fixture
def _limits(request, monkeypatch):
    parsed, stream, _ = request.param
    monkeypatch.setattr(assign, "PARSED_BYTES", parsed)
    monkeypatch.setattr(assign, "STREAM_BYTES", stream)


def read(path, batch_size, num_workers, **options):
    """Return the numbers of all workers' batches in the order of the steps."""
    batches = []
    for index in range(num_workers):
        worker = Worker(index, num_workers)
        dataset = loader.load(path, batch_size=batch_size // num_workers, worker=worker, **options)
        batches.append([batch["number"].tolist() for batch in dataset.as_numpy_iterator()])
    steps = zip(*batches, strict=True)
    return [number for step in steps for batch in step for number in batch]


@pytest.mark.parametrize(
    ("_limits", "batches"),
    mostly_nightly(
        itertools.product(LIMITS, BATCHES),
        [(LIMITS[i], BATCHES[j]) for i, j in ((0, 1), (1, 2), (2, 0), (3, 1))],
    ),
    indirect=["_limits"],
)
def test_stored_order_is_kept_across_streams_and_groups(numbered, _limits, batches):
    batch_size, num_workers, remainder, last = batches
    numbers = read(numbered(SIZES), batch_size, num_workers, remainder=remainder)
    assert numbers == [number if number < COUNT else 0 for number in range(last)]


@pytest.mark.parametrize("_limits", LIMITS, ids=lambda row: row[-1], indirect=True)
@pytest.mark.usefixtures("_limits")
def test_stored_order_can_resume_inside_a_stream(numbered):
    start = Position(epoch=1, step=5)
    numbers = read(numbered(SIZES), 12, 1, remainder="keep", epochs=3, start=start)
    assert numbers == [*range(60, COUNT), *range(COUNT)]
