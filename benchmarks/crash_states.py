"""Try the states that a power cut may leave of a dataset, and count what the reader of each tool delivers.

    python benchmarks/crash_states.py
    python benchmarks/crash_states.py --tools tfshards --tree ../another/checkout --states 1000

Each tool, in an environment of its own below --cache, writes 24 images into an empty folder, and then 30
others over 24, under strace. The states that the model in tests/crash/crash_states.py derives from these
calls are made on the disk, --states of each case, chosen by --seed, and read by the reader of the tool.
Of these tools, only tfshards promises to survive a power cut.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import measure
import numpy as np
from peers.environments import TOOLS, Tool, python_of
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.crash.crash_states import record, states, write_state

SCRIPT = Path(__file__).resolve().parent / "peers" / "crash_tool.py"
COLUMNS = ("old", "new", "error", "part", "wrong")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [name for name, tool in TOOLS.items() if tool.writer and name != "grain"]
    parser.add_argument("--tools", nargs="+", choices=names, default=names, help="default: all")
    parser.add_argument("--states", type=int, default=400, help="states of each case (default: %(default)s)")
    parser.add_argument("--seed", default="0", help="seed of the states (default: 0)")
    parser.add_argument("--tree", type=Path, help="checkout of tfshards to run instead of this one")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/tfshards-peers"), help="(%(default)s)")
    options = parser.parse_args()
    cache = options.cache.expanduser().resolve()
    if options.tree:
        os.environ["PYTHONPATH"] = str((options.tree / "src").resolve())
    rows = []
    with tempfile.TemporaryDirectory(prefix="tfshards-crash-") as work:
        for name in options.tools:
            for is_overwrite in (False, True):
                folder = Path(work) / f"{name}-{is_overwrite}"
                folder.mkdir()
                rows.append(tried(TOOLS[name], folder, cache, options, is_overwrite=is_overwrite))
                print(rows[-1], file=sys.stderr)
    head = "states | old or nothing | new | error | silently part | silently wrong | not new after exit 0"
    print(f"| writer | case | {head} |\n|{' --- |' * (head.count('|') + 3)}")
    print("\n".join(rows))
    print(f"\n{measure.machine(['tfshards'])}")
    print(", ".join(sorted({each for name in options.tools for each in TOOLS[name].requirements})))


def tried(tool: Tool, folder: Path, cache: Path, options: argparse.Namespace, *, is_overwrite: bool) -> str:
    """Return a row: what the reader of a tool delivers in the states after a power cut."""
    python = python_of(tool, cache)
    sources = write_images(folder / "a", 24, 1), write_images(folder / "b", 30, 2)
    root = folder / "root"
    (root / "tmp").mkdir(parents=True)
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = os.environ["TMPDIR"] = str(root / "tmp")
    command = [python, SCRIPT, "write", tool.writer]
    if is_overwrite:
        subprocess.run([*command, sources[0], root / "data"], check=True, capture_output=True)
    source = sources[is_overwrite]
    trace = record(
        [*command, source, root / "data", *(["--overwrite"] if is_overwrite else [])], root, folder / "log"
    )
    found = list(states(trace, num_random=4, seed=options.seed))
    chosen = random.Random(options.seed).sample(found, min(options.states, len(found)))
    ended = [one for one in found if one[0] == trace.num_calls]
    reader = subprocess.Popen(
        [python, SCRIPT, "read", tool.writer],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    old, new = expected(sources[0]) if is_overwrite else Counter(), expected(source)
    before: Counter[str] = Counter()
    after = 0
    for number, (call, tree) in enumerate([*chosen, *(one for one in ended if one not in chosen)]):
        trial = folder / f"trial{number}"
        trial.mkdir()
        write_state(tree, trial)
        kind = kind_of(ask(reader, trial / "data"), old, new)
        if call == trace.num_calls:
            after += kind != "new"
        if number < len(chosen):
            # a folder without a dataset is what there was before
            before["old" if kind == "error" and not is_overwrite else kind] += 1
        shutil.rmtree(trial)
    reader.communicate()
    cells = [len(chosen), *(before[column] for column in COLUMNS), f"{after} of {len(ended)}"]
    case = "over a dataset" if is_overwrite else "new"
    return f"| {tool.title.partition(',')[0]} | {case} | {' | '.join(map(str, cells))} |"


def ask(reader: subprocess.Popen[str], folder: Path) -> dict:
    """Return what the reader finds in a folder."""
    assert reader.stdin
    assert reader.stdout
    reader.stdin.write(f"{folder}\n")
    reader.stdin.flush()
    return json.loads(reader.stdout.readline())


def kind_of(found: dict, old: Counter, new: Counter) -> str:
    """Return the column of an answer."""
    if "error" in found:
        return "error"
    records = Counter(map(tuple, found["records"]))
    if records in (old, new):
        return "new" if records == new else "old"
    return "part" if records < old or records < new else "wrong"


def expected(source: Path) -> Counter:
    """Return the records that a reader should deliver, as a multiset."""
    return Counter(
        (str(path.relative_to(source)), hashlib.sha256(path.read_bytes()).hexdigest())
        for path in source.glob("*/*.png")
    )


def write_images(folder: Path, count: int, seed: int) -> Path:
    """Write small images of noise in two classes, and return the folder."""
    for number in range(count):
        path = folder / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng((seed, number)).integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(path)
    return folder


if __name__ == "__main__":
    main()
