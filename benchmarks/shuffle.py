"""Compare the shuffle of the loader with a full permutation and with the shuffle buffer of tf.data.

    python benchmarks/shuffle.py

Records of a number and a label are stored once as a build stores them, permuted, and once sorted by label and
adopted by ``tfshards adopt``. All orders except the full permutation are read from these files. For each
metric of ``METRICS`` the table shows whether the loader is closer to the full permutation or to the
buffer.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import inputs
import measure
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

# The metrics by name, in one sentence each; a window is 16 steps.
METRICS: Mapping[str, str] = {
    "label run": "mean length of runs of equal labels in the delivered order",
    "chi-square": "Pearson's, of the label counts of a batch and of the split, per degree of freedom, mean",
    "rank correlation": "Spearman's, of stored and delivered position, absolute value, mean over epochs",
    "shards per batch": "mean number of distinct shards from which the examples of a batch come",
    "meet again, batch": "how often two examples of one batch are together in the next epoch, over chance",
    "meet again, window": "the same for windows of 16 steps",
}
WINDOW = 16
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
    print("\n".join(f"- {name}: {meaning}" for name, meaning in METRICS.items()))
    print(
        f"\n{options.examples:,} examples, {SHARDS} shards, batches of {BATCH_SIZE}, {EPOCHS} epochs; the "
        f"buffer is `interleave` over all {SHARDS} files, which are shuffled, and `shuffle({BUFFER:_})`."
    )


def build(path: Path, count: int, num_classes: int) -> Path:
    """Build a dataset from arrays that are sorted by label; the build permutes them."""
    path.mkdir()
    np.save(path / "number.npy", np.arange(count))
    np.save(path / "label.npy", np.arange(count) * num_classes // count)
    arrays = [path / "number.npy", path / "label.npy"]
    inputs.build("arrays", *arrays, path / "data", shards=SHARDS)
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
    subprocess.run(inputs.tfshards("adopt", path, "--quiet"), check=True, stdout=subprocess.DEVNULL)
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
    found = {way: qualities(epochs, labels, BATCH_SIZE, SHARDS) for way, epochs in orders.items()}
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
    for name in METRICS:
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
    return "full" if abs(value - full) < abs(value - buffer) else "buffer"


# Metrics of an order: the stored positions of the examples in the order of delivery, (num_examples,) int64. A
# full permutation is the ideal that each is compared with, not necessarily its lowest value.


def qualities(orders: Sequence[Ints], labels: Ints, batch_size: int, num_shards: int) -> dict[str, float]:
    """Return ``METRICS`` of consecutive epochs.

    Args:
        orders: the orders of at least two epochs.
        labels: labels by stored position, shape ``(num_examples,)``; every number from 0 on occurs.
        batch_size: number of examples per batch; a smaller last batch is left out.
        num_shards: number of shards, which hold the examples evenly in stored order.
    """
    pairs = list(itertools.pairwise(orders))
    again = [np.mean([meet_again(*pair, batch_size * n) for pair in pairs]) for n in (1, WINDOW)]
    values = [
        np.mean([label_run(order, labels) for order in orders]),
        np.mean([chi_square(order, labels, batch_size) for order in orders]),
        np.mean([abs(rank_correlation(order)) for order in orders]),
        np.mean([shards_per_batch(order, batch_size, num_shards) for order in orders]),
        *again,
    ]
    return {name: float(value) for name, value in zip(METRICS, values, strict=True)}


def label_run(order: Ints, labels: Ints) -> float:
    """Return the mean length of runs of equal labels."""
    return len(order) / (1 + np.count_nonzero(np.diff(labels[order])))


def chi_square(order: Ints, labels: Ints, batch_size: int) -> float:
    """Return Pearson's chi-square of the label counts of batches per degree of freedom, mean over batches.

    It is about 1 if batches are drawn at random, and below 1 if they are more even.
    """
    counts = np.bincount(labels)
    wanted = batch_size * counts / counts.sum()
    found = [np.bincount(batch, minlength=len(counts)) for batch in _batches(labels[order], batch_size)]
    return float(np.mean([((batch - wanted) ** 2 / wanted).sum() for batch in found])) / (len(counts) - 1)


def rank_correlation(order: Ints) -> float:
    """Return Spearman's rank correlation of stored and delivered position; it is 1 for stored order."""
    ranks = np.argsort(np.argsort(order))
    return float(np.corrcoef(ranks, np.arange(len(order)))[0, 1])


def shards_per_batch(order: Ints, batch_size: int, num_shards: int) -> float:
    """Return the mean number of shards from which a batch draws."""
    shards = order * num_shards // (order.max() + 1)
    return float(np.mean([len(np.unique(batch)) for batch in _batches(shards, batch_size)]))


def meet_again(order: Ints, following: Ints, size: int) -> float:
    """Return how many pairs share a window of ``size`` in both epochs, relative to full permutations."""
    total = max(order.max(), following.max()) + 1
    windows = np.full((2, total), -1)
    for row, epoch in zip(windows, (order, following), strict=True):
        kept = len(epoch) // size * size
        row[epoch[:kept]] = np.arange(kept) // size
    first, second = windows[:, (windows >= 0).all(axis=0)]
    both, one, other = (_pairs(each) for each in (first * total + second, first, second))
    return both / (one * other / (len(first) * (len(first) - 1) / 2))


def _batches(values: Ints, batch_size: int) -> Ints:
    return values[: len(values) // batch_size * batch_size].reshape(-1, batch_size)


def _pairs(groups: Ints) -> float:
    _, counts = np.unique(groups, return_counts=True)
    return float((counts * (counts - 1) // 2).sum())


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
