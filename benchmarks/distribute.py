"""Compare two replicas of MirroredStrategy with one: does distributing the batches reduce the reading speed?

A custom training loop whose step only reads the data, over photos decoded to 224 pixels, and over arrays of
784 bytes and of 30,000 bytes that are not processed. All read the same shards in one process, in turns, after
a warm-up round, and are timed from the first batch to the last: when an iterator of tf.distribute is deleted,
TensorFlow's tuning thread may hold it for up to two seconds, for one replica as for two. The replicas are
logical CPU devices, which share the processors: two cannot be faster than one, only the loader and
tf.distribute can make them slower. A batch that is repeated shows what tf.distribute takes alone.

Usage: python benchmarks/distribute.py --photos FOLDER [--copies 2] [--rounds 7]
                                       [--arrays 200000] [--images 8000]
"""

import argparse
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import measure
import numpy as np
from read import build_photos

GLOBAL_BATCH_SIZE, SIDE = 128, 224
PHOTOS = "photos, decoded"
GOAL = 0.95
ONE, TWO = "one replica", "two replicas"
STEPS = 500
READY = "a batch that is repeated, "


def main() -> None:
    """Build both datasets, time one and two replicas on them, print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="folder of class folders")
    parser.add_argument("--copies", type=int, default=2, help="copies of each photo (default: 2)")
    parser.add_argument("--arrays", type=int, default=200_000, help="arrays of 784 bytes (default: 200,000)")
    parser.add_argument("--images", type=int, default=8_000, help="arrays of 30,000 bytes (default: 8,000)")
    parser.add_argument("--rounds", type=int, default=7, help="number of measured runs (default: 7)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfshards-distribute-") as work:
        datasets = {
            PHOTOS: build_photos(options.photos, Path(work), options.copies),
            "arrays": build(Path(work) / "arrays", options.arrays, 784),
            "images": build(Path(work) / "images", options.images, 30_000),
        }
        for name, dataset in datasets.items():
            print(report(name, time_replicas(dataset, options.rounds, name == PHOTOS)), flush=True)
    print(measure.machine(["tfshards", "tensorflow", "numpy"]))
    command = f"--photos PHOTOS --copies {options.copies} --rounds {options.rounds}"
    print(f"\n`python benchmarks/distribute.py {command}`")


def build(path: Path, count: int, num_bytes: int) -> Path:
    """Build ``count`` examples with an array of ``num_bytes`` bytes."""
    from tfshards.prep import Arrays
    from tfshards.prep import build as build_dataset

    random = np.random.default_rng(0)
    data = random.integers(0, 256, (count, num_bytes), dtype=np.uint8)
    build_dataset(Arrays({"image": data, "label": np.arange(count) % 10}), path, shards=16)
    return path


def time_replicas(dataset: Path, rounds: int, decoded: bool) -> Mapping[str, list[float]]:
    """Return the examples per second of one replica and of two in each round, except the first round."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    from tfshards import loader

    cpu = tf.config.list_physical_devices("CPU")[0]
    if not tf.config.get_logical_device_configuration(cpu):
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    devices = {ONE: ["CPU:0"], TWO: ["CPU:0", "CPU:1"]}
    contestants = {}
    for name, replicas in devices.items():
        strategy = tf.distribute.MirroredStrategy(replicas)
        data = loader.distribute(
            strategy,
            dataset,
            global_batch_size=GLOBAL_BATCH_SIZE,
            shuffle=loader.Shuffle(seed=0),
            image=loader.Image(size=(SIDE, SIDE)) if decoded else None,
        )
        step = _step(strategy)
        contestants[name] = (data, step)
        image = loader.Image(size=(SIDE, SIDE)) if decoded else None
        batch = next(iter(loader.load(dataset, batch_size=GLOBAL_BATCH_SIZE, image=image)))
        repeated = tf.data.Dataset.from_tensors(batch).repeat(STEPS)
        contestants[READY + name] = (strategy.experimental_distribute_dataset(repeated), step)
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, (data, step) in contestants.items():
            started, batches = 0.0, -1
            for batch in data:
                step(batch)
                batches += 1
                if not batches:
                    started = time.perf_counter()
                ended = time.perf_counter()
            if number:
                taken[name].append(batches * GLOBAL_BATCH_SIZE / (ended - started))
    return taken


def report(name: str, taken: Mapping[str, list[float]]) -> str:
    """Return the speeds, the ratio of two replicas to one, and whether it reaches the goal."""
    ratios, alone = (measure.ratios(taken[of + TWO], taken[of + ONE]) for of in ("", READY))
    rows = [(contestant, measure.spread(speeds, 0)) for contestant, speeds in taken.items()]
    lines = [f"\n{name}\n", measure.table(("", "examples/s"), rows)]
    lines.append(f"- two replicas to one, by round: {measure.spread(ratios, 2)}")
    lines.append(f"- the same with a batch that is repeated: {measure.spread(alone, 2)}")
    one, two = (float(np.median(GLOBAL_BATCH_SIZE / np.array(taken[READY + of]))) for of in (ONE, TWO))
    bound = 1 / (1 + (two - one) * float(np.median(taken[ONE])) / GLOBAL_BATCH_SIZE)
    lines.append(f"- two replicas to one, if the loader took no longer for two: {bound:.2f}")
    lines.append(measure.goal(f"{name}: two replicas to one", float(np.median(ratios)), GOAL, at_least=True))
    return "\n".join(lines)


def _step(strategy):
    import tensorflow as tf

    @tf.function
    def step(batch):
        strategy.run(
            lambda values: tf.reduce_sum(values["label"]) + tf.size(values["image"], tf.int64), (batch,)
        )

    return step


if __name__ == "__main__":
    main()
