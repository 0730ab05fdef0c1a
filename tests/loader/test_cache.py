"""``cache=``: copies that are complete, made once, and read instead of the files of the dataset."""

import resource
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.errors import raises
from tfshards import loader
from tfshards.schemas import Feature, FormatError, InputError, Schema

COUNT, SHARDS = 600, 3
PAYLOAD = Schema((Feature("number", "int", "int64"), Feature("payload", "bytes", "bytes")))


@pytest.fixture
def dataset(write_dataset, tmp_path):
    random = np.random.default_rng(0)
    examples = [{"number": i, "payload": random.bytes(2000)} for i in range(COUNT)]
    return write_dataset(tmp_path / "slow", PAYLOAD, {"train": np.array_split(examples, SHARDS)})


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
    assert [kept[i].st_ino == before[i].st_ino for i in range(SHARDS)] == [True, False, True]
    # another build, whose shards have the same names and sizes
    others = [{"number": i, "payload": bytes(2000)} for i in range(COUNT)]
    other = write_dataset(tmp_path / "other" / "slow", PAYLOAD, {"train": np.array_split(others, SHARDS)})
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
    assert len(np.concatenate(found)) == COUNT - 1
    assert len(copies(tmp_path / "near")) == SHARDS - 1


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
        assert ended.stdout.split()[-1] == str(sum(range(COUNT)))
    assert len(copies(near)) == SHARDS


def test_a_cache_that_cannot_be_written_ends_the_load(dataset, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with raises(InputError, "cache= cannot"):
        loader.load(dataset, batch_size=50, cache=f"disk:{tmp_path / 'file'}")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with raises(InputError, "cache= cannot"):
            loader.load(dataset, batch_size=50, cache=f"disk:{tmp_path / 'near'}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not copies(tmp_path / "near")
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with raises(InputError, "is free", "3 shards", code="disk-full"):
        loader.load(dataset, batch_size=50, cache=f"disk:{tmp_path / 'near'}")
