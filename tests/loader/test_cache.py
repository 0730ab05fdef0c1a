"""``cache=``: copies that are whole, made once, and read instead of the dataset's files."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfshards import loader
from tfshards.loader import cache as caching
from tfshards.loader.memory import available_memory
from tfshards.schemas import Feature, FormatError, InputError, OptionsError, Schema

COUNT, SHARDS = 600, 3
PAYLOAD = Schema((Feature("number", "int", "int64"), Feature("payload", "bytes", "bytes")))


@pytest.fixture
def dataset(write_dataset, tmp_path):
    random = np.random.default_rng(0)
    examples = [{"number": i, "payload": random.bytes(2000)} for i in range(COUNT)]
    yield write_dataset(tmp_path / "slow", PAYLOAD, {"train": np.array_split(examples, SHARDS)})
    loader.clear_cache()


def numbers(path, **options):
    data = loader.load(path, batch_size=50, select=("number",), shuffle=loader.Shuffle(seed=3), **options)
    return np.concatenate([batch[0] for batch in data]).tolist()


def shards_of(path):
    return sorted(path.glob("*.tfrecord-*"))


def copies(disk):
    return sorted(path for path in disk.rglob("*") if path.is_file() and path.name != ".lock")


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_the_order_stays_what_it_is_and_the_files_are_not_read_again(dataset, tmp_path, where):
    cache = "memory" if where == "memory" else f"disk:{tmp_path / 'near'}"
    expected = numbers(dataset)
    data = loader.load(dataset, batch_size=50, shuffle=loader.Shuffle(seed=3), cache=cache)
    for shard in shards_of(dataset):
        shard.unlink()
    found = np.concatenate([batch["number"] for batch in data]).tolist()
    assert found == expected


def test_a_split_is_in_memory_once_until_it_is_cleared(dataset):
    data = loader.load(dataset, batch_size=50, cache="memory")
    held = {path for path in caching._held if path.startswith("ram://")}
    assert numbers(dataset, cache="memory") == numbers(dataset)
    assert {path for path in caching._held if path.startswith("ram://")} == held
    assert sum(tf.io.gfile.stat(path).length for path in held) == sum(
        shard.stat().st_size for shard in shards_of(dataset)
    )
    loader.clear_cache()
    assert not any(tf.io.gfile.exists(path) for path in held)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"tfshards-cache/.* cannot be read"):
        list(data)


def test_a_later_run_finds_the_copies_and_makes_anew_those_that_are_not_whole(dataset, tmp_path):
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


def test_two_processes_make_one_copy_and_a_killed_one_leaves_nothing(dataset, tmp_path):
    program = (
        "import sys, time; from tfshards import loader; from tfshards.loader import cache\n"
        "cache._BLOCK_BYTES = 1000; add = cache._Progress.add\n"
        "def slowly(self, n): time.sleep(0.002); add(self, n)\n"
        "cache._Progress.add = slowly; print('copying', flush=True)\n"
        "data = loader.load(sys.argv[1], batch_size=50, cache=sys.argv[2])\n"
        "print(sum(int(batch['number'].numpy().sum()) for batch in data))"
    )
    near = tmp_path / "near"
    command = [sys.executable, "-c", program, str(dataset), f"disk:{near}"]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    killed = subprocess.Popen(command, env=environment)
    end = time.monotonic() + 60
    while not list(near.rglob("*.tmp")) and time.monotonic() < end:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert list(near.rglob("*.tmp"))
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    results = [process.communicate(timeout=120) for process in running]
    for process, (stdout, stderr) in zip(running, results, strict=True):
        assert process.returncode == 0, stderr
        assert stdout.split()[-1] == str(sum(range(COUNT)))
    assert sum("another process fills this cache" in stderr for _, stderr in results) == 1
    assert len(copies(near)) == SHARDS


def test_a_damaged_shard_is_told_before_the_first_step_and_never_taken_for_whole(dataset, tmp_path):
    path = shards_of(dataset)[1]
    damaged = bytearray(path.read_bytes())
    damaged[1000] ^= 1
    path.write_bytes(damaged)
    for cache in ("memory", f"disk:{tmp_path / 'near'}"):
        with pytest.raises(FormatError, match=rf"{path.name}: its digest is not the manifest's"):
            loader.load(dataset, batch_size=50, cache=cache)
        with pytest.warns(UserWarning, match="1 of the 600 records"):
            data = loader.load(dataset, batch_size=50, remainder="pad", on_damage="skip", cache=cache)
        found = [batch["number"][batch["sample_weight"] > 0] for batch in data]
        assert len(np.concatenate(found)) == COUNT - 1
    assert len(copies(tmp_path / "near")) == SHARDS - 1


def test_what_does_not_fit_is_told_before_the_first_step(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(caching, "available_memory", lambda: 1 << 20)
    with pytest.raises(
        InputError, match=r"needs 1\.2 MiB for 3 shards of split 'train', .* allows 921\.6 KiB"
    ):
        loader.load(dataset, batch_size=50, cache="memory")
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(caching.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(InputError, match=r"caching 3 shards .* needs 1\.2 MiB, 1\.0 MiB are free"):
        loader.load(dataset, batch_size=50, cache=f"disk:{tmp_path / 'near'}")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"Not a directory|File exists"):
        loader.load(dataset, batch_size=50, cache=f"disk:{tmp_path / 'file'}")


@pytest.mark.parametrize("cache", ["ram", "disk:", 1, "disk"])
def test_other_caches_are_refused(dataset, cache):
    with pytest.raises(OptionsError, match='must be "memory", "disk:PATH" or None'):
        loader.load(dataset, batch_size=50, cache=cache)


def test_a_long_copy_says_how_far_it_is(dataset, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(caching, "_SECONDS_A_LINE", 0)
    with caplog.at_level(logging.WARNING, "tfshards.loader"):
        loader.load(dataset, batch_size=50, cache=f"disk:{tmp_path / 'near'}")
    assert f"{dataset}: caching split 'train': 1.2 MiB of 1.2 MiB" in caplog.messages


def test_the_memory_that_is_there_is_the_least_of_the_hosts_and_the_groups(tmp_path):
    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    assert available_memory(tmp_path) is None
    write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 8000 kB\n")
    assert available_memory(tmp_path) == 8_192_000
    write("proc/self/cgroup", "4:memory:/inner\n0::/outer/inner\n")
    write("sys/fs/cgroup/outer/inner/memory.max", "max\n")
    write("sys/fs/cgroup/outer/inner/memory.current", "10\n")
    assert available_memory(tmp_path) == 8_192_000
    write("sys/fs/cgroup/outer/memory.max", "5000000\n")
    write("sys/fs/cgroup/outer/memory.current", "2000000\n")
    write("sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 500000\n")
    assert available_memory(tmp_path) == 3_500_000
    # as a container sees version 1: the path is the host's
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n")
    write("sys/fs/cgroup/memory/memory.usage_in_bytes", "400\n")
    assert available_memory(tmp_path) == 600
    assert (available_memory(Path("/")) or 1) > 0
