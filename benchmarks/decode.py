"""Compare decoding in the graph: tfshards and TFDS, and crops fused with decoding.

All contestants read the same shards, in one process, in turns, after a warm-up round. Before anything is
timed, the pixels of the contestants are compared. The goals refer to wall time, which other processes on the
machine blur, since a contestant with more threads then gets a larger share. The CPU time of all threads is
reported, too.

Usage: python benchmarks/decode.py --photos FOLDER [--copies 2] [--rounds 7]
"""

import argparse
import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import measure
import numpy as np
from read import build_photos

BATCH_SIZE = 128
SIZE = 224
OURS, TFDS, TFDS_OWN = "tfshards", "TFDS, same pixels", "TFDS, its own JPEG transform"
BARE, BARE_FAST = "tf.data, not shuffled", "tf.data, not shuffled, INTEGER_FAST"
CROP, PLAIN_CROP = "tfshards, random crop", "tf.data, decoded whole, then cropped"


def main() -> None:
    """Build the dataset, compare pixels, time all contestants, print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="folder of class folders")
    parser.add_argument("--copies", type=int, default=2, help="copies of each photo (default: 2)")
    parser.add_argument("--rounds", type=int, default=7, help="number of measured runs (default: 7)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfshards-decode-") as work:
        contestants = _contestants(build_photos(options.photos, Path(work), options.copies))
        lines = pixels(contestants)
        print(report(time_all(contestants, options.rounds)))
    print("\n".join(["", *lines, ""]))
    print(measure.machine(["tfshards", "tensorflow", "tensorflow-datasets", "numpy"]))
    command = f"--photos PHOTOS --copies {options.copies} --rounds {options.rounds}"
    print(f"\n`python benchmarks/decode.py {command}`")


def time_all(contestants: Mapping[str, Callable], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return wall and CPU seconds per image of each contestant in each round, except the first round."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    print(f"load average before: {os.getloadavg()[0]:.1f}", file=sys.stderr)
    for number in range(rounds + 1):
        for name, make in contestants.items():
            iterator = iter(make())
            wall, cpu = time.perf_counter(), time.process_time()
            images = sum(BATCH_SIZE for _ in iterator)
            seconds = (time.perf_counter() - wall) / images, (time.process_time() - cpu) / images
            if number:
                taken[name].append(seconds)
                shown = f"{1 / seconds[0]:,.0f}/s, {seconds[1] * 1e6:,.0f} us CPU"
                print(f"round {number} of {rounds}: {name}: {shown}", file=sys.stderr)
    return taken


def report(taken: Mapping[str, list[tuple[float, float]]]) -> str:
    rows = []
    for name, seconds in taken.items():
        walls, cpus = zip(*seconds, strict=True)
        speeds = [1 / wall for wall in walls]
        rows.append((name, measure.spread(speeds, 0), measure.spread([cpu * 1e6 for cpu in cpus], 0)))
    lines = [measure.table(("", "images/s", "CPU, µs per image"), rows), ""]
    compared = [
        ("decoded and resized, over TFDS with the same pixels", TFDS, OURS, 1.15),
        ("decoded and resized, over TFDS with its own JPEG transform", TFDS_OWN, OURS, None),
        ("decoded and resized, over tf.data", BARE, OURS, 0.97),
        ("decoded and resized, over tf.data with INTEGER_FAST", BARE_FAST, OURS, None),
        ("random crop fused with decoding, over decoding whole", PLAIN_CROP, CROP, 1.35),
    ]
    for text, slow, fast, limit in compared:
        wall, cpu = (
            measure.ratios([each[clock] for each in taken[slow]], [each[clock] for each in taken[fast]])
            for clock in (0, 1)
        )
        shown = f"{text}: wall {measure.spread(wall, 2)}, CPU {measure.spread(cpu, 2)}"
        median = statistics.median(wall)
        lines.append(measure.goal(shown, median, limit, at_least=True) if limit else f"- {shown}")
    return "\n".join(lines)


def pixels(contestants: Mapping[str, Callable]) -> list[str]:
    """Return how much the pixels of the contestants differ.

    Raises:
        SystemExit: those of TFDS are not those of tfshards.
    """
    ours, theirs = (_digests(contestants[name]("key")) for name in (OURS, TFDS))
    shared = ours.keys() & theirs.keys()
    if any(ours[key] != theirs[key] for key in shared) or len(shared) < 0.9 * len(ours):
        raise SystemExit("TFDS delivers other pixels than tfshards")
    lines = [f"- TFDS and tfshards deliver the same pixels, bit for bit ({len(shared):,} images compared)"]
    apart = _apart(contestants[PLAIN_CROP]("key"), contestants[CROP]("key"))
    lines.append(f"- values of a crop fused with decoding, against cropping the whole: {apart}")
    return lines


def _digests(dataset) -> dict[bytes, bytes]:
    # pipelines that interleave have no first images in common, and all images do not fit in memory
    return {
        key: hashlib.blake2b(image.tobytes()).digest()
        for images, keys in dataset.as_numpy_iterator()
        for image, key in zip(images, keys.tolist(), strict=True)
    }


def _apart(some, others) -> str:
    differences = []
    for (images, keys), (other_images, other_keys) in zip(
        some.as_numpy_iterator(), others.as_numpy_iterator(), strict=True
    ):
        if keys.tolist() != other_keys.tolist():
            raise SystemExit("the contestants read different examples")
        difference = np.abs(images - other_images)
        differences.append((difference.mean(), difference.max()))
    mean, highest = zip(*differences, strict=True)
    return f"by {np.mean(mean):.2f} on average, {max(highest):.0f} at most"


def _contestants(dataset: Path) -> dict[str, Callable]:
    """Return functions that make the contestants' datasets: float32 images with their labels or keys."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf
    import tensorflow_datasets as tfds

    from tfshards import loader
    from tfshards.loader.examples.crops import crop_name, draws_of, random_box
    from tfshards.loader.tensors.ops import GRAPH
    from tfshards.schemas import read_manifest

    manifest = read_manifest(dataset)
    files = [str(dataset / shard.path) for shard in manifest.shards]
    size = (SIZE, SIZE)
    crop = loader.Image(size, "random", dtype="float32")

    def ours(image, shuffle=None):
        return lambda second="label": loader.load(
            dataset, batch_size=BATCH_SIZE, select=("image", second), image=image, shuffle=shuffle
        )

    def whole(encoded, method="INTEGER_ACCURATE"):
        return tf.io.decode_jpeg(encoded, 3, dct_method=method)

    @tfds.decode.make_decoder()
    def same_pixels(encoded, feature):
        return whole(encoded)

    def with_tfds(decoders):
        def make(second="label"):
            builder = tfds.builder_from_directory(str(dataset / manifest.folder))
            read = builder.as_dataset(split="train", decoders=decoders, shuffle_files=True)
            resized = read.map(lambda x: (tf.image.resize(x["image"], size), x[second]), tf.data.AUTOTUNE)
            return resized.batch(BATCH_SIZE, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

        return make

    spec = {
        "image": tf.io.FixedLenFeature((), tf.string),
        "label": tf.io.FixedLenFeature((), tf.int64),
        "key": tf.io.FixedLenFeature((), tf.string),
    }

    def bare(method):
        def make(second="label"):
            def image(record):
                example = tf.io.parse_single_example(record, spec)
                return tf.image.resize(whole(example["image"], method), size), example[second]

            shards = tf.data.Dataset.from_tensor_slices(files)
            records = shards.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)
            decoded = records.map(image, tf.data.AUTOTUNE)
            return decoded.batch(BATCH_SIZE, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

        return make

    count = sum(shard.num_examples for shard in manifest.shards)
    # the boxes of the first epoch, computed in advance, so that they cost the plain pipeline nothing
    boxes = draws_of([crop], 0, np.arange(count))[crop_name(crop)]

    def whole_then_cropped(second="label"):
        def image(record, draws):
            example = tf.io.parse_single_example(record, spec)
            pixels = whole(example["image"])
            top, left, height, width = tf.unstack(random_box(GRAPH, tf.shape(pixels)[:2], size, draws))
            cropped = pixels[top : top + height, left : left + width]
            return tf.image.resize(cropped, size), example[second]

        records = tf.data.Dataset.zip(
            tf.data.TFRecordDataset(files), tf.data.Dataset.from_tensor_slices(boxes)
        )
        decoded = records.map(image, tf.data.AUTOTUNE)
        return decoded.batch(BATCH_SIZE, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    return {
        OURS: ours(loader.Image(size, dtype="float32"), loader.Shuffle(seed=0)),
        TFDS: with_tfds({"image": same_pixels()}),
        TFDS_OWN: with_tfds(None),
        BARE: bare("INTEGER_ACCURATE"),
        BARE_FAST: bare("INTEGER_FAST"),
        CROP: ours(crop),
        PLAIN_CROP: whole_then_cropped,
    }


if __name__ == "__main__":
    main()
