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
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import measure
from peers.environments import TOOLS, Tool, python_of

PEERS = Path(__file__).resolve().parent / "peers"
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
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS), help="default: all")
    parser.add_argument("--stops", type=int, default=1000, help="stops of each reader (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of what is stopped where (default: 0)")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/tfshards-peers"), help="(%(default)s)")
    parser.add_argument("--json", type=Path, help="also write everything that was found")
    options = parser.parse_args()
    if options.stops < 1:
        parser.error("--stops must be at least 1")
    cache = options.cache.expanduser().resolve()
    found: dict[str, dict] = {}
    with tempfile.TemporaryDirectory(prefix="tfshards-peers-") as work:
        for name in options.tools:
            found[name] = stop_reader(TOOLS[name], Path(work) / name, cache, options)
            if options.json:
                options.json.write_text(json.dumps(found, indent=1))
    print(readers_table(found))
    print(f"\n{measure.machine(['tfshards', 'tensorflow', 'numpy'])}")
    print(", ".join(sorted({each for name in options.tools for each in TOOLS[name].requirements})))


def stop_reader(tool: Tool, folder: Path, cache: Path, options: argparse.Namespace) -> dict:
    """Return the rows of a reader: summaries by kind of stop."""
    kills = processes = options.stops // 50
    arguments = [tool.reader, folder, "--stops", options.stops - kills, "--kills", kills]
    return run_script(
        tool, cache, "stop_runs.py", [*arguments, "--processes", processes, "--seed", options.seed]
    )


def run_script(tool: Tool, cache: Path, script: str, arguments: list[object]) -> dict:
    """Run a script in the environment of a tool and return the JSON that it prints last."""
    command = [str(python_of(tool, cache)), "-W", "ignore", str(PEERS / script), *map(str, arguments)]
    print(f"{tool.title}: {script}", file=sys.stderr)
    # The tools' own log lines, and torch's threads on shared cores, would only get in the way.
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **quiet})
    if done.returncode:
        raise RuntimeError(f"{script} of {tool.title} ended with exit status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def readers_table(found: dict[str, dict]) -> str:
    """Return the table of resumed runs."""
    rows = [
        (
            TOOLS[name].title,
            KINDS[kind],
            f"{row['stops']:,}",
            f"{row['failed']:,}",
            f"{row['exact']:,}",
            f"{row['lost']:,}",
            f"{row['repeated']:,}",
            f"{row['changed']:,} of {row['later']:,}",
        )
        for name, kinds in found.items()
        for kind, row in sorted(kinds.items(), key=lambda item: list(KINDS).index(item[0]))
    ]
    head = ("tool", "stop", "stops", "failed", "exact", "lost", "repeated", "batches that differ")
    return measure.table(head, rows)


if __name__ == "__main__":
    main()
