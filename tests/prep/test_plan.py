"""The order of examples in shards: that of docs/format.md, and the same in every release."""

import hashlib

import numpy as np
import pytest

from tfshards import loader
from tfshards.prep import Arrays, limited_jobs, plan


def splitmix64(state: int) -> int:
    """Return one value as in the paper; ``state`` is already advanced."""
    mask = 2**64 - 1
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & mask
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & mask
    return state ^ (state >> 31)


def stored(out) -> list[int]:
    return [int(row["x"]) for row in loader.Records(out)]


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
@pytest.mark.parametrize("count", [1, 2, 12, 101])
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


def test_the_order_never_changes_between_releases(tmp_path, quiet_build):
    quiet_build(Arrays({"x": np.arange(12)}), tmp_path / "out", shards=1)
    assert stored(tmp_path / "out") == [0, 8, 5, 10, 2, 1, 6, 7, 4, 11, 3, 9]


def test_the_plan_id_depends_on_name_seed_and_inputs(tmp_path):
    x = np.arange(4)
    found = [
        plan(Arrays({"x": x}), tmp_path / "a", seed=3),
        plan(Arrays({"x": x}), tmp_path / "a", seed=4),
        plan(Arrays({"x": x}), tmp_path / "b", seed=3),
        plan(Arrays({"x": x[::-1]}), tmp_path / "a", seed=3),
    ]
    assert len({each.plan_id for each in found}) == 4
    assert plan(Arrays({"x": x.copy()}), tmp_path / "a", seed=3).plan_id == found[0].plan_id
