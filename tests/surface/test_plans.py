"""A plan writes nothing, and describes exactly what the build then writes."""

import numpy as np
import pytest

from tests.surface.command import run, run_json, snapshot
from tfshards.schemas import read_manifest

TWO = "--splits=a=.5 --splits=b=.5 --shards 3"


@pytest.mark.parametrize(
    "line",
    [
        f"images photos new {TWO} --stratify --seed 5",
        "images photos new --shard-size 300B --name pets",
        f"arrays all.npz new {TWO} --group-by site",
        "table t.csv new --shards 2",
    ],
)
def test_a_plan_writes_nothing_but_fits_the_build(line, own):
    # every site has every class, so that no split lacks one
    np.savez("all.npz", x=np.zeros((20, 5)), label=np.arange(20) % 4, site=np.arange(20) // 5)
    before = snapshot(".")
    (ended, plan), text = run_json(f"plan {line}"), run(f"plan {line}")
    assert (ended.status, ended.err, text.status, snapshot(".")) == (0, "", 0, before)
    assert run(f"build {line}").status == 0
    manifest = read_manifest("new")
    again, planned_again = run_json(f"plan {line}")
    # recognized as the plan of the dataset
    assert (planned_again, again.err.count("\n")) == (plan, 1)
    assert plan["schema"] == manifest.schema.to_json()
    assert [*plan["splits"]] == [*manifest.splits]
    for name, split in manifest.splits.items():
        planned = plan["splits"][name]
        assert planned["num_shards"] == len(split.shards)
        assert planned["examples_per_shard"] == [shard.num_examples for shard in split.shards]
        assert planned["num_examples"] == split.num_examples
        assert planned["label_counts"] == split.label_counts
        assert f"\n{name} " in text.out
        # a record holds the bytes of its source and some more
        more = [s.num_bytes - b for s, b in zip(split.shards, planned["bytes_per_shard"], strict=True)]
        assert all(0 < e < 200 * shard.num_examples for e, shard in zip(more, split.shards, strict=True))
