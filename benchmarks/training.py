"""How fast a training run gets random views of photos, by how they are stored: images/s and per CPU second.

With ``--mosaics``, so many photos of 375 by 500 pixels are made of the given ones, six in each at two thirds
of their size, as JPEG of quality 98: 110 kB, as those of ImageNet.

The usual pipeline is bare tf.data over the same records as they are: interleave, parse, decode a random crop,
resize to 224, flip, batches of 256. TFDS reads its own records in the same way. ``batches`` and other tools
(benchmarks/peers/views.py), which have an environment of their own, draw views with Pillow, FFCV with OpenCV.
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

import contestants
import measure
from peers import views
from peers.environments import TORCH, Tool, python_of

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
PEERS = Tool(
    "views",
    None,
    None,
    (
        TORCH,
        "pillow==12.3.0",
        "webdataset==1.0.2",
        "grain==0.2.18",
        "array-record==0.8.6",
        "mosaicml-streaming==0.13.0",
        "litdata==0.2.76",
        # is compiled: apt-get install g++ pkg-config libopencv-dev libturbojpeg0-dev
        "ffcv==1.0.2",
    ),
)


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
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "tfshards-peers")
    parser.add_argument(
        "--only", nargs="*", help="beginnings of names, in addition to the usual pipeline (default: all)"
    )
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(read(options.child[0], Path(options.child[1]))))
        return
    names = [TFDS, *OURS, *views.TOOLS]
    if options.only is not None:
        names = [name for name in names if name.startswith(tuple(options.only))]
    with tempfile.TemporaryDirectory(prefix="tfshards-training-") as work:
        write(options, Path(work), names)
        every: dict[int, dict[str, list[tuple[float, float]]]] = {cores: {} for cores in options.cores}
        for number, (cores, taken) in itertools.product(range(options.rounds), every.items()):
            for name in [USUAL, *names]:
                found = json.loads(run(reader(options, Path(work), name, cores), cores).splitlines()[-1])
                taken.setdefault(name, []).append(tuple(found))
                print(
                    f"round {number + 1}: {cores}: {name}: {1 / found[0]:,.0f}", file=sys.stderr, flush=True
                )
    for cores, taken in every.items():
        print(f"\n{cores} core{'s' if cores > 1 else ''}:\n\n{report(taken)}")
    for name in every[max(every)] if len(every) > 1 else ():
        walls = [[wall for wall, _ in every[cores][name]] for cores in (min(every), max(every))]
        print(f"- {name}: {max(every)} cores to {min(every)}: {measure.spread(measure.ratios(*walls), 2)}")
    print(measure.machine(["tfshards", "tensorflow", "tensorflow-datasets", "pillow", "numpy"]))
    words = f"--mosaics {options.mosaics} " if options.mosaics else ""
    words += f"--rounds {options.rounds} --cores {' '.join(map(str, options.cores))}"
    print(f"\n`python benchmarks/training.py --photos PHOTOS {words}`")


def write(options: argparse.Namespace, work: Path, names: list[str]) -> None:
    """Write the photos in the form of each contestant."""
    tfshards = Path(sys.executable).with_name("tfshards")
    photos = work / "photos"
    if options.mosaics:
        write_mosaics(options.photos, photos, options.mosaics)
    else:
        photos.symlink_to(options.photos.absolute())
    for stored, words in STORED.items():
        command = [tfshards, "build", "images", photos, folder_of(work, stored), "--shards", "8"]
        subprocess.run([*command, *words, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    if TFDS in names:
        command = [sys.executable, contestants.__file__, "tfds", photos, work / "tfds", "8"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for name in names:
        if name in views.TOOLS:
            command = [python_of(PEERS, options.cache), views.__file__, "write", name, photos]
            run([*command, work / views.TOOLS[name][0]], os.cpu_count() or 1)


def reader(options: argparse.Namespace, work: Path, name: str, cores: int) -> list[object]:
    """Return the command of a contestant."""
    if name not in views.TOOLS:
        return [sys.executable, __file__, "--child", name, work]
    command = [python_of(PEERS, options.cache), views.__file__, "read", name, cores]
    return [*command, work / views.TOOLS[name][0]]


def run(command: list[object], cores: int) -> str:
    """Return what a command prints that has only the cores given."""
    words = ["taskset", "--cpu-list", f"0-{cores - 1}", *map(str, command)]
    # libraries that count the cores of the machine would start a thread for each
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": str(cores)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr[-2000:]}")
    return done.stdout


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
    found = records.map(view, num_parallel_calls=tf.data.AUTOTUNE)
    return found.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


if __name__ == "__main__":
    main()
