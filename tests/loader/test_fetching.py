"""Blocks that are fetched by the order: the same batches, bounded bytes, few requests, and no traces."""

import gc
import os
import resource
import shutil
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader.fetching import files
from tfshards.schemas import Feature, InputError, OptionsError, Schema, read_manifest

PAYLOAD = Schema((Feature("number", "int", "int64"), Feature("payload", "bytes", "bytes")))
COUNT, SHARDS = 2000, 5
# 2 MB in runs of 20 KB: about 100 blocks, of which 8 lanes read 8 at a time
SHUFFLE = loader.Shuffle(seed=3, run=20, lanes=8)


@pytest.fixture(scope="module")
def dataset(write_dataset, tmp_path_factory):
    return write_payloads(write_dataset, tmp_path_factory.mktemp("fetched") / "data", COUNT)


def write_payloads(write_dataset, folder, count):
    random = np.random.default_rng(0)
    examples = [{"number": i, "payload": random.bytes(900 + i % 200)} for i in range(count)]
    return write_dataset(folder, PAYLOAD, {"train": np.array_split(examples, SHARDS)})


@pytest.fixture
def requests(monkeypatch):
    """Return the ranges that are requested: path, start and end."""
    made = []
    read_range = files.view_range

    def noted(path, start, end, version=None):
        made.append((path.name, start, end))
        return read_range(path, start, end, version)

    monkeypatch.setattr(files, "view_range", noted)
    return made


def num_bytes(dataset):
    return sum(shard.num_bytes for shard in read_manifest(dataset).shards)


def batches(path, batch_size=80, **options):
    options = {"shuffle": SHUFFLE, "select": ("number",), **options}
    return [batch[0].numpy().tolist() for batch in loader.load(path, batch_size=batch_size, **options)]


def disk(folder, num_bytes):
    return f"disk:{folder}, {num_bytes}"


OPTIONS = [
    {},
    {"epochs": 3, "start": loader.Position(1, 7)},
    {"worker": loader.Worker(1, 2), "batch_size": 16, "remainder": "pad"},
    {"take": 1501, "remainder": "keep"},
    {"shuffle": None, "worker": loader.Worker(2, 3), "remainder": "pad", "epochs": 2},
    {"shuffle": loader.Shuffle(run=7, lanes=4), "take": loader.Part(1, 3, rest=True)},
]


@pytest.mark.parametrize("options", mostly_nightly(OPTIONS, [OPTIONS[1], OPTIONS[-1]]), ids=str)
def test_batches_are_those_without_a_cache(dataset, tmp_path, options, requests, monkeypatch):
    expected = batches(dataset, **options)
    # threads that read at the same time do not change the order
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    # of stored order, larger blocks are read at the same time
    size = "1.5MB" if options.get("shuffle", SHUFFLE) else "2.5MB"
    assert batches(dataset, cache=disk(tmp_path / "near", size), **options) == expected
    assert expected
    assert requests


@pytest.mark.parametrize(("size", "most"), [("750KB", 1.25), ("2.25MB", 1)])
def test_the_first_epoch_fetches_little_twice(dataset, tmp_path, requests, size, most):
    batches(dataset, remainder="keep", cache=disk(tmp_path / "near", size))
    assert num_bytes(dataset) <= sum(end - start for _, start, end in requests) <= most * num_bytes(dataset)


def test_a_cache_of_the_whole_split_fetches_it_once_in_all_epochs_and_runs(dataset, tmp_path, requests):
    for _ in range(2):
        batches(dataset, epochs=2, cache=disk(tmp_path / "near", "20MB"))
        gc.collect()
    assert sum(end - start for _, start, end in requests) == num_bytes(dataset)


def disk_usage(folder):
    found = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                found += os.stat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return found


# of one epoch, the second iteration looks like the pass that is expected after the first one
@pytest.mark.parametrize(("batch_size", "epochs"), mostly_nightly([(80, 2), (200, 1)], [(200, 1)]))
def test_two_iterators_and_an_abandoned_one_agree(dataset, tmp_path, batch_size, epochs):
    options = {"batch_size": batch_size, "epochs": epochs, "start": loader.Position(0, 0)}
    expected = batches(dataset, **options)
    data = loader.load(dataset, shuffle=SHUFFLE, select=("number",), cache=disk(tmp_path, "500KB"), **options)
    assert [batch[0].numpy().tolist() for batch in data.take(3)] == expected[:3]
    for one, other, wanted in zip(data, data, expected, strict=True):
        assert one[0].numpy().tolist() == other[0].numpy().tolist() == wanted
    slow = data.skip(5)
    assert [batch[0].numpy().tolist() for batch in slow] == expected[5:]


def test_a_flipped_byte_in_a_left_block_is_not_delivered(dataset, tmp_path, requests):
    expected = batches(dataset, cache=disk(tmp_path, "20MB"))
    gc.collect()
    left = sorted(tmp_path.rglob("*@*"))
    flipped = bytearray(left[3].read_bytes())
    flipped[500] ^= 4
    left[3].write_bytes(flipped)
    left[5].write_bytes(left[5].read_bytes()[:-1])
    requests.clear()
    assert batches(dataset, cache=disk(tmp_path, "20MB")) == expected
    assert len(requests) == 2


def test_bytes_that_are_damaged_on_the_way_are_fetched_again(dataset, tmp_path, monkeypatch):
    read_range, seen = files.view_range, set()

    def damaging(path, start, end, version=None):
        data = read_range(path, start, end, version)
        if (path, start) in seen:
            return data
        seen.add((path, start))
        return data[:40] + bytes([data[40] ^ 1]) + data[41:]

    expected = batches(dataset)
    monkeypatch.setattr(files, "view_range", damaging)
    assert batches(dataset, cache=disk(tmp_path, "20MB")) == expected
    monkeypatch.setattr(files, "view_range", None)
    assert batches(dataset, cache=disk(tmp_path, "20MB")) == expected


def test_shards_that_cannot_be_read_end_the_run_and_are_read_again_when_they_are_back(dataset, tmp_path):
    far = shutil.copytree(dataset, tmp_path / "far")
    data = loader.load(far, batch_size=32, shuffle=SHUFFLE, cache=disk(tmp_path / "near", "500KB"))
    shards = sorted(far.glob("*/*.tfrecord-*"))
    for shard in shards:
        shard.rename(tmp_path / shard.name)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"tfrecord-0000\d-of-00005 cannot be read: "):
        list(data)
    for shard in shards:
        (tmp_path / shard.name).rename(shard)
    assert sum(1 for _ in data) == COUNT // 32


@pytest.mark.parametrize("most", [0, 4096], ids=["nothing", "a part of a block"])
def test_a_cache_that_cannot_be_written_ends_the_run_with_its_error(dataset, tmp_path, most):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    data = loader.load(dataset, batch_size=80, shuffle=SHUFFLE, cache=disk(tmp_path, "20MB"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        message = r"shard .*tfrecord-0000\d-of-00005 cannot be read: .*File too large"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            list(data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_pipelines_of_one_cache_divide_its_bytes_and_what_ended_ones_have_left(dataset, tmp_path):
    bound = 1_000_000
    options = {"batch_size": 32, "shuffle": SHUFFLE, "cache": disk(tmp_path, bound), "epochs": 2}
    first = loader.load(dataset, **options)
    seen = [disk_usage(tmp_path) for _ in first]
    del first
    gc.collect()
    assert disk_usage(tmp_path) > bound // 2, "for the next run"
    both = [loader.load(dataset, **options | {"worker": loader.Worker(index, 2)}) for index in range(2)]
    seen += [disk_usage(tmp_path) for _ in zip(*both, strict=True)]
    assert max(seen) <= bound


READING = """
import sys, time
from tfshards import loader
shuffle = loader.Shuffle(seed=3, run=20, lanes=8)
data = loader.load(sys.argv[1], batch_size=32, shuffle=shuffle, cache=sys.argv[2])
for step, _ in enumerate(data):
    print(step, flush=True)
    # after 20 steps the other process reads, however long that takes
    time.sleep(0.01 if step < 20 else 1)
"""


@pytest.mark.processes
def test_a_killed_reader_leaves_a_sound_cache_and_others_use_it(programs, dataset, tmp_path, requests):
    cache = disk(tmp_path, "20MB")
    reading, writing = os.pipe()
    with open(writing, "wb") as stdout:
        reader = programs.start(["-c", READING, dataset, cache], stdout=stdout, stderr=sys.__stderr__)
    try:
        with open(reading) as steps:
            for _ in range(20):
                assert steps.readline()
            # while the other process runs, its blocks are linked
            first = batches(dataset, cache=cache)
        assert sum(end - start for _, start, end in requests) < 0.9 * num_bytes(dataset)
    finally:
        reader.kill()
        reader.wait()
    unfinished = next(tmp_path.rglob(".lock")).with_name(".0123.tmp")
    unfinished.write_bytes(b"killed while it wrote")
    requests.clear()
    gc.collect()
    assert batches(dataset, cache=cache) == first
    assert not requests
    assert not unfinished.exists()
    assert len(list(tmp_path.rglob(".lock"))) == 1


FAILING = """
import sys
from tfshards import loader
shuffle = loader.Shuffle(seed=3, run=20, lanes=8)
data = iter(loader.load(sys.argv[1], batch_size=32, shuffle=shuffle, cache=sys.argv[2]))
next(data)
raise ValueError("of the user")
"""


def test_a_program_that_fails_while_it_reads_ends(programs, dataset, tmp_path):
    done = programs.run(["-c", FAILING, dataset, disk(tmp_path, "500KB")], timeout=60)
    assert done.returncode == 1
    # TensorFlow logs the calls that the end has interrupted
    assert "ValueError: of the user" in done.stderr.splitlines()


@pytest.mark.parametrize(
    ("cache", "error", "message"),
    [
        ("disk:{0}, 20KB", OptionsError, "cache-too-small"),
        ("disk:{0}/no/such/folder, 5MB", InputError, "cache-parent-missing"),
    ],
)
def test_a_cache_that_cannot_be_used_is_refused(dataset, tmp_path, cache, error, message):
    with raises(error, message):
        loader.load(dataset, batch_size=32, shuffle=SHUFFLE, cache=cache.format(tmp_path))


def test_single_examples_are_read_from_a_cache_that_holds_all_or_refused(dataset, tmp_path):
    full = loader.Shuffle(how="full")
    with raises(OptionsError, "needs-local-shards"):
        batches(dataset, shuffle=full, cache=disk(tmp_path, "1.5MB"))
    found = batches(dataset, shuffle=full, cache=disk(tmp_path / "near", "5MB"))
    assert found == batches(dataset, shuffle=full)
    assert len(list((tmp_path / "near").rglob("*.tfrecord-*"))) == SHARDS


def test_many_threads_that_ask_do_not_wait_for_each_other(dataset, tmp_path):
    data = loader.load(
        dataset, batch_size=32, shuffle=SHUFFLE, select=("number",), cache=disk(tmp_path, "500KB")
    )
    found = []
    threads = [threading.Thread(target=lambda: found.append(sum(1 for _ in data))) for _ in range(4)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 30
    for thread in threads:
        thread.join(max(0, end - time.monotonic()))
    assert found == [COUNT // 32] * 4
