"""The benchmark that resumes runs of other tools counts rightly, and still runs with tfshards."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from peers.compare import Difference, compare, joined, summary  # noqa: E402

WHOLE = {0: [[0, 1], [2, 3]], 1: [[3, 1], [0, 2]]}
STOP = 1
CASES = {
    "the same": (WHOLE, (0, 0, 0)),
    "another order in a batch": ({0: [[1, 0], [3, 2]], 1: [[1, 3], [2, 0]]}, (0, 0, 0)),
    "batches in another order": ({0: [[0, 1], [2, 3]], 1: [[0, 2], [3, 1]]}, (0, 0, 2)),
    "an example in another batch": ({0: [[0, 1], [2, 3]], 1: [[3, 0], [1, 2]]}, (0, 0, 2)),
    "a batch lost": ({0: [[0, 1]], 1: [[3, 1], [0, 2]]}, (2, 0, 1)),
    "a batch repeated": ({0: [[0, 1], [0, 1], [2, 3]], 1: [[3, 1], [0, 2]]}, (0, 2, 2)),
    "an example in place of another": ({0: [[0, 1], [2, 1]], 1: [[3, 1], [0, 2]]}, (1, 1, 1)),
    "lost in one epoch, repeated in another": ({0: [[0, 1]], 1: [[3, 1], [0, 2], [2, 3]]}, (2, 2, 2)),
    "an epoch lost": ({0: [[0, 1], [2, 3]]}, (4, 0, 2)),
    "an epoch too many": ({**WHOLE, 2: [[0, 1], [2, 3]]}, (0, 4, 2)),
    "nothing after the stop": ({0: [[0, 1]]}, (6, 0, 3)),
}


@pytest.mark.parametrize(("resumed", "expected"), CASES.values(), ids=CASES)
def test_what_a_resumed_run_lost_repeated_and_changed(resumed, expected):
    found = compare(WHOLE, resumed, STOP)
    assert (found.lost, found.repeated, found.changed) == expected
    assert found.later == 3
    assert found.is_exact == (expected == (0, 0, 0))


def test_steps_are_joined_by_epoch_and_stops_are_summed():
    assert joined([(0, [1]), (1, [2]), (0, [3])]) == {0: [[1], [3]], 1: [[2]]}
    found = summary([Difference(0, 0, 0, 5), Difference(1, 2, 3, 4)], ["late", "late"])
    assert found == {
        "stops": 4,
        "failed": 2,
        "exact": 1,
        "lost": 1,
        "repeated": 2,
        "changed": 3,
        "later": 9,
        "errors": {"late": 2},
    }


@pytest.mark.nightly
def test_the_benchmark_runs_with_tfshards_alone_and_finds_every_stop_exact(tmp_path):
    found = tmp_path / "found.json"
    arguments = ["--tools", "tfshards", "--stops", "50", "--kills", "5", "--json", str(found)]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "resume_peers.py"), *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    both = json.loads(found.read_text())
    kinds = both["readers"]["tfshards"]
    assert {kind: row["stops"] for kind, row in kinds.items()} == {"same": 25, "changed": 24, "killed": 1}
    assert all(row["exact"] == row["stops"] for row in kinds.values())
    written = both["writers"]["tfshards"]
    assert written["same bytes"] == written["same records"] == written["kills"] == 5
    assert "part" not in written["between"]
    assert "| tfshards | killed | 1 |" in done.stdout
