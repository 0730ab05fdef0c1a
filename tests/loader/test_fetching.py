"""What is fetched from a bucket by the order: the same batches, and a cache that has some of the shards."""

import threading
import time

import numpy as np
import pytest

from tests.errors import raises
from tests.storage import conftest
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader.reading import frames
from tfshards.schemas import Feature, InputError, OptionsError, Schema, read_manifest

server, proxy, bucket, upload = conftest.server, conftest.proxy, conftest.bucket, conftest.upload

PAYLOAD = Schema((Feature("number", "int", "int64"), Feature("payload", "bytes", "bytes")))
COUNT, SHARDS = 2000, 5
SHUFFLE = loader.Shuffle(seed=3, run=20, lanes=8)


@pytest.fixture(scope="module")
def dataset(write_dataset, tmp_path_factory):
    random = np.random.default_rng(0)
    examples = [{"number": i, "payload": random.bytes(900 + i % 200)} for i in range(COUNT)]
    path = tmp_path_factory.mktemp("fetched") / "data"
    return write_dataset(path, PAYLOAD, {"train": np.array_split(examples, SHARDS)})


@pytest.fixture
def remote(dataset, upload):
    return upload(dataset)


@pytest.fixture
def fetched(monkeypatch):
    """Return the bytes of each request."""
    made, view_range = [], frames.view_range

    def noted(path, start, end, version=None):
        made.append(end - start)
        return view_range(path, start, end, version)

    monkeypatch.setattr(frames, "view_range", noted)
    return made


def batches(path, batch_size=80, **options):
    options = {"shuffle": SHUFFLE, "select": ("number",), **options}
    return [batch[0].numpy().tolist() for batch in loader.load(path, batch_size=batch_size, **options)]


OPTIONS = {
    "epochs": {"epochs": 3, "start": loader.Position(1, 7)},
    "a worker": {"worker": loader.Worker(1, 2), "batch_size": 16, "remainder": "pad"},
    "the stored order": {"shuffle": None, "worker": loader.Worker(2, 3), "remainder": "pad", "epochs": 2},
    "a part": {"shuffle": loader.Shuffle(run=7, lanes=4), "take": loader.Part(1, 3, rest=True)},
    "keep": {"take": 1501, "remainder": "keep"},
}


@pytest.mark.parametrize("cache", ["", "500KB", "20MB"])
@pytest.mark.parametrize("row", mostly_nightly(OPTIONS, ["epochs", "a part"]))
def test_batches_are_those_of_local_files(dataset, remote, tmp_path, row, cache):
    cached = {"cache": f"disk:{tmp_path / 'near'}, {cache}"} if cache else {}
    assert batches(remote, **OPTIONS[row], **cached) == batches(dataset, **OPTIONS[row])


@pytest.mark.parametrize("copied", [0, 1, 3, 5])
def test_a_cache_copies_the_shards_that_fit_and_the_others_are_fetched(
    dataset, remote, tmp_path, fetched, copied
):
    sizes = [shard.num_bytes for shard in read_manifest(dataset).shards]
    cache = {"cache": f"disk:{tmp_path / 'near'}, {sum(sizes[:copied]) + 5}"} if copied else {}
    data = loader.load(remote, batch_size=80, shuffle=SHUFFLE, remainder="keep", **cache)
    assert len([*tmp_path.rglob("*.tfrecord-*")]) == copied
    for _ in range(2):
        fetched.clear()
        assert sum(len(batch["number"]) for batch in data) == COUNT
        assert sum(fetched) == sum(sizes[copied:])
    keys = [
        batch["number"].tolist() for batch in loader.batches(remote, batch_size=80, shuffle=SHUFFLE, **cache)
    ]
    assert keys == batches(dataset)


def test_iterators_at_the_same_time_and_abandoned_ones_agree(dataset, remote):
    options = {"batch_size": 80, "epochs": 2, "start": loader.Position(0, 0)}
    expected = batches(dataset, **options)
    data = loader.load(remote, shuffle=SHUFFLE, select=("number",), **options)
    assert [batch[0].numpy().tolist() for batch in data.take(3)] == expected[:3]
    for one, other, wanted in zip(data, data, expected, strict=True):
        assert one[0].numpy().tolist() == other[0].numpy().tolist() == wanted
    found = []
    threads = [threading.Thread(target=lambda: found.append(sum(1 for _ in data))) for _ in range(4)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0, end - time.monotonic()))
    assert found == [len(expected)] * 4


FAILING = """
import sys
from tfshards import loader
shuffle = loader.Shuffle(seed=3, run=20, lanes=8)
data = iter(loader.load(sys.argv[1], batch_size=32, shuffle=shuffle, cache=sys.argv[2]))
next(data)
raise ValueError("of the user")
"""


def test_a_program_that_fails_while_it_reads_ends(programs, dataset, tmp_path):
    done = programs.run(["-c", FAILING, dataset, f"disk:{tmp_path}, 500KB"], timeout=60)
    assert done.returncode == 1
    # TensorFlow logs the calls that the end has interrupted
    assert "ValueError: of the user" in done.stderr.splitlines()


def test_what_a_cache_cannot_do_is_refused(dataset, remote, tmp_path):
    with raises(InputError, "does not exist; create"):
        batches(dataset, cache=f"disk:{tmp_path}/no/such/folder, 5MB")
    with raises(OptionsError, "of the smallest shard of split 'train'"):
        batches(dataset, cache=f"disk:{tmp_path}, 20KB")
    with raises(OptionsError, "must be on a local disk", code="cache-needed"):
        batches(remote, shuffle=loader.Shuffle(how="full"), cache=f"disk:{tmp_path}, 500KB")
