"""Datasets in an object store give the batches of local copies; caches on disk; what is wrong is named."""

import errno
import itertools
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tests.loader.conftest import frames_of
from tests.storage import conftest
from tests.storage.faults import Answer, Cut, Delay, LoseAnswer, Shorten, Stall
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.schemas import Feature, FormatError, InputError, OptionsError, Schema, read_manifest
from tfshards.schemas.frames import header_of
from tfshards.schemas.storage import RemotePath, any_path, stores

server, proxy, bucket, upload = conftest.server, conftest.proxy, conftest.bucket, conftest.upload

NUMBER, LABEL = Feature("number", "int", "int64"), Feature("label", "label", "int64")
SCHEMA = Schema((NUMBER, Feature("payload", "bytes", "bytes"), LABEL), ("cat", "dog"))
COUNT, SHARDS = 1200, 4
SHUFFLE = loader.Shuffle(seed=3, run=30, lanes=4)


@pytest.fixture(scope="module")
def local(write_dataset, tmp_path_factory):
    random = np.random.default_rng(0)
    examples = [{"number": i, "payload": random.bytes(900), "label": i % 2} for i in range(COUNT)]
    folder = tmp_path_factory.mktemp("local") / "data"
    return write_dataset(folder, SCHEMA, {"train": np.array_split(examples, SHARDS)})


@pytest.fixture
def remote(local, upload, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return upload(local)


def batches(path, batch_size=20, **options):
    options = {"shuffle": SHUFFLE, "select": ("number", "payload"), **options}
    data = loader.load(path, batch_size=batch_size, **options)
    return [(batch[0].numpy().tolist(), batch[1].numpy().tolist()) for batch in data]


def change(remote, shard, change_bytes):
    path = any_path(remote) / shard
    data = bytearray(path.read_bytes())
    change_bytes(data)
    path.write_bytes(bytes(data))


OPTIONS = [
    {},
    {"epochs": 3, "start": loader.Position(1, 11)},
    {"worker": loader.Worker(1, 2), "batch_size": 10, "remainder": "pad", "take": 777},
    {"shuffle": None, "remainder": "keep", "batch_size": 32},
]


@pytest.fixture
def fetched(monkeypatch):
    """Return the bytes of each request, which names the version of the object."""
    made, read_range = [], RemotePath.read_range

    def noted(path, start, end, version):
        assert version
        # apart from the last bytes of each shard, which are compared when it is opened
        if end - start > 8:
            made.append(end - start)
        return read_range(path, start, end, version)

    monkeypatch.setattr(RemotePath, "read_range", noted)
    return made


@pytest.mark.parametrize("cache", ["", "500KB"])
@pytest.mark.parametrize("options", mostly_nightly(OPTIONS, OPTIONS[1:3]), ids=str)
def test_batches_are_those_of_a_local_copy_and_no_byte_is_fetched_twice(
    local, remote, options, fetched, tmp_path, cache
):
    cached = {"cache": f"disk:{tmp_path / 'near'}, {cache}"} if cache else {}
    found = batches(remote, **options, **cached)
    assert found == batches(local, **options)
    epochs = options.get("epochs", 1)
    assert sum(fetched) <= epochs * sum(shard.num_bytes for shard in read_manifest(local).shards) * 1.01


def used(folder):
    """Return the bytes of records that a cache has on its disk."""
    files = [path for path in folder.rglob("*.tfrecord-*") if path.is_file()]
    return sum(path.stat().st_blocks for path in files) * 512


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 2])
def test_a_cache_keeps_what_came_first_and_never_fetches_more(local, remote, tmp_path, fetched, part):
    whole = sum(shard.num_bytes for shard in read_manifest(local).shards)
    near, traffic = tmp_path / "near", []
    cache = {"cache": f"disk:{near}, {int(part * whole)}"} if part else {}
    data = loader.load(remote, batch_size=80, shuffle=SHUFFLE, remainder="keep", **cache)
    assert not used(near), "nothing is copied before the first step"
    for _ in range(3):
        fetched.clear()
        assert sum(len(batch["number"]) for batch in data) == COUNT
        traffic.append(sum(fetched))
    assert traffic[0] == whole
    # the last record that is kept may not fit
    assert max(traffic[1:]) <= max(0, whole - part * whole + 2000)
    # a file system counts whole blocks
    assert used(near) <= part * whole * 2
    fetched.clear()
    assert batches(remote, **cache) == batches(local)
    assert bool(fetched) == (part < 1), "the next run uses what this one left"


def test_a_full_disk_ends_caching_with_a_warning(local, remote, tmp_path, fetched, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    cached = batches(remote, cache=f"disk:{tmp_path / 'near'}, 20MB", epochs=2)
    assert cached == batches(local, epochs=2)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        f"nothing more is cached: {os.strerror(errno.ENOSPC)}"
    ]


def test_what_is_damaged_in_the_cache_is_fetched_again(local, remote, tmp_path, fetched):
    cache = f"disk:{tmp_path / 'near'}, 20MB"
    batches(remote, cache=cache)
    for path in (tmp_path / "near").rglob("*.tfrecord-*"):
        data = bytearray(path.read_bytes())
        # a length that has its checksum, but would take all memory
        data[:12] = header_of(1 << 40)
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    fetched.clear()
    assert batches(remote, cache=cache) == batches(local)
    assert sum(fetched) > 0
    for path in (tmp_path / "near").rglob("*.tfrecord-*"):
        assert not path.read_bytes().startswith(header_of(1 << 40)), "it is kept again"


READING = """
import sys, time
from tfshards import loader
shuffle = loader.Shuffle(seed=3, run=20, lanes=8)
data = loader.load(sys.argv[1], batch_size=80, shuffle=shuffle, cache=sys.argv[2])
for step, _ in enumerate(data):
    print(step, flush=True)
    time.sleep(0.01 if step < 10 else 60)
"""


@pytest.mark.processes
def test_a_killed_reader_leaves_a_sound_cache_and_others_use_it(programs, local, tmp_path):
    cache = f"disk:{tmp_path}, 20MB"
    reading, writing = os.pipe()
    with open(writing, "wb") as stdout:
        reader = programs.start(["-c", READING, local, cache], stdout=stdout, stderr=sys.__stderr__)
    try:
        with open(reading) as steps:
            for _ in range(10):
                assert steps.readline()
            # while the other process runs
            assert batches(local, cache=cache) == batches(local)
    finally:
        reader.kill()
        reader.wait()
    assert used(tmp_path)
    assert batches(local, cache=cache) == batches(local)


def test_single_examples_are_read_from_copies(local, remote, tmp_path):
    cache = f"disk:{tmp_path / 'near'}"
    for options in ({"shuffle": loader.Shuffle(how="full")}, {"classes": ["dog"]}):
        with raises(OptionsError, "must be on a local disk", code="cache-needed"):
            batches(remote, **options)
        assert batches(remote, cache=cache, **options) == batches(local, **options)


def test_a_compressed_dataset_is_read_from_copies(write_dataset, upload, tmp_path):
    examples = [{"number": i, "payload": bytes(30), "label": 0} for i in range(200)]
    local = write_dataset(tmp_path / "gz", SCHEMA, {"train": np.array_split(examples, 3)}, compression="gzip")
    remote = upload(local)
    for path in (local, remote):
        for bound in ({}, {"cache": f"disk:{tmp_path / 'near'}, 1GB"}):
            with raises(InputError, "compressed shards are unpacked", code="cache-needed"):
                batches(path, shuffle=loader.Shuffle(), **bound)
    cache = f"disk:{tmp_path / 'near'}"
    for options in ({}, {"shuffle": loader.Shuffle(how="full")}, {"classes": ["cat"]}):
        assert batches(remote, cache=cache, **options) == batches(local, cache=cache, **options)


def flipped(frame):
    return frame[:300] + bytes([frame[300] ^ 1]) + frame[301:]


def lengthened(frame):
    """Return a frame that states a length that has its checksum, but would take all memory."""
    header = header_of(1 << 40)
    return header + frame[len(header) :]


@pytest.mark.parametrize("damaged", [flipped, lengthened])
def test_a_damaged_record_is_named_as_in_a_local_file_or_skipped(local, remote, tmp_path, damaged):
    shard = read_manifest(local).shards[2].path
    start, end = frames_of(local / shard).offsets[100:102].tolist()

    def spoil(data):
        data[start:end] = damaged(bytes(data[start:end]))

    change(remote, shard, spoil)
    for cache in ({}, {"cache": f"disk:{tmp_path / 'near'}, 20MB"}):
        data = loader.load(remote, batch_size=20, shuffle=None, **cache)
        seen = []
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            seen.extend(int(batch["number"][0]) for batch in data)
        assert f"{shard} record 100 at offset {start}: " in str(error.value)
        assert remote in str(error.value)
        assert "verify DATASET --repair" in str(error.value)
        assert seen == list(range(0, 20 * len(seen), 20))
        skipped = {"on_damage": "skip", "remainder": "pad", **cache}
        padded = [batch["sample_weight"].numpy() for batch in loader.load(remote, batch_size=20, **skipped)]
        assert np.flatnonzero(np.concatenate(padded) == 0).tolist() == [2 * COUNT // SHARDS + 100]


@pytest.mark.parametrize("is_removed", [False, True])
def test_an_object_that_is_replaced_or_removed_while_it_is_read_is_reported(local, remote, is_removed):
    data = loader.load(remote, batch_size=20, shuffle=None)
    iterator = iter(data)
    next(iterator)
    for shard in read_manifest(local).shards:
        path = any_path(remote) / shard.path
        if is_removed:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[::-1])
    message = "there is no such object" if is_removed else "was replaced"
    match = rf"s3://(.|\n)*tfrecord-0000\d-of-00004: cannot be read: {message}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        # what was fetched ahead may be all of the epoch
        list(itertools.chain(iterator, data))


def test_a_shard_of_another_build_is_refused_before_the_first_step(local, remote):
    shards = read_manifest(local).shards
    change(remote, shards[0].path, lambda data: data.__setitem__(-1, data[-1] ^ 1))
    (any_path(remote) / shards[1].path).unlink()
    with pytest.raises(FormatError) as error:
        batches(remote)
    assert f"{shards[0].path}: ends with the bytes" in str(error.value)
    assert f"{shards[1].path}: cannot be read: there is no such object" in str(error.value)
    assert "tfshards verify DATASET --repair" in str(error.value)


FAULTS = {
    "is cut": Cut(20_000),
    "answers 503": Answer(503, "SlowDown"),
    "answers 500": Answer(500, "InternalError"),
    "is truncated": Shorten(20_000),
    "stalls": Stall(20_000),
    "is lost": LoseAnswer(),
    "is late": Delay(0.1),
}


@pytest.fixture
def impatient(monkeypatch):
    """Let clients wait for a second rather than for fifteen, and give up after three attempts."""
    backoff = {"init_backoff": timedelta(milliseconds=20), "max_backoff": timedelta(seconds=1), "base": 2}
    retries = {"max_retries": 3, "retry_timeout": timedelta(seconds=20), "backoff": backoff}
    monkeypatch.setattr(stores, "_RETRIES", retries)
    monkeypatch.setattr(stores, "_CLIENT", {"connect_timeout": "5s", "read_timeout": "1s", "timeout": "1h"})
    stores._store.cache_clear()
    yield
    stores._store.cache_clear()


@pytest.mark.parametrize("what", mostly_nightly(FAULTS, ["is cut", "answers 503"]))
@pytest.mark.parametrize("size", mostly_nightly(["", "500KB", "50MB"], ["500KB"]))
def test_a_store_that_fails_changes_no_batch(local, impatient, proxy, remote, tmp_path, what, size):
    options = {"shuffle": SHUFFLE, "select": ("number", "payload"), "epochs": 2}
    cache = {"cache": f"disk:{tmp_path / 'near'}, {size}"} if size else {}
    expected, failed = batches(local, **options), []
    for rate in (0.02, 0.1, 0.6):
        proxy.clear()
        proxy.add(FAULTS[what], "^get .*tfrecord", rate=rate, seed=1)
        delivered, error = [], None
        try:
            for number, payload in loader.load(remote, batch_size=20, **options, **cache):
                delivered.append((number.numpy().tolist(), payload.numpy().tolist()))
        except (tf.errors.InvalidArgumentError, FormatError, InputError) as caught:
            error = str(caught)
        assert remote in error if error else len(delivered) == len(expected)
        assert delivered == expected[: len(delivered)]
        failed += [request for request in proxy.requests if request.fault]
    assert failed or what == "is late"
    # the store is sound again: the same cache gives everything
    proxy.clear()
    assert batches(remote, **options, **cache) == expected


# ``cache=``: copies that are complete, made once, and read instead of the files of the dataset


COPIED, NUM_COPIED_SHARDS = 600, 3


PAYLOAD = Schema((Feature("number", "int", "int64"), Feature("payload", "bytes", "bytes")))


@pytest.fixture
def dataset(write_dataset, tmp_path):
    random = np.random.default_rng(0)
    examples = [{"number": i, "payload": random.bytes(2000)} for i in range(COPIED)]
    return write_dataset(tmp_path / "slow", PAYLOAD, {"train": np.array_split(examples, NUM_COPIED_SHARDS)})


def numbers(path, **options):
    data = loader.load(path, batch_size=50, select=("number",), shuffle=loader.Shuffle(seed=3), **options)
    return np.concatenate([batch[0] for batch in data]).tolist()


def shards_of(path):
    return sorted(path.glob("*/*.tfrecord-*"))


def copies(disk):
    return sorted(path for path in disk.rglob("*.tfrecord-*") if path.is_file())


def test_a_later_run_finds_the_copies_and_replaces_damaged_ones(write_dataset, dataset, tmp_path):
    cache = f"disk:{tmp_path / 'near'}"
    expected = numbers(dataset, cache=cache)
    made = copies(tmp_path / "near")
    assert [path.read_bytes() for path in made] == [shard.read_bytes() for shard in shards_of(dataset)]
    before = [path.stat() for path in made]
    # of the same size, as another process may have left it
    flipped = bytearray(made[1].read_bytes())
    flipped[1000] ^= 1
    made[1].write_bytes(flipped)
    (made[0].parent / f".{made[0].name}.0123.tmp").write_bytes(b"killed in between")
    assert numbers(dataset, cache=cache) == expected
    assert copies(tmp_path / "near") == made
    assert made[1].read_bytes() == shards_of(dataset)[1].read_bytes()
    kept = [path.stat() for path in made]
    assert [kept[i].st_ino == before[i].st_ino for i in range(NUM_COPIED_SHARDS)] == [True, False, True]
    # another build, whose shards have the same names and sizes
    others = [{"number": i, "payload": bytes(2000)} for i in range(COPIED)]
    other = write_dataset(
        tmp_path / "other" / "slow", PAYLOAD, {"train": np.array_split(others, NUM_COPIED_SHARDS)}
    )
    data = loader.load(other, batch_size=50, select=("payload",), shuffle=None, cache=cache)
    assert {each for (batch,) in data.as_numpy_iterator() for each in batch} == {bytes(2000)}


def test_a_damaged_shard_raises_before_the_first_step_and_is_never_copied(dataset, tmp_path):
    path = shards_of(dataset)[1]
    damaged = bytearray(path.read_bytes())
    damaged[1000] ^= 1
    path.write_bytes(damaged)
    cache = f"disk:{tmp_path / 'near'}"
    with pytest.raises(FormatError, match=rf"{path.name}: its digest differs from the manifest"):
        loader.load(dataset, batch_size=50, cache=cache)
    data = loader.load(dataset, batch_size=50, remainder="pad", on_damage="skip", cache=cache)
    found = [batch["number"][batch["sample_weight"] > 0] for batch in data]
    assert len(np.concatenate(found)) == COPIED - 1
    assert len(copies(tmp_path / "near")) == NUM_COPIED_SHARDS - 1


PROGRAM = """
import sys
from tfshards import loader
print("copying", flush=True)
data = loader.load(sys.argv[1], batch_size=50, cache=sys.argv[2])
print(sum(int(batch["number"].numpy().sum()) for batch in data))
"""


@pytest.mark.processes
def test_two_processes_make_one_copy_and_a_killed_process_leaves_nothing(programs, dataset, tmp_path):
    near = tmp_path / "near"
    command = ["-c", PROGRAM, dataset, f"disk:{near}"]
    # what a killed process leaves of a copy
    numbers(dataset, cache=f"disk:{near}")
    first, *_ = copies(near)
    first.rename(first.with_name(f".{first.name}.0123.tmp"))
    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(lambda _: programs.run(command, timeout=120), range(2)))
    for ended in both:
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.split()[-1] == str(sum(range(COPIED)))
    assert len(copies(near)) == NUM_COPIED_SHARDS
