"""Blocks that are fetched by the order: the same batches, bounded bytes, few requests, and no traces."""

import fcntl
import functools
import gc
import itertools
import os
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.errors import fault, raises
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader.fetching import fetcher, files
from tfshards.loader.fetching import folder as block_folder
from tfshards.loader.fetching.files import sound_records
from tfshards.loader.fetching.folder import BlockFolder
from tfshards.loader.fetching.schedule import NEVER, Kept
from tfshards.loader.order import assignment
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


def blocks_in(folder):
    return {path.name for path in folder.rglob("*@*")}


OPTIONS = [
    {},
    {"epochs": 3, "start": loader.Position(1, 7)},
    {"worker": loader.Worker(1, 2), "batch_size": 16, "remainder": "pad"},
    {"take": 1501, "remainder": "keep"},
    {"shuffle": None},
    {"shuffle": None, "worker": loader.Worker(2, 3), "remainder": "pad", "epochs": 2},
    {"shuffle": None, "start": loader.Position(0, 11), "batch_size": 5},
    {"shuffle": loader.Shuffle(run=7, lanes=4), "take": loader.Part(1, 3, rest=True)},
    {"shuffle": loader.Shuffle(run=700, lanes=2)},
]


@pytest.mark.parametrize("options", mostly_nightly(OPTIONS, [OPTIONS[i] for i in (1, 7)]), ids=str)
def test_batches_are_those_without_a_cache(dataset, tmp_path, options, requests, monkeypatch):
    # shorter streams by steps, of smaller blocks
    monkeypatch.setattr(assignment, "PARSED_BYTES", 1 << 13)
    monkeypatch.setattr("tfshards.loader.fetching.open._LEAST_BLOCK", 1 << 13)
    expected = batches(dataset, **options)
    # threads that read at the same time do not change the order
    monkeypatch.setattr(assignment, "num_cpus", lambda: 8)
    # of stored order, larger blocks are read at the same time
    size = "1.5MB" if options.get("shuffle", SHUFFLE) else "2.5MB"
    assert batches(dataset, cache=disk(tmp_path / "near", size), **options) == expected
    assert expected
    assert requests


def test_a_large_split_knows_only_some_offsets(dataset, tmp_path, monkeypatch):
    expected = batches(dataset, epochs=2)
    monkeypatch.setattr("tfshards.loader.records.shards.MOST_OFFSETS", COUNT // 6)
    assert batches(dataset, epochs=2, cache=disk(tmp_path / "near", "1MB")) == expected


def test_every_use_is_planned_before_it_is_asked_for(dataset, tmp_path):
    data = loader.load(dataset, batch_size=32, shuffle=SHUFFLE, epochs=3, cache=disk(tmp_path / "n", "500KB"))
    for _ in data:
        pass
    found = data.kept_alive.kept[0]
    assert not found._extras


@pytest.mark.parametrize(
    ("shuffle", "size", "most"),
    [(SHUFFLE, "750KB", 1.25), (SHUFFLE, "2.25MB", 1), (None, "1.5MB", 1.05)],
    ids=str,
)
def test_the_first_epoch_fetches_little_twice(dataset, tmp_path, requests, shuffle, size, most, monkeypatch):
    monkeypatch.setattr(assignment, "PARSED_BYTES", 1 << 13)
    monkeypatch.setattr("tfshards.loader.fetching.open._LEAST_BLOCK", 1 << 13)
    batches(dataset, shuffle=shuffle, remainder="keep", cache=disk(tmp_path / "near", size))
    assert num_bytes(dataset) <= sum(end - start for _, start, end in requests) <= most * num_bytes(dataset)


def test_a_cache_of_the_whole_split_fetches_it_once_in_all_epochs_and_runs(dataset, tmp_path, requests):
    for _ in range(2):
        batches(dataset, epochs=2, cache=disk(tmp_path / "near", "20MB"))
        gc.collect()
    assert sum(end - start for _, start, end in requests) == num_bytes(dataset)


def test_the_bytes_on_disk_stay_within_the_bound(dataset, tmp_path):
    bound = 450_000
    data = loader.load(dataset, batch_size=32, shuffle=SHUFFLE, epochs=2, cache=disk(tmp_path, bound))
    seen = [disk_usage(tmp_path) for _ in data]
    assert max(seen) <= bound
    assert max(seen) > bound // 2


def disk_usage(folder):
    found = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                found += os.stat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return found


def fetched_with(blocks, sizes, capacity):
    next_uses, seen = [NEVER] * len(blocks), {}
    for use in reversed(range(len(blocks))):
        next_uses[use] = seen.get(blocks[use], NEVER)
        seen[blocks[use]] = use
    kept, fetched = Kept(capacity), 0
    for block, size, next_use in zip(blocks, sizes, next_uses, strict=True):
        is_hit = block in kept
        kept.use(block, size, next_use)
        fetched += 0 if is_hit else size
    return fetched


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(1, 4))
def test_no_other_rule_fetches_fewer_blocks(blocks, capacity):
    @functools.cache
    def fewest(use, kept):
        if use == len(blocks):
            return 0
        block = blocks[use]
        if block in kept:
            return fewest(use + 1, kept)
        choices = [kept]
        for size in range(min(capacity - 1, len(kept)) + 1):
            choices += [frozenset(each) | {block} for each in itertools.combinations(sorted(kept), size)]
        return 1 + min(fewest(use + 1, each) for each in choices)

    assert fetched_with(blocks, [1] * len(blocks), capacity) == fewest(0, frozenset())


def test_kept_blocks_give_way_when_there_is_less_space_and_take_a_new_order():
    kept = Kept(30)
    for block, next_use in ((1, 100), (2, 300), (3, 200)):
        assert kept.use(block, 10, next_use) == (True, [])
    assert kept.use(4, 10, 400) == (False, [])
    assert kept.use(5, 20, 150) == (True, [2, 3])
    assert kept.shrink(20) == [5]
    assert kept.num_bytes == 10
    kept.use(6, 10, 50)
    kept.replan({1: 7})
    assert kept.use(7, 10, 8) == (True, [6])
    assert 1 in kept


# of one epoch, the second iteration looks like the pass that is expected after the first one
@pytest.mark.parametrize(("batch_size", "epochs"), mostly_nightly([(80, 2), (200, 1)], [(200, 1)]))
def test_two_iterators_and_an_abandoned_one_agree(dataset, tmp_path, batch_size, epochs, monkeypatch):
    # the second iterator fetches more than are held
    monkeypatch.setattr(fetcher, "_MOST_EXTRAS", 128)
    options = {"batch_size": batch_size, "epochs": epochs, "start": loader.Position(0, 0)}
    expected = batches(dataset, **options)
    data = loader.load(dataset, shuffle=SHUFFLE, select=("number",), cache=disk(tmp_path, "500KB"), **options)
    assert [batch[0].numpy().tolist() for batch in data.take(3)] == expected[:3]
    for one, other, wanted in zip(data, data, expected, strict=True):
        assert one[0].numpy().tolist() == other[0].numpy().tolist() == wanted
    slow = data.skip(5)
    assert [batch[0].numpy().tolist() for batch in slow] == expected[5:]


def test_an_iterator_keeps_what_it_needs_and_nothing_stays_when_it_ends(dataset, tmp_path):
    iterator = iter(loader.load(dataset, batch_size=32, cache=disk(tmp_path, "5MB")).map(lambda batch: batch))
    gc.collect()
    assert sum(1 for _ in iterator) == COUNT // 32
    before = len(fetcher._running)
    del iterator
    gc.collect()
    assert len(fetcher._running) == before - 1
    assert blocks_in(tmp_path)


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


def test_a_store_that_fails_ends_the_run_with_its_error(dataset, tmp_path, monkeypatch):
    def failing(path, start, end, version=None):
        raise TimeoutError(110, "the store did not answer in time", str(path))

    data = loader.load(dataset, batch_size=32, shuffle=SHUFFLE, cache=disk(tmp_path, "500KB"))
    with monkeypatch.context() as patch:
        patch.setattr(files, "view_range", failing)
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=r"shard .*d-train-0123abcd.tfrecord-0000\d-of-00005 cannot be read: .*store did not answer",
        ):
            list(data)
    # the same dataset works when the store does
    assert sum(1 for _ in data) == COUNT // 32


def test_a_cache_on_a_full_disk_ends_the_run_with_its_error(dataset, tmp_path, monkeypatch):
    def failing(folder, name, data):
        raise OSError(28, "No space left on device", str(folder.path / name))

    monkeypatch.setattr(BlockFolder, "write", failing)
    message = r"shard .*tfrecord-0000\d-of-00005 cannot be read: .*@\d+-\d+: No space left on device"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        batches(dataset, cache=disk(tmp_path, "20MB"))
    assert not blocks_in(tmp_path)


def test_a_block_that_finds_no_space_in_time_is_delivered_and_not_kept(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_SECONDS_TO_READ", 0)
    monkeypatch.setattr(files.BlockFiles, "_fits", lambda self, block: block % 2 == 0)
    data = loader.load(
        dataset, batch_size=80, shuffle=SHUFFLE, select=("number",), cache=disk(tmp_path, "20MB")
    )
    assert [batch[0].numpy().tolist() for batch in data] == batches(dataset)
    stored = data.kept_alive.kept[0]._files
    assert stored._stored == {each for each in stored.kept._blocks if each % 2 == 0}
    assert len(blocks_in(tmp_path)) == len(stored.names) == len(stored._stored) > 10


def test_a_block_with_fewer_records_than_the_index_is_an_error(dataset, tmp_path, monkeypatch):
    found = files.sound_records
    monkeypatch.setattr(files, "sound_records", lambda *each: (found(*each)[0][:-1], found(*each)[1]))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="has fewer records than its index; load the dataset"
    ):
        batches(dataset, cache=disk(tmp_path, "20MB"))


def test_a_mistake_of_ours_is_raised_and_does_not_hang(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "view_range", lambda *_: 1 / 0)
    with pytest.raises(tf.errors.OpError, match="division by zero"):
        list(loader.load(dataset, batch_size=32, shuffle=SHUFFLE, cache=disk(tmp_path, "500KB")))


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
import sys, time
from tfshards import loader
from tfshards.loader.fetching import files
read_range = files.view_range
def slow(*arguments):
    time.sleep(0.03)
    return read_range(*arguments)
files.view_range = slow
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


def test_pipelines_of_a_cache_divide_its_bytes(tmp_path):
    one = BlockFolder(tmp_path, "train", 1000, 900)
    assert one.share == 900
    other = BlockFolder(tmp_path, "val", 1000, 300)
    assert (other.share, one.refresh(), one.share) == (300, True, 700)
    third = BlockFolder(tmp_path, "val", 1000, 800)
    assert one.refresh()
    assert not other.refresh()
    assert (one.share, other.share, third.share) == (350, 300, 350)
    third.close([])
    assert one.refresh()
    assert one.share == 700
    assert not one.refresh()


def written(folder, count):
    names = [f"{folder.path.name}@{100 * number}-{100 * number + 100}" for number in range(count)]
    for name in names:
        folder.write(name, bytes(100))
    return names


def left_in(cache):
    return sum(path.stat().st_size for path in cache.rglob("*@*"))


def test_what_ended_pipelines_have_left_counts_and_gives_way_to_those_that_run(tmp_path):
    unaware = BlockFolder(tmp_path, "train", 1000, 900)
    running = BlockFolder(tmp_path, "train", 1000, 900)
    # it has read its last block before the other one began
    unaware.close(written(unaware, 9))
    assert left_in(tmp_path) == 500
    assert not running.refresh()
    assert running.share == 500
    third = BlockFolder(tmp_path, "val", 1000, 100)
    killed = BlockFolder(tmp_path, "val", 1000, 900)
    # the one that begins has no room for what another split has left
    assert left_in(tmp_path) == 0
    written(killed, 9)
    del killed
    # a kill leaves no note: the next change shows it
    third.close([])
    running.refresh()
    assert (running.share, left_in(tmp_path)) == (500, 500)
    running.close(written(running, 5))
    following = BlockFolder(tmp_path, "train", 1000, 900)
    assert sum(following.found.values()) == left_in(tmp_path) == 500


def test_what_is_taken_over_is_not_trimmed(tmp_path):
    ended = BlockFolder(tmp_path, "train", 1000, 900)
    running = BlockFolder(tmp_path, "train", 1000, 900)
    written(ended, 9)
    path = ended.path
    del ended
    with (path / ".lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other = BlockFolder(tmp_path, "val", 1000, 100)
        assert running.refresh()
    assert left_in(tmp_path) == 900
    other.close([])
    running.refresh()
    assert left_in(tmp_path) == 500


def test_a_folder_takes_over_what_fits_and_links_what_others_have(tmp_path):
    ended = BlockFolder(tmp_path, "train", 1000, 1000)
    for name, length in (("a@0-300", 300), ("b@0-400", 400), ("piece-1", 10), ("c@0-5", 4)):
        ended.write(name, bytes(length))
    ended.close(["a@0-300", "b@0-400", "c@0-5"])
    foreign = BlockFolder(tmp_path, "val", 1000, 100)
    foreign.write("d@0-50", bytes(50))
    foreign.close(["d@0-50"])
    assert len(list(tmp_path.rglob("*@*"))) == 4
    running = BlockFolder(tmp_path, "train", 1000, 600)
    assert running.found in ({"a@0-300": 300}, {"b@0-400": 400})
    running.close(list(running.found))
    running = BlockFolder(tmp_path, "train", 1000, 1000)
    # beside all that it wants, another split has no room
    assert [path.name for path in sorted(tmp_path.rglob("*@*"))] == list(running.found)
    running.write("e@0-7", bytes(7))
    other = BlockFolder(tmp_path, "train", 1000, 1000)
    assert other.link("e@0-7", 7)
    assert not other.link("f@0-7", 7)
    running.remove("e@0-7")
    assert (other.path / "e@0-7").read_bytes() == bytes(7)


def test_sound_records_end_before_the_first_damage(write_dataset, tmp_path):
    examples = [{"number": i, "payload": bytes(30)} for i in range(5)]
    root = write_dataset(tmp_path / "data", PAYLOAD, {"train": [examples]})
    data = next(root.glob("*.tfrecord-*")).read_bytes()
    length = len(data) // 5
    known = np.arange(5) * length
    records, num_bytes = sound_records(data, known)
    assert (records, num_bytes) == ([data[at + 12 : at + length - 4] for at in known], len(data))

    def expected(count):
        return records[:count], count * length

    # offsets of all records, and of some
    for offsets in (known, known[:1]):
        assert sound_records(memoryview(data), offsets) == expected(5)
        for byte in range(len(data)):
            flipped = data[:byte] + bytes([data[byte] ^ 16]) + data[byte + 1 :]
            assert sound_records(flipped, offsets) == expected(byte // length), byte
    for end in range(len(data)):
        assert sound_records(data[:end], known[:1]) == expected(end // length)
    # a record that is longer than in the index, with right checksums
    assert sound_records(data, np.array([0, length, 2 * length + 1])) == expected(2)
    longer = next(
        write_dataset(tmp_path / "one", PAYLOAD, {"train": [[{"number": 5, "payload": bytes(99)}]]}).glob(
            "*.tfrecord-*"
        )
    )
    found, num_bytes = sound_records(data + longer.read_bytes(), known[:1])
    assert (len(found), found[:5], num_bytes) == (6, records, len(data) + longer.stat().st_size)


@pytest.mark.parametrize(
    ("cache", "error", "message"),
    [
        ("disk:{0}, 20KB", OptionsError, "cache-too-small"),
        ("disk:{0}, 5 apples", OptionsError, fault("cache-size-form", given="5 apples")),
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


def test_a_folder_of_another_pipeline_that_ends_meanwhile_is_left_alone(tmp_path):
    gone = tmp_path / "split" / "gone"
    assert not block_folder._is_locked(gone)
    assert block_folder._wanted_by(gone) == 0
    assert block_folder._size_of(gone) == 0
    own = BlockFolder(tmp_path, "split", 1000, 1000)
    own._take_over(gone)
    assert own.found == {}
    other = BlockFolder(tmp_path, "split", 1000, 1000)
    own._take_over(other.path)
    assert other.path.is_dir()
    assert block_folder._is_locked(other.path)
    own.close(set())
    other.close(set())


def test_a_block_of_another_size_is_not_linked_and_a_failed_write_leaves_nothing(tmp_path):
    own, other = (BlockFolder(tmp_path, "split", None, 1000) for _ in range(2))
    other.write("shard@0-3", b"abc")
    assert not own.link("shard@0-3", 4)
    with pytest.raises(OSError, match="No such file"):
        own.write("missing/shard@0-3", b"abc")
    with pytest.raises(TypeError):
        own.write("shard@3-6", "text")
    assert not list(own.path.glob("*.tmp"))
    own.close(set())
    other.close(set())
