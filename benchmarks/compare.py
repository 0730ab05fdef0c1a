"""Compare the loaders of two source trees: wall and CPU time, the first batch, and memory.

    python benchmarks/compare.py OLD_SRC NEW_SRC --photos DATASET --arrays DATASET [--rounds 5]

Each measurement is a process of its own; those of the old and the new tree take turns, and the best round of
each counts. A dataset has one split.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measure

# Of the arrays; memory that grows with epochs shows itself only after several.
EPOCHS = 10
KB = 1024


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
    shuffle: str | None = "runs"
    side: int | None = None
    function: str = "load"


READINGS = {
    "photos, shuffled": Reading("photos", count=100_000),
    "photos, full permutation": Reading("photos", count=100_000, shuffle="full"),
    "photos, stored order": Reading("photos", count=100_000, shuffle=None),
    "photos, random crop to 224": Reading("photos", count=6_000, side=224),
    "arrays, batches of 256": Reading("arrays", count=1_000_000),
    "arrays, batches of 1,024": Reading("arrays", 1024, count=2_000_000),
    "batches of photos": Reading("photos", count=50_000, function="batches"),
    "batches of arrays": Reading("arrays", count=1_000_000, function="batches"),
    "first batch of photos": Reading("photos"),
    "first batch of arrays": Reading("arrays"),
    f"arrays, {EPOCHS} epochs": Reading("arrays", count=None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path, help="the folder src of the tree to compare with")
    parser.add_argument("new", type=Path, help="the folder src of the other tree")
    parser.add_argument("--photos", required=True, help="dataset of JPEG files")
    parser.add_argument("--arrays", required=True, help="dataset of small arrays")
    parser.add_argument("--rounds", type=int, default=5, help="processes per measurement (default: 5)")
    parser.add_argument("--only", choices=READINGS, help="one of the measurements")
    options = parser.parse_args()
    trees, rows = (options.old.resolve(), options.new.resolve()), []
    for name in [options.only] if options.only else READINGS:
        dataset = str(Path(getattr(options, READINGS[name].dataset)).resolve())
        # rounds x trees x (seconds, CPU seconds, MB)
        taken = [[of_process(tree, name, dataset) for tree in trees] for _ in range(options.rounds)]
        (wall, cpu, memory), new = (
            tuple(map(min, zip(*tree, strict=True))) for tree in zip(*taken, strict=True)
        )
        ratios = [f"{wall:.3f}", f"{new[0]:.3f}", f"{new[0] / wall:.2f}", f"{new[1] / cpu:.2f}"]
        rows.append([name, *ratios, f"{memory:,.0f}", f"{new[2]:,.0f}"])
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    columns = ["", "old, s", "new, s", "wall, ratio", "CPU, ratio", "old, MB at the peak", "new, MB"]
    print(f"\n{measure.table(columns, rows)}\n\nThe best of {options.rounds} rounds; less is better.")
    print(measure.footnote(["tensorflow", "numpy"]))


def of_process(tree: Path, name: str, dataset: str) -> list[float]:
    """Return the seconds, the CPU seconds and the MB at the peak of one process."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, __file__, name, dataset]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found, *taken = json.loads(done.stdout.splitlines()[-1])
    if Path(found).resolve() != tree / "tfshards":
        raise RuntimeError(f"{found} was measured instead of {tree}")
    return taken


def measured(reading: Reading, dataset: str) -> list[float]:
    """Read in this process; return the seconds, the CPU seconds and the MB at the peak."""
    import tensorflow as tf  # noqa: F401 its import is not measured

    from tfshards import loader

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
    taken = [time.perf_counter() - begin[0], time.process_time() - begin[1]]
    return [*taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KB / measure.MB]


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in READINGS:
        import tfshards

        print(json.dumps([os.path.dirname(tfshards.__file__), *measured(READINGS[sys.argv[1]], sys.argv[2])]))
    else:
        main()
