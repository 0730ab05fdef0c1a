"""Stop training runs of tfshards and of other tools, resume them, and count what differs.

    python benchmarks/resume_peers.py --stops 1000
    python benchmarks/resume_peers.py --tools tfshards grain --stops 100 --json found.json

Each tool is installed into an environment of its own, below --cache, and reads 800 examples in batches of 40
for two epochs, shuffled, on 1, 2 or 4 workers. --stops of these runs are resumed from the tool checkpoint at
a random step; of 1,000, 20 have their processes killed, and 20 read with two more processes a worker.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import measure
import stop_runs
from environments import REQUIREMENTS, add_cache, found, python_of
from readers import READERS

KINDS = {
    "same": "same workers",
    "changed": "other number of workers",
    "processes": "two processes a worker",
    "killed": "killed",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tools", nargs="+", choices=READERS, default=list(READERS), help="default: all")
    parser.add_argument("--stops", type=int, default=1000, help="stops of each reader (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of what is stopped where (default: 0)")
    parser.add_argument("--json", type=Path, help="also write everything that was found")
    add_cache(parser)
    options = parser.parse_args()
    if options.stops < 1:
        parser.error("--stops must be at least 1")
    kills = processes = options.stops // 50
    flags = ["--stops", options.stops - kills, "--kills", kills]
    flags += ["--processes", processes, "--seed", options.seed]
    rows: dict[str, dict[str, dict]] = {}
    with tempfile.TemporaryDirectory(prefix="tfshards-peers-") as work:
        for tool in options.tools:
            print(tool, file=sys.stderr)
            python = [python_of(tool, options.cache), "-W", "ignore", stop_runs.__file__]
            # torch's threads on shared cores would only get in the way
            rows[tool] = found([*python, tool, Path(work) / tool, *flags], variables={"OMP_NUM_THREADS": "1"})
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
    print(table(rows))
    print(", ".join(sorted({each for tool in options.tools for each in REQUIREMENTS.get(tool, ())})))
    print(measure.footnote(["tfshards", "tensorflow", "numpy"]))


def table(found: dict[str, dict[str, dict]]) -> str:
    """Return the table of resumed runs."""
    counts = ("stops", "failed", "exact", "lost", "repeated")
    rows = [
        [
            READERS[tool].title,
            KINDS[kind],
            *(f"{kinds[kind][name]:,}" for name in counts),
            f"{kinds[kind]['changed']:,} of {kinds[kind]['later']:,}",
        ]
        for tool, kinds in found.items()
        for kind in KINDS
        if kind in kinds
    ]
    return measure.table(("tool", "stop", *counts, "batches that differ"), rows)


if __name__ == "__main__":
    main()
