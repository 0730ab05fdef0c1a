"""Which example is where: balanced shards, with and without rejects, in the order of docs/format.md."""

import hashlib
import tempfile
from itertools import islice

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tfshards import loader
from tfshards.prep import Arrays, Options, build, limited_jobs, plan


def splitmix64(state: int) -> int:
    """Return one value as in the paper; ``state`` is already advanced."""
    mask = 2**64 - 1
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & mask
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & mask
    return state ^ (state >> 31)


def stored(out) -> list[int]:
    return [int(row["x"]) for row in loader.Records(out)]


@settings(max_examples=25)
@given(st.lists(st.integers(0, 12), min_size=6, max_size=40), st.integers(1, 6), st.integers(0, 9))
def test_shards_stay_balanced_without_rejects_and_as_few_examples_as_possible_move(values, num_shards, seed):
    assume(len({*values}) >= num_shards)
    source, dropped = Arrays({"x": np.array(values)}), Options(duplicates="drop")
    planned = [shard.tolist() for shard in plan(source, "out", shards=num_shards, seed=seed).layouts["train"]]
    with tempfile.TemporaryDirectory() as folder, limited_jobs(1):
        out = f"{folder}/out"
        manifest = build(source, out, shards=num_shards, seed=seed, options=dropped)
        rows = iter([int(row["key"]) for row in loader.Records(out)])
    final = [[*islice(rows, shard.num_examples)] for shard in manifest.shards]
    kept = [[row for row in shard if row == values.index(values[row])] for shard in planned]
    share, extra = divmod(len({*values}), num_shards)
    assert sorted(map(len, final)) == [share] * (num_shards - extra) + [share + 1] * extra
    # no example of a shard that has too few moves, and none moves inside of a shard
    assert all(now[: len(old)] == old[: len(now)] for now, old in zip(final, kept, strict=True))
    fullest = sorted(map(len, kept), reverse=True)
    moved = sum(max(0, len(old) - len(now)) for now, old in zip(final, kept, strict=True))
    assert moved == sum(max(0, size - share - (rank < extra)) for rank, size in enumerate(fullest))


@pytest.mark.parametrize(("count", "seed"), [(1, 0), (2, 2**63 - 1), (12, 1), (101, 0)])
def test_examples_are_in_the_order_of_splitmix64s_values(count, seed, tmp_path, quiet_build):
    start = int.from_bytes(hashlib.blake2b(f"{seed}/train".encode(), digest_size=8).digest(), "little")
    values = [splitmix64((start + place * 0x9E3779B97F4A7C15) % 2**64) for place in range(1, count + 1)]
    num_shards = min(count, 3)
    with limited_jobs(1):
        manifest = quiet_build(
            Arrays({"x": np.arange(count)}), tmp_path / "out", shards=num_shards, seed=seed
        )
    assert stored(tmp_path / "out") == sorted(range(count), key=values.__getitem__)
    sizes = [shard.num_examples for shard in manifest.shards]
    assert sizes == [count // num_shards + (n < count % num_shards) for n in range(num_shards)]
