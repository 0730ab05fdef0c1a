"""The benchmark that resumes runs of other tools still runs with tfshards."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


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
