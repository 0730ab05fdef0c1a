"""Measure the choice of images that are decoded at a time, and of batches that are ready ahead.

Random views of photos are read by an empty loop, and by one whose steps take 1.1 times as long as a batch
took the empty loop of the present choice, as those of a network on another device: then the share of the time
that is not waited. All choices read the same shards, in turns.

Usage: python benchmarks/ahead.py --photos FOLDER [--rounds 5] [--seconds 4]
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from pathlib import Path

import measure

BATCH_SIZE, SIDE = 128, 224
DECODED_PER_CPU, BATCHES = (1, 2, 4, 8, 16), (1, 2, 4)
CHOSEN = (4, 2)
FORMS = {
    "JPEG for training, random crop": ("keep", "random"),
    "pixels for training, shift": ("pixels", "shift"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="folder of class folders")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each choice (default: 5)")
    parser.add_argument("--seconds", type=float, default=4, help="time of each run (default: 4)")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from tfshards import prep

    with tempfile.TemporaryDirectory(prefix="tfshards-ahead-") as work:
        for name, (stored, crop) in FORMS.items():
            images = prep.ImageOptions(for_training=SIDE, format=stored)
            prep.build(prep.ImageFolder(options.photos, images=images), Path(work) / stored, log=print)
            print(report(name, Path(work) / stored, crop, options.rounds, options.seconds), flush=True)
    print(measure.machine(["tfshards", "tensorflow"]))
    words = f"--rounds {options.rounds} --seconds {options.seconds:g}"
    print(f"\n`python benchmarks/ahead.py --photos PHOTOS {words}`")


def report(name: str, dataset: Path, crop: str, rounds: int, seconds: float) -> str:
    """Return a table of images per second, and of the share of the time that is not waited."""
    choices = [*itertools.product(DECODED_PER_CPU, BATCHES)]
    rates: dict[tuple[int, int], list[float]] = {choice: [] for choice in choices}
    shares: dict[tuple[int, int], list[float]] = {choice: [] for choice in choices}
    step = 1.1 / rate(dataset, crop, CHOSEN, seconds, 0)
    for _ in range(rounds):
        for choice in choices:
            rates[choice].append(rate(dataset, crop, choice, seconds, 0))
            shares[choice].append(rate(dataset, crop, choice, seconds, step) * step)
    rows = [
        (
            *map(str, choice),
            measure.spread([BATCH_SIZE * each for each in rates[choice]], 0),
            measure.spread(measure.ratios(rates[choice], rates[CHOSEN]), 2),
            measure.spread(shares[choice], 3),
        )
        for choice in choices
    ]
    head = ("decoded per core", "batches ahead", "images/s", "times 4 and 2", "share not waited")
    return f"\n{name}\n\n{measure.table(head, rows)}\n"


def rate(dataset: Path, crop: str, choice: tuple[int, int], seconds: float, step: float) -> float:
    """Return the batches per second of a loop whose steps take ``step`` seconds."""
    from tfshards import loader
    from tfshards.loader import pipeline
    from tfshards.loader.options.worker import num_cpus
    from tfshards.loader.tensors.batches import Ahead

    pipeline.Ahead = lambda: Ahead(decoded=choice[0] * num_cpus(), batches=choice[1])
    image = loader.Image((SIDE, SIDE), crop=crop, flip="horizontal")
    views = iter(
        loader.load(dataset, batch_size=BATCH_SIZE, image=image, shuffle=loader.Shuffle(seed=0), epochs=None)
    )
    # what is ready by then
    for _ in range(8):
        next(views)
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        next(views)
        count += 1
        time.sleep(step)
    return count / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
