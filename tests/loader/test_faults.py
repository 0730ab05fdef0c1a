"""Thousands of flipped bits and truncated files: never a wrong record, a silent loss or a crash."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.campaigns import SCALE, cases
from tfshards.schemas import Feature, Schema

pytestmark = [pytest.mark.processes, pytest.mark.campaign]

PROGRAM = Path(__file__).with_name("many_faults.py")
SCHEMA = Schema((Feature("number", "int", "int64"), Feature("text", "bytes", "bytes")))
# Faults in each shard, which takes tenths of a second to read.
SHARD_FAULTS = cases(2, nightly=30)
# Faults in each index and in the manifest, whose checks take milliseconds.
FAULTS = 20 * SHARD_FAULTS


def examples(lengths):
    return [{"number": number, "text": bytes([number]) * length} for number, length in enumerate(lengths)]


MANY = [number * 7 % 40 for number in range(30)]
RARELY = [] if SCALE else [pytest.mark.nightly]


@pytest.mark.parametrize(
    ("compression", "lengths", "remainder"),
    [
        ("none", MANY, "drop"),
        pytest.param("none", MANY, "keep", marks=RARELY),
        pytest.param("none", [20] * 30, "drop", marks=RARELY),
        pytest.param("gzip", MANY, "keep", marks=RARELY),
        pytest.param("gzip", MANY, "drop", marks=RARELY),
    ],
)
def test_each_fault_raises_or_is_harmless(programs, write_dataset, tmp_path, compression, lengths, remainder):
    rows = examples(lengths)
    shards = {"train": [rows[:10], rows[10:21], rows[21:]]}
    root = write_dataset(tmp_path / "dataset", SCHEMA, shards, compression=compression)
    done = programs.run([PROGRAM, root, FAULTS, SHARD_FAULTS, remainder], timeout=300 + 6 * SHARD_FAULTS)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = {kind: Counter(outcomes) for kind, outcomes in json.loads(done.stdout).items()}
    for kind, outcomes in counts.items():
        print(f"{kind}: {outcomes.total()} tried, {dict(outcomes)}")
    assert counts["flips"].total() >= 4 * FAULTS
    assert counts["truncations"].total() >= 4 * FAULTS
    assert counts["truncations after load"].total() > 0
    assert sum(outcomes["missed"] for outcomes in counts.values()) == 0
    assert counts["truncations"]["delivered unharmed"] == 0
    if compression == "none":
        assert counts["flips"]["delivered unharmed"] == 0
