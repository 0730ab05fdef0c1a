"""How fast a training run gets random views of photos, by how they are stored: images/s and per CPU second.

With ``--mosaics``, so many photos of 375 by 500 pixels are made of the given ones, six in each at two thirds
of their size, as JPEG of quality 98: 110 kB, as those of ImageNet.

The usual pipeline is bare tf.data over the same records as they are: interleave, parse, decode a random crop,
resize to 224, flip, batches of 256. TFDS reads its own records in the same way. ``batches`` and other tools
(views.py), which have an environment of their own, draw views with Pillow.
All read in turns, in processes of their own, on the cores given: 14 batches after the first 4. CPU time is
that of all processes.

Usage: python benchmarks/training.py --photos FOLDER [--mosaics N] [--rounds 5] [--cores 1]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import inputs
import measure
import views
from environments import add_cache, found, python_of

import prep

PACKAGES = ("tfshards", "tensorflow", "tensorflow-datasets", "pillow", "numpy")
SIZE, BATCH = views.SIZE, views.BATCH
USUAL = "tf.data, originals, random crop"
TFDS = "TFDS, originals, random crop"
# name -> words of the build, and options of loader.Image
STORED = {
    "originals": [],
    "JPEG for training": ["--for-training", str(SIZE)],
    "pixels for training": ["--for-training", str(SIZE), "--format", "pixels"],
}
OURS = {
    f"tfshards {function}, {stored}, {view}": (function, stored, crop)
    for function in ("load", "batches")
    for stored in STORED
    for view, crop in (("random crop", "random"), ("shift", "shift"))
    # a window of originals shows less of a scene than one of smaller images
    if (stored, crop) != ("originals", "shift")
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--photos", type=Path, help="folder of class folders")
    parser.add_argument(
        "--mosaics", type=int, help="photos that are made of them (default: they as they are)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each (default: 5)")
    parser.add_argument(
        "--cores", type=int, nargs="+", default=[1], help="cores of each process, in turns (default: 1)"
    )
    add_cache(parser)
    measure.add_json(parser)
    parser.add_argument(
        "--only", nargs="*", help="beginnings of names, in addition to the usual pipeline (default: all)"
    )
    options = parser.parse_args()
    names = [TFDS, *OURS, *views.TOOLS]
    if options.only is not None:
        names = [name for name in names if name.startswith(tuple(options.only))]
    with tempfile.TemporaryDirectory(prefix="tfshards-training-") as work:
        write(options, Path(work), names)
        every: dict[int, dict[str, list[tuple[float, float]]]] = {cores: {} for cores in options.cores}
        for number, (cores, taken) in itertools.product(range(options.rounds), every.items()):
            for name in [USUAL, *names]:
                wall, cpu = found(reader(options, Path(work), name, cores), cores)
                taken.setdefault(name, []).append((wall, cpu))
                print(f"round {number + 1}: {cores}: {name}: {1 / wall:,.0f}", file=sys.stderr, flush=True)
    for cores, taken in every.items():
        print(f"\n{cores} core{'s' if cores > 1 else ''}:\n\n{report(taken)}")
    for name in every[max(every)] if len(every) > 1 else ():
        walls = [[wall for wall, _ in every[cores][name]] for cores in (min(every), max(every))]
        print(f"- {name}: {max(every)} cores to {min(every)}: {measure.spread(measure.ratios(*walls), 2)}")
    print(measure.footnote(PACKAGES))
    rates = {
        f"images/s, {cores} cores": {name: [1 / wall for wall, _ in times] for name, times in taken.items()}
        for cores, taken in every.items()
    }
    measure.save(options.json, rates, PACKAGES)


def write(options: argparse.Namespace, work: Path, names: list[str]) -> None:
    """Write the photos in the form of each contestant."""
    photos = work / "photos"
    if options.mosaics:
        write_mosaics(options.photos, photos, options.mosaics)
    else:
        photos.symlink_to(options.photos.absolute())
    for stored, words in STORED.items():
        inputs.build("images", photos, folder_of(work, stored), *words, shards=views.SHARDS)
    if TFDS in names:
        command = [sys.executable, prep.__file__, "tfds_photos", photos, work / "tfds"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for name in names:
        if name in views.TOOLS:
            command = [python_of("views", options.cache), views.__file__, "write", name, photos]
            found([*command, work / views.TOOLS[name][0]], os.cpu_count() or 1)


def reader(options: argparse.Namespace, work: Path, name: str, cores: int) -> list[object]:
    """Return the command of a contestant."""
    if name not in views.TOOLS:
        return [sys.executable, __file__, "read", name, work]
    command = [python_of("views", options.cache), views.__file__, "read", name, cores]
    return [*command, work / views.TOOLS[name][0]]


def write_mosaics(photos: Path, folder: Path, count: int) -> None:
    """Write photos that consist of others, in two classes."""
    from PIL import Image

    files = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    place = 0
    for number in range(count):
        mosaic = Image.new("RGB", (500, 375))
        for top in (0, 188):
            for left in (0, 167, 334):
                with Image.open(files[place % len(files)]) as photo:
                    part = photo.convert("RGB").resize((photo.width * 2 // 3, photo.height * 2 // 3))
                    mosaic.paste(part, (left, top))
                place += 1
        path = folder / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        mosaic.save(path, quality=98)


def folder_of(work: str | Path, stored: str) -> Path:
    """Return the folder of the dataset in which photos are stored in a way."""
    return Path(work) / stored.replace(" ", "-")


def report(taken: dict[str, list[tuple[float, float]]]) -> str:
    rows = []
    usual_walls, usual_cpus = zip(*taken[USUAL], strict=True)
    for name, times in taken.items():
        walls, cpus = zip(*times, strict=True)
        rows.append(
            (
                name,
                measure.spread([1 / wall for wall in walls], 0),
                measure.spread([1 / cpu for cpu in cpus], 0),
                measure.spread(measure.ratios(usual_walls, walls), 2),
                measure.spread(measure.ratios(usual_cpus, cpus), 2),
            )
        )
    head = ("", "images/s", "images per CPU second", "times the usual, wall", "CPU")
    return measure.table(head, rows)


def read(name: str, work: Path) -> tuple[float, float]:
    """Return seconds of wall time and of CPU time per image."""
    if name in (USUAL, TFDS):
        batches = iter(usual(folder_of(work, "originals") if name == USUAL else work / "tfds"))
    else:
        batches = ours(work, *OURS[name])
    return views.rates(batches)


def ours(work: Path, function: str, stored: str, crop: str) -> Iterator[object]:
    from tfshards import loader

    shared = {
        "batch_size": BATCH,
        "shuffle": loader.Shuffle(seed=0),
        "select": ("image", "label"),
        "image": loader.Image((SIZE, SIZE), crop=crop, flip="horizontal"),
    }
    function_of = getattr(loader, function)
    return iter(function_of(folder_of(work, stored), "train", epochs=None, **shared))


def usual(path: Path):
    import tensorflow as tf

    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    whole = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])

    def view(record):
        example = tf.io.parse_single_example(record, features)
        sides = tf.io.extract_jpeg_shape(example["image"])
        start, size, _ = tf.image.sample_distorted_bounding_box(sides, whole, area_range=(0.08, 1.0))
        box = tf.concat([start[:2], size[:2]], 0)
        pixels = tf.io.decode_and_crop_jpeg(example["image"], box, channels=3)
        pixels = tf.image.random_flip_left_right(tf.image.resize(pixels, (SIZE, SIZE)))
        return tf.cast(tf.round(pixels), tf.uint8), example["label"]

    # in the folder of a build, and those of TFDS in folders of name and version
    paths = [each for each in path.rglob("*train*tfrecord*") if each.parent.name != "index"]
    files = tf.data.Dataset.from_tensor_slices(sorted(map(str, paths))).shuffle(len(paths), seed=0)
    records = files.repeat().interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)
    views_of = records.map(view, num_parallel_calls=tf.data.AUTOTUNE)
    return views_of.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        print(json.dumps(read(sys.argv[2], Path(sys.argv[3]))))
    else:
        main()
