"""Compare two source trees: build, verify, read, decode, the first batch, and memory.

    python benchmarks/compare.py OLD NEW --photos FOLDER [--rounds 5] [--json FILE]

OLD and NEW are folders that hold the package ``tfshards``, as src does. Each tree builds its own datasets,
from a folder of class folders and from small arrays that are drawn here. Each measurement is a process of its
own; those of both trees take turns, and the best round of each counts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import measure

# Of the arrays; memory that grows with epochs shows itself only after several.
EPOCHS = 10
KB = 1024
ARRAYS = 400_000


@dataclass(frozen=True)
class Reading:
    """What a process reads.

    Attributes:
        dataset: "photos" or "arrays".
        batch_size: the examples of a batch.
        count: the examples that are timed, after a first batch; 0 times the call and the first batch alone,
            None all batches of ``EPOCHS`` epochs.
        shuffle: ``Shuffle.how``, or None for the stored order.
        side: the side of a random crop, or None for what is stored.
        function: the function of the loader.
    """

    dataset: str
    batch_size: int = 256
    count: int | None = 0
    shuffle: Literal["runs", "full"] | None = "runs"
    side: int | None = None
    function: str = "load"


READINGS = {
    "photos, shuffled": Reading("photos", count=100_000),
    "photos, full permutation": Reading("photos", count=100_000, shuffle="full"),
    "photos, stored order": Reading("photos", count=100_000, shuffle=None),
    "photos, random crop to 224": Reading("photos", count=6_000, side=224),
    "arrays, stored order": Reading("arrays", count=2_000_000, shuffle=None),
    "arrays, batches of 256": Reading("arrays", count=1_000_000),
    "arrays, batches of 1,024": Reading("arrays", 1024, count=2_000_000),
    "batches of photos": Reading("photos", count=50_000, function="batches"),
    "batches of arrays": Reading("arrays", count=1_000_000, function="batches"),
    "Records of photos": Reading("photos", count=30_000, function="Records"),
    "first batch of photos": Reading("photos"),
    "first batch of arrays": Reading("arrays"),
    f"arrays, {EPOCHS} epochs": Reading("arrays", count=None),
}
# A command of a tree; SOURCE and DATASET are replaced, and what DATASET holds is removed before a build.
COMMANDS = {
    "build photos": ("photos", ["build", "images", "SOURCE", "DATASET", "--shards", "16"]),
    "build photos as 256 pixels": (
        "resized",
        ["build", "images", "SOURCE", "DATASET", "--shards", "16", "--resize", "short=256"],
    ),
    "build arrays": ("arrays", ["build", "arrays", "SOURCE", "DATASET", "--shards", "16"]),
    "verify --deep photos": ("photos", ["verify", "DATASET", "--deep"]),
    "verify --deep arrays": ("arrays", ["verify", "DATASET", "--deep"]),
    "info": ("photos", ["info", "DATASET"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path, help="the folder of the package to compare with")
    parser.add_argument("new", type=Path, help="the folder of the other package")
    parser.add_argument("--photos", type=Path, required=True, help="folder of class folders of photos")
    parser.add_argument("--rounds", type=int, default=5, help="processes per measurement (default: 5)")
    parser.add_argument("--only", choices=[*COMMANDS, *READINGS], action="append", help="some measurements")
    parser.add_argument("--json", type=Path, help="write all rounds to this file")
    options = parser.parse_args()
    trees = (options.old.resolve(), options.new.resolve())
    wanted = options.only or [*COMMANDS, *READINGS]
    with tempfile.TemporaryDirectory() as folder:
        sources = {"photos": options.photos.resolve(), "arrays": drawn_arrays(Path(folder))}
        sources["resized"] = sources["photos"]
        places = [Path(folder, str(number)) for number in range(len(trees))]
        needed = {READINGS[name].dataset if name in READINGS else COMMANDS[name][0] for name in wanted}
        for tree, place in zip(trees, places, strict=True):
            for name, (dataset, command) in COMMANDS.items():
                if name.startswith("build") and dataset in needed - {"resized"}:
                    of_command(tree, command, sources[dataset], place / dataset)
        rows, taken = [], {}
        for name in wanted:
            taken[name] = [
                [one(name, tree, place, sources) for tree, place in zip(trees, places, strict=True)]
                for _ in range(options.rounds)
            ]
            rows.append(row(name, taken[name]))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(
            json.dumps({"columns": ["wall, s", "CPU, s", "MB"], "rounds": taken}, indent=1)
        )
    columns = ["", "old, s", "new, s", "wall, ratio", "CPU, ratio", "old, MB at the peak", "new, MB"]
    print(f"\n{measure.table(columns, rows)}\n\nThe best of {options.rounds} rounds; less is better.")
    print(measure.footnote(["tensorflow", "numpy"]))


def drawn_arrays(folder: Path) -> Path:
    """Write arrays of 28 x 28 bytes with labels, and return the file."""
    import numpy as np

    images = np.random.default_rng(0).integers(0, 256, (ARRAYS, 28, 28), dtype=np.uint8)
    np.savez(folder / "arrays.npz", image=images, label=np.arange(ARRAYS) % 10)
    return folder / "arrays.npz"


def row(name: str, taken: list[list[list[float]]]) -> list[str]:
    """Return the line of a table for rounds x trees x (seconds, CPU seconds, MB)."""
    (wall, cpu, memory), new = (tuple(map(min, zip(*tree, strict=True))) for tree in zip(*taken, strict=True))
    ratios = [f"{wall:.3f}", f"{new[0]:.3f}", f"{new[0] / wall:.2f}", f"{new[1] / cpu:.2f}"]
    return [name, *ratios, f"{memory:,.0f}", f"{new[2]:,.0f}"]


def one(name: str, tree: Path, place: Path, sources: dict[str, Path]) -> list[float]:
    """Return the seconds, the CPU seconds and the MB at the peak of one measurement of a tree."""
    if name in READINGS:
        return of_process(tree, name, str(place / READINGS[name].dataset))
    dataset, command = COMMANDS[name]
    if command[0] == "build":
        shutil.rmtree(place / dataset, ignore_errors=True)
    return of_command(tree, command, sources[dataset], place / dataset)


def of_command(tree: Path, command: list[str], source: Path, dataset: Path) -> list[float]:
    """Run a command of a tree, and all that it starts."""
    given = [{"SOURCE": str(source), "DATASET": str(dataset)}.get(word, word) for word in command]
    dataset.parent.mkdir(exist_ok=True)
    os.environ["PYTHONPATH"] = str(tree)
    found = measure.measure([sys.executable, "-m", "tfshards", *given], dataset.parent)
    return [found.wall, found.cpu, found.rss / measure.MB]


def of_process(tree: Path, name: str, dataset: str) -> list[float]:
    """Return the seconds, the CPU seconds and the MB at the peak of one process."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, __file__, name, dataset]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found, *taken = json.loads(done.stdout.splitlines()[-1])
    if Path(found).resolve() != (tree / "tfshards").resolve():
        raise RuntimeError(f"{found} was measured instead of {tree}")
    return [float(value) for value in taken]


def measured(reading: Reading, dataset: str) -> list[float]:
    """Read in this process; return the seconds, the CPU seconds and the MB at the peak."""
    import tensorflow as tf  # noqa: F401 its import is not measured

    from tfshards import loader

    if reading.function == "Records":
        return read_records(loader.Records(dataset), reading.count or 0)
    options: dict[str, Any] = {"batch_size": reading.batch_size, "epochs": None if reading.count else EPOCHS}
    if reading.shuffle:
        options["shuffle"] = loader.Shuffle(how=reading.shuffle)
    if reading.side:
        options["image"] = loader.Image((reading.side, reading.side), crop="random")
    begin = time.perf_counter(), time.process_time()
    batches: Iterable[object] = getattr(loader, reading.function)(dataset, **options)
    iterator: Iterator[object] = iter(batches)
    next(iterator)
    if reading.count:
        begin = time.perf_counter(), time.process_time()
        for _ in range(reading.count // reading.batch_size):
            next(iterator)
    elif reading.count is None:
        for _ in iterator:
            pass
    return since(*begin)


def read_records(records: Any, count: int) -> list[float]:
    """Read examples by number, in an order without neighbors."""
    begin = time.perf_counter(), time.process_time()
    for number in range(count):
        records[number * 7919 % len(records)]
    return since(*begin)


def since(wall: float, cpu: float) -> list[float]:
    """Return the seconds and the CPU seconds since then, and the MB at the peak."""
    taken = [time.perf_counter() - wall, time.process_time() - cpu]
    return [*taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KB / measure.MB]


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in READINGS:
        import tfshards

        print(json.dumps([os.path.dirname(tfshards.__file__), *measured(READINGS[sys.argv[1]], sys.argv[2])]))
    else:
        main()
