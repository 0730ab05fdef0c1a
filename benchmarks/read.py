"""Compare reading: the loader of tfshards, the fastest plain tf.data pipelines, and TFDS.

Photos are read as encoded bytes, so that decoding hides nothing; arrays are images of 784 bytes with a label.
All contestants read the same shards (TFDS through the files that each build writes for it), in one process,
in turns, after a warm-up round. The ceiling of a round is the faster of two pipelines without any tfshards
code: interleave, batch, parse; and batch inside the interleave, then parse.

Usage: python benchmarks/read.py --photos FOLDER [--copies 8] [--rounds 5]
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import inputs
import measure

BATCH_SIZE = 256
CEILING = "ceiling"
PACKAGES = ("tfshards", "tensorflow", "tensorflow-datasets", "numpy")


def main() -> None:
    """Build both datasets, time all contestants on them, print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="folder of class folders")
    parser.add_argument("--copies", type=int, default=8, help="copies of each photo (default: 8)")
    parser.add_argument("--arrays", type=int, default=400_000, help="arrays of 784 bytes (default: 400,000)")
    parser.add_argument("--rounds", type=int, default=5, help="number of measured runs (default: 5)")
    measure.add_json(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfshards-read-") as folder:
        work = Path(folder)
        source = inputs.copy_photos(options.photos, work / "source", options.copies)
        inputs.build("images", source, work / "photos", "--check", "none")
        inputs.build("arrays", *inputs.write_arrays(work / "values", options.arrays), work / "arrays")
        taken = {}
        for name in ("photos", "arrays"):
            taken[f"{name}/s"] = time_all(work / name, options.rounds)
            print(f"\n{name}\n\n{report(taken[f'{name}/s'])}", flush=True)
    print(measure.footnote(PACKAGES))
    measure.save(options.json, taken, PACKAGES)


def time_all(dataset: Path, rounds: int) -> Mapping[str, list[float]]:
    """Return the examples per second of each contestant in each round, except the first round."""
    contestants = _contestants(dataset)
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, make in contestants.items():
            speed = _speed(make)
            if number:
                taken[name].append(speed)
                print(f"round {number} of {rounds}: {name}: {speed:,.0f}/s", file=sys.stderr)
    return taken


def report(taken: Mapping[str, list[float]]) -> str:
    bare = [speeds for contestant, speeds in taken.items() if contestant.startswith(CEILING)]
    best = [max(pair) for pair in zip(*bare, strict=True)]
    rows = [
        (contestant, measure.spread(speeds, 0), measure.spread(measure.ratios(speeds, best), 2))
        for contestant, speeds in taken.items()
    ]
    return measure.table(("", "examples/s", "of the round's ceiling"), rows)


def _speed(make: Callable[[], Iterable[object]]) -> float:
    iterator = iter(make())
    started = time.perf_counter()
    batches = sum(1 for _ in iterator)
    return batches * BATCH_SIZE / (time.perf_counter() - started)


def _contestants(dataset: Path) -> dict[str, Callable[[], Iterable[object]]]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf
    import tensorflow_datasets as tfds

    from tfshards import loader
    from tfshards.schemas import read_manifest

    manifest = read_manifest(dataset)
    files = [str(dataset / shard.path) for shard in manifest.shards]
    spec = {
        feature.name: tf.io.FixedLenFeature((), tf.int64 if feature.wire == "int64" else tf.string)
        for feature in manifest.schema.features
    }
    raw = [feature for feature in manifest.schema.features if feature.kind == "raw"]

    def parse(records):
        values = tf.io.parse_example(records, spec)
        for feature in raw:
            elements = tf.io.decode_raw(values[feature.name], feature.dtype)
            values[feature.name] = tf.reshape(elements, (-1, *feature.shape))
        return values

    def interleave_then_batch():
        return (
            tf.data.Dataset.from_tensor_slices(files)
            .interleave(tf.data.TFRecordDataset, inputs.SHARDS, 16, num_parallel_calls=tf.data.AUTOTUNE)
            .batch(BATCH_SIZE, drop_remainder=True)
            .map(parse, tf.data.AUTOTUNE)
            .prefetch(tf.data.AUTOTUNE)
        )

    def batch_inside_interleave():
        def batches(file):
            return tf.data.TFRecordDataset(file).batch(BATCH_SIZE, drop_remainder=True)

        return (
            tf.data.Dataset.from_tensor_slices(files)
            .interleave(batches, inputs.SHARDS, num_parallel_calls=tf.data.AUTOTUNE)
            .map(parse, tf.data.AUTOTUNE)
            .prefetch(tf.data.AUTOTUNE)
        )

    def with_tfds():
        builder = tfds.builder_from_directory(str(dataset / manifest.folder))
        decoders = {f.name: tfds.decode.SkipDecoding() for f in manifest.schema.features if f.kind == "image"}
        read = builder.as_dataset(split="train", decoders=decoders or None, shuffle_files=True)
        return read.batch(BATCH_SIZE, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    return {
        f"{CEILING}: interleave, batch, parse": interleave_then_batch,
        f"{CEILING}: batch inside the interleave, parse": batch_inside_interleave,
        "tfshards, shuffled": lambda: loader.load(
            dataset, batch_size=BATCH_SIZE, shuffle=loader.Shuffle(seed=0)
        ),
        "tfshards, stored order": lambda: loader.load(dataset, batch_size=BATCH_SIZE),
        "TFDS": with_tfds,
    }


if __name__ == "__main__":
    main()
