"""Stop training runs and conversions of tfshards and of other tools, resume them, and count what differs.

    python benchmarks/resume_peers.py --stops 1000 --kills 30
    python benchmarks/resume_peers.py --tools tfshards grain --stops 100 --kills 0 --json found.json

Each tool is installed into an environment of its own, below --cache, and reads 800 examples in batches of 40
for two epochs, shuffled, on 1, 2 or 4 workers. --stops of these runs are resumed from the tool checkpoint at
a random step; of 1,000, 20 have their processes killed, and 20 read with two more processes a worker. --kills
conversions of 2,000 images are killed at a random moment and run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zlib
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
IMAGES, SIDE = 2000, 48


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS), help="default: all")
    parser.add_argument("--stops", type=int, default=1000, help="stops of each reader (default: %(default)s)")
    parser.add_argument(
        "--kills", type=int, default=30, help="kills of each conversion (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of what is stopped where (default: 0)")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/tfshards-peers"), help="(%(default)s)")
    parser.add_argument("--json", type=Path, help="also write everything that was found")
    options = parser.parse_args()
    if options.stops < 0 or options.kills < 0:
        parser.error("--stops and --kills must not be negative")
    cache = options.cache.expanduser().resolve()
    found: dict[str, dict] = {"readers": {}, "writers": {}}
    with tempfile.TemporaryDirectory(prefix="tfshards-peers-") as work:
        source = write_images(Path(work) / "images") if options.kills else Path()
        for name in options.tools:
            tool = TOOLS[name]
            if options.stops and tool.reader:
                found["readers"][name] = stop_reader(tool, Path(work) / name, cache, options)
            if options.kills and tool.writer:
                found["writers"][name] = kill_writer(tool, source, Path(work) / f"{name}-out", cache, options)
            if options.json:
                options.json.write_text(json.dumps(found, indent=1))
    print(
        "\n\n".join(
            text for text in (readers_table(found["readers"]), writers_table(found["writers"])) if text
        )
    )
    print(f"\n{measure.machine(['tfshards', 'tensorflow', 'numpy'])}")
    print(", ".join(sorted({each for name in options.tools for each in TOOLS[name].requirements})))


def stop_reader(tool: Tool, folder: Path, cache: Path, options: argparse.Namespace) -> dict:
    """Return the rows of a reader: summaries by kind of stop."""
    kills = processes = options.stops // 50
    arguments = [tool.reader, folder, "--stops", options.stops - kills, "--kills", kills]
    return run_script(
        tool, cache, "stop_runs.py", [*arguments, "--processes", processes, "--seed", options.seed]
    )


def kill_writer(tool: Tool, source: Path, folder: Path, cache: Path, options: argparse.Namespace) -> dict:
    """Return what happened in the killed conversions of a tool."""
    arguments = [tool.writer, source, folder, "--kills", options.kills, "--seed", options.seed]
    return run_script(tool, cache, "kill_writes.py", arguments)


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


def write_images(folder: Path) -> Path:
    """Write PNG files of noise in ten class folders, without compression."""
    import numpy as np

    noise = np.random.default_rng(0)
    for number in range(IMAGES):
        path = folder / f"class{number % 10}" / f"{number:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_png(noise.integers(0, 256, (SIDE, 1 + SIDE * 3), dtype=np.uint8)))
    return folder


def _png(rows) -> bytes:
    rows[:, 0] = 0  # each row begins with the number of its filter
    side = SIDE.to_bytes(4, "big")
    chunks = (
        (b"IHDR", side + side + b"\x08\x02\0\0\0"),
        (b"IDAT", zlib.compress(rows.tobytes(), 0)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
        for kind, data in chunks
    )


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
    return measure.table(head, rows) if rows else ""


def writers_table(found: dict[str, dict]) -> str:
    """Return the table of killed conversions."""
    rows = [
        (
            TOOLS[name].title,
            f"{row['kills']}",
            _counts(row["between"]),
            _counts(row["again"]),
            f"{row['same records']}",
            f"{row['same bytes']}",
            f"{row['wrong, without an error']}",
        )
        for name, row in found.items()
    ]
    head = (
        "tool",
        "kills",
        "readable after the kill",
        "run again",
        "same records",
        "same bytes",
        "silently wrong",
    )
    return measure.table(head, rows) if rows else ""


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{what} {count}" for what, count in sorted(counts.items(), key=lambda item: -item[1]))


if __name__ == "__main__":
    main()
