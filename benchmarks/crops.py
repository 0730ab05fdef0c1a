"""What crops of large photos cost with and without an index of restart intervals (``build --fast-crops``).

Mosaics of photos, each at the size at which it was taken, are stored as JPEG of quality 90 twice, and read by
``load`` and by ``batches`` on one core, in turns, each time in a process of its own: CPU milliseconds per
image for crops of 224 pixels that are not resized, and for random crops of 8 to 100 % of the area.

Usage: python benchmarks/crops.py --photos FOLDER [--rounds 5] [--sides 512x768,768x1024,1536x2048,3072x4096]
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

SIZE, BATCH = 224, 8
# so that each run takes seconds
PIXELS = 100_000_000
READERS = {
    f"{reader}, {crop}": (reader, crop) for reader in ("load", "batches") for crop in ("shift", "random")
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--photos", type=Path, help="folder of class folders")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each (default: 5)")
    parser.add_argument("--sides", default="512x768,768x1024,1536x2048,3072x4096", help="heights and widths")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(read(*READERS[options.child[0]], Path(options.child[1]))))
        return
    rows = []
    with tempfile.TemporaryDirectory(prefix="tfshards-crops-") as work:
        for sides in options.sides.split(","):
            folder = Path(work) / sides
            sizes = built(options.photos, folder, *map(int, sides.split("x")))
            for name in READERS:
                times: dict[str, list[float]] = {"usual": [], "fast": []}
                for number in range(options.rounds + 1):
                    for stored, taken in times.items():
                        command = ["taskset", "-c", "0", sys.executable, __file__]
                        command += ["--child", name, str(folder / stored)]
                        found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                        if number:
                            taken.append(1000 * json.loads(found.stdout.splitlines()[-1]))
                cells = [measure.spread(each, 2) for each in times.values()]
                ratios = measure.spread(measure.ratios(times["usual"], times["fast"]), 2)
                rows.append((sides, f"{sizes['fast'] / sizes['usual']:.3f}", name, *cells, ratios))
                print(*rows[-1], file=sys.stderr, flush=True)
    head = ("height x width", "bytes", "read by", "CPU ms an image", "with the index", "times as fast")
    print(measure.table(head, rows))
    print(measure.machine(["tfshards", "tensorflow", "numpy", "pillow"]))
    print(f"\n`python benchmarks/crops.py --photos PHOTOS --rounds {options.rounds}`")


def built(photos: Path, folder: Path, height: int, width: int) -> dict[str, int]:
    """Build both datasets, and return their bytes."""
    from PIL import Image

    files = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    number = 0
    for index in range(max(BATCH, PIXELS // (height * width) // BATCH * BATCH)):
        mosaic, top = Image.new("RGB", (width, height)), 0
        while top < height:
            left, row = 0, height
            while left < width:
                with Image.open(files[number % len(files)]) as photo:
                    mosaic.paste(photo, (left, top))
                    left, row, number = left + photo.width, min(row, photo.height), number + 1
            top += row
        path = folder / "photos" / "a" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        mosaic.save(path, compress_level=1)
    found = {}
    for stored, more in (("usual", []), ("fast", ["--fast-crops"])):
        command = [Path(sys.executable).with_name("tfshards"), "build", "images", folder / "photos"]
        command += [folder / stored, "--format", "jpeg", "--jpeg-quality", "90", "--shards", "1", "--as-is"]
        subprocess.run([*command, *more, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        found[stored] = sum(path.stat().st_size for path in (folder / stored).glob("*.tfrecord-*"))
    return found


def read(reader: str, crop: str, path: Path) -> float:
    """Return CPU seconds per image of two epochs, after a first batch."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    from tfshards import loader

    image = loader.Image((SIZE, SIZE), crop=crop, flip="horizontal")
    run = getattr(loader, reader)(
        path, "train", batch_size=BATCH, shuffle=loader.Shuffle(seed=0), image=image, epochs=3
    )
    iterator = iter(run)
    next(iterator)
    begin = time.process_time()
    images = sum(BATCH for _ in iterator)
    return (time.process_time() - begin) / images


if __name__ == "__main__":
    main()
