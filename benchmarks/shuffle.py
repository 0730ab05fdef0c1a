"""Compare the shuffle of the loader with a full permutation and with the shuffle buffer of tf.data.

    python benchmarks/shuffle.py

Records of a number and a label are stored once as a build stores them, permuted, and once sorted by label and
adopted by ``tfshards adopt``. All orders except the full permutation are read from these files. For each
metric of ``quality.METRICS`` the table shows whether the loader is closer to the full permutation or to the
buffer.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import measure
import numpy as np
import quality
from quality import Ints

SHARDS, BATCH_SIZE, EPOCHS, BUFFER = 16, 256, 3, 10_000
IDEAL, USUAL, RUNS, FULL = "full permutation", "buffer", "Shuffle()", 'Shuffle(how="full")'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--examples", type=int, default=100_000, help="records per dataset (default: 100,000)"
    )
    parser.add_argument(
        "--classes", type=int, nargs="+", default=[10, 1000], help="numbers of classes (default: 10 1000)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfshards-shuffle-") as folder:
        for num_classes in options.classes:
            for make in (build, adopt):
                path = make(Path(folder) / f"{make.__name__}-{num_classes}", options.examples, num_classes)
                title = "as built" if make is build else "sorted by label, adopted"
                print(f"\n{title}, {num_classes:,} classes\n\n{report(path, options.examples)}", flush=True)
    print("\n".join(f"- {name}: {meaning}" for name, meaning in quality.METRICS.items()))
    print(
        f"\n{options.examples:,} examples, {SHARDS} shards, batches of {BATCH_SIZE}, {EPOCHS} epochs; the "
        f"buffer is `interleave` over all {SHARDS} files, which are shuffled, and `shuffle({BUFFER:_})`."
    )


def build(path: Path, count: int, num_classes: int) -> Path:
    """Build a dataset from arrays that are sorted by label; the build permutes them."""
    path.mkdir()
    np.save(path / "number.npy", np.arange(count))
    np.save(path / "label.npy", np.arange(count) * num_classes // count)
    arrays = [str(path / "number.npy"), str(path / "label.npy")]
    _tfshards("build", "arrays", *arrays, str(path / "data"), "--shards", str(SHARDS))
    return path / "data"


def adopt(path: Path, count: int, num_classes: int) -> Path:
    """Write the same records as another tool would, in the order of the labels, and adopt them."""
    import tensorflow as tf

    path.mkdir()
    numbers = np.arange(count)
    for shard, part in enumerate(np.array_split(numbers, SHARDS)):
        with tf.io.TFRecordWriter(str(path / f"train-{shard:05d}-of-{SHARDS:05d}")) as writer:
            for number in part.tolist():
                values = {"number": number, "label": number * num_classes // count}
                features = {
                    name: tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
                    for name, value in values.items()
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
    _tfshards("adopt", str(path))
    return path


def report(path: Path, count: int) -> str:
    """Return a table of all metrics of all orders of a dataset."""
    from tfshards import loader

    stored = loaded(path, None, 1)[0]
    labels = stored[:, 1]
    at = np.argsort(stored[:, 0])
    random = np.random.default_rng(0)
    orders = {
        IDEAL: [random.permutation(count) for _ in range(EPOCHS)],
        USUAL: [at[epoch[:, 0]] for epoch in buffered(path)],
        RUNS: [at[epoch[:, 0]] for epoch in loaded(path, loader.Shuffle(), EPOCHS)],
        FULL: [at[epoch[:, 0]] for epoch in loaded(path, loader.Shuffle(how="full"), EPOCHS)],
    }
    found = {way: quality.measured(epochs, labels, BATCH_SIZE, SHARDS) for way, epochs in orders.items()}
    return table(found)


def loaded(path: Path, shuffle: object, epochs: int) -> Sequence[Ints]:
    """Return number and label of each example that ``load`` delivers, ``(num_examples, 2)``, by epoch."""
    from tfshards import loader

    read = loader.load(
        path,
        batch_size=BATCH_SIZE,
        shuffle=shuffle,
        select=("number", "label"),
        remainder="keep",
        epochs=epochs,
    )
    together = np.concatenate([np.stack(batch, axis=1) for batch in read.as_numpy_iterator()])
    return np.split(together, epochs)


def buffered(path: Path) -> Sequence[Ints]:
    """Return number and label of each example that the pipeline with a buffer delivers, by epoch."""
    import tensorflow as tf

    from tfshards.schemas import read_manifest

    tf.random.set_seed(0)
    spec = {name: tf.io.FixedLenFeature((), tf.int64) for name in ("number", "label")}
    read = (
        tf.data.Dataset.from_tensor_slices([str(path / shard.path) for shard in read_manifest(path).shards])
        .shuffle(SHARDS)
        .interleave(tf.data.TFRecordDataset, cycle_length=SHARDS)
        .shuffle(BUFFER)
        .batch(BATCH_SIZE)
        .map(lambda records: tf.io.parse_example(records, spec))
    )
    return [
        np.concatenate(
            [np.stack([batch["number"], batch["label"]], axis=1) for batch in read.as_numpy_iterator()]
        )
        for _ in range(EPOCHS)
    ]


def table(found: Mapping[str, Mapping[str, float]]) -> str:
    rows = []
    for name in quality.METRICS:
        values = [found[way][name] for way in (IDEAL, USUAL, RUNS, FULL)]
        full, buffer, *ours = values
        closer = [_closer(value, full, buffer) for value in ours]
        rows.append([name, *(f"{value:.3f}" for value in values), *closer])
    head = ["", IDEAL, USUAL, RUNS, FULL, f"{RUNS} is closer to", f"{FULL} is closer to"]
    return measure.table(head, rows)


def _closer(value: float, full: float, buffer: float) -> str:
    # the metrics of these epochs are known to about 3 %
    if abs(buffer - full) <= 0.03 * abs(full) and abs(value - full) <= 0.03 * abs(full):
        return "both"
    return "full" if quality.is_closer_to_full(value, full, buffer) else "buffer"


def _tfshards(*arguments: str) -> None:
    command = [sys.executable, "-m", "tfshards", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
