"""How fast a training run gets random views of photos, by how they are stored: images/s and per CPU second.

With ``--mosaics``, so many photos of 375 by 500 pixels are made of the given ones, six in each at two thirds
of their size, as JPEG of quality 98: 110 kB, as those of ImageNet.

The usual pipeline is bare tf.data over the same records as they are: interleave, parse, decode a random crop,
resize to 224, flip, batches of 256. All read one epoch after a first batch, in processes of their own, in
turns, on the cores given.

Usage: python benchmarks/training.py --photos FOLDER [--mosaics N] [--rounds 5] [--cores 1]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure

SIZE, BATCH = 224, 256
USUAL = "tf.data, originals, random crop"
# name -> words of the build, and options of loader.Image
STORED = {
    "originals": [],
    "JPEG for training": ["--for-training", str(SIZE)],
    "pixels for training": ["--for-training", str(SIZE), "--format", "pixels"],
}
CROPS = {"random crop": {"crop": "random"}, "shift": {"crop": "shift"}}
OURS = {
    f"{stored}, {crop}": (stored, CROPS[crop])
    for stored in STORED
    for crop in CROPS
    if (stored, crop) != ("originals", "shift")
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--photos", type=Path, help="folder of class folders")
    parser.add_argument(
        "--mosaics", type=int, help="photos that are made of them (default: they as they are)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each (default: 5)")
    parser.add_argument("--cores", type=int, default=1, help="cores of each process (default: 1)")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(read(options.child[0], Path(options.child[1]))))
        return
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in (USUAL, *OURS)}
    with tempfile.TemporaryDirectory(prefix="tfshards-training-") as work:
        tfshards = Path(sys.executable).with_name("tfshards")
        photos = options.photos
        if options.mosaics:
            photos = Path(work) / "photos"
            write_mosaics(options.photos, photos, options.mosaics)
        for stored, words in STORED.items():
            command = [tfshards, "build", "images", photos, folder_of(work, stored), "--shards", "8"]
            subprocess.run([*command, *words, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        for number in range(options.rounds + 1):
            for name, times in taken.items():
                command = ["taskset", "-c", f"0-{options.cores - 1}", sys.executable, __file__]
                found = subprocess.run(
                    [*command, "--child", name, work], check=True, stdout=subprocess.PIPE, text=True
                )
                if number:
                    times.append(tuple(json.loads(found.stdout.splitlines()[-1])))
    print(report(taken))
    print(measure.machine(["tfshards", "tensorflow", "numpy"]))
    words = f"--mosaics {options.mosaics} " if options.mosaics else ""
    words += f"--rounds {options.rounds} --cores {options.cores}"
    print(f"\n`python benchmarks/training.py --photos PHOTOS {words}`")


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
    """Return wall and CPU seconds per image of one epoch, after a first batch."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    stored, options = OURS.get(name, ("originals", {}))
    folder = folder_of(work, stored)
    dataset = usual(folder) if name == USUAL else ours(folder, options)
    iterator = iter(dataset)
    next(iterator)
    wall, cpu = time.perf_counter(), time.process_time()
    images = sum(BATCH for _ in iterator)
    return (time.perf_counter() - wall) / images, (time.process_time() - cpu) / images


def ours(path: Path, options: dict[str, object]):
    from tfshards import loader

    image = loader.Image((SIZE, SIZE), flip="horizontal", **options)
    shuffle = loader.Shuffle(seed=0)
    return loader.load(
        path, "train", batch_size=BATCH, shuffle=shuffle, select=("image", "label"), image=image, epochs=2
    )


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

    files = tf.data.Dataset.list_files(str(path / "*train*tfrecord*"), seed=0).repeat(2)
    records = files.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)
    views = records.map(view, num_parallel_calls=tf.data.AUTOTUNE)
    return views.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


if __name__ == "__main__":
    main()
