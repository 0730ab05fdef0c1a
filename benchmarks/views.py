"""Random views of photos with other tools: decoded, a random part resized to 224 pixels, flipped, in batches.

Each function of ``READERS`` yields batches without an end. Where a tool leaves the views to Python, they are
drawn by Pillow, in as many worker processes as there are cores.

training.py runs it in the environment of the tools: python views.py write|read NAME PHOTOS_OR_CORES FOLDER
"""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import sys
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import readers

SIZE, BATCH, SHARDS = 224, 256, 8
# batches that fill what is read ahead, and those that are measured
FIRST, MEASURED = 4, 14


def view(data: bytes) -> np.ndarray:
    """Return a random part of 8 to 100 % of the pixels, as torchvision chooses it, resized and flipped."""
    from PIL import Image

    with Image.open(BytesIO(data)) as image:
        width, height = image.size
        for _ in range(10):
            area = width * height * random.uniform(0.08, 1)
            ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            sides = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if sides[0] <= width and sides[1] <= height:
                break
        else:
            sides = width, height
        left, top = random.randint(0, width - sides[0]), random.randint(0, height - sides[1])
        window = (left, top, left + sides[0], top + sides[1])
        pixels = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR, window)
    if random.random() < 0.5:
        pixels = pixels.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(pixels)


def files(photos: Path) -> list[tuple[Path, int]]:
    classes = sorted(path.name for path in photos.iterdir())
    return [(path, classes.index(path.parent.name)) for path in sorted(photos.glob("*/*"))]


def endless(epochs: object) -> Iterator[object]:
    return itertools.chain.from_iterable(itertools.repeat(epochs))


def read_torch(folder: Path, cores: int) -> Iterator[object]:
    from torch.utils.data import DataLoader, Dataset

    class Photos(Dataset):
        def __init__(self) -> None:
            self.files = files(folder.parent / "photos")

        def __len__(self) -> int:
            return len(self.files)

        def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
            path, label = self.files[index]
            return view(path.read_bytes()), label

    shared = {"num_workers": cores, "persistent_workers": True, "drop_last": True}
    return endless(DataLoader(Photos(), BATCH, shuffle=True, **shared))


def read_webdataset(folder: Path, cores: int) -> Iterator[object]:
    import webdataset

    paths = sorted(map(str, folder.iterdir()))
    data = webdataset.WebDataset(paths, shardshuffle=SHARDS, seed=0).shuffle(1000).to_tuple("bin", "cls")
    data = data.map_tuple(view, int).repeat().batched(BATCH)
    return iter(webdataset.WebLoader(data, batch_size=None, num_workers=cores))


def read_grain(folder: Path, cores: int) -> Iterator[object]:
    import grain
    from absl import flags
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    # its worker processes read flags
    flags.FLAGS.mark_as_parsed()
    source = ArrayRecordDataSource(sorted(map(str, folder.iterdir())))
    data = grain.MapDataset.source(source).shuffle(seed=1).map(_grain_view).repeat(None).batch(BATCH)
    # with larger buffers, most of what is measured would have been made before
    workers = grain.multiprocessing.MultiprocessingOptions(cores, per_worker_buffer_size=1)
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)
    return iter(data.to_iter_dataset(options).mp_prefetch(workers))


def _grain_view(record: bytes) -> tuple[np.ndarray, int]:
    return view(record[readers.ID_BYTES :]), int.from_bytes(record[: readers.ID_BYTES], "big")


def read_mds(folder: Path, cores: int) -> Iterator[object]:
    import streaming
    from torch.utils.data import DataLoader

    class Photos(streaming.StreamingDataset):
        def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
            found = super().__getitem__(index)
            return view(found["data"]), found["label"]

    data = Photos(local=str(folder), batch_size=BATCH, shuffle=True)
    return endless(DataLoader(data, BATCH, num_workers=cores, drop_last=True))


def read_litdata(folder: Path, cores: int) -> Iterator[object]:
    import litdata

    class Photos(litdata.StreamingDataset):
        def __getitem__(self, index: object) -> tuple[np.ndarray, int]:
            found = super().__getitem__(index)
            return view(found["data"]), found["label"]

    data = Photos(str(folder), shuffle=True, drop_last=True)
    return endless(litdata.StreamingDataLoader(data, batch_size=BATCH, num_workers=cores, drop_last=True))


# name -> folder, writer, reader
TOOLS = {
    "torch DataLoader, files": ("torch", None, read_torch),
    "WebDataset": ("webdataset", readers.write_webdataset, read_webdataset),
    "Grain, ArrayRecord": ("grain", readers.write_grain, read_grain),
    "MDS": ("mds", readers.write_mds, read_mds),
    "litData": ("litdata", readers.write_litdata, read_litdata),
}


def rates(batches: Iterator[object]) -> tuple[float, float]:
    """Return seconds of wall time and of CPU time per image, of this process and those that it started."""
    for _ in range(FIRST):
        next(batches)
    wall, cpu = time.perf_counter(), tree_seconds(os.getpid())
    for _ in range(MEASURED):
        next(batches)
    images = MEASURED * BATCH
    return (time.perf_counter() - wall) / images, (tree_seconds(os.getpid()) - cpu) / images


def tree_seconds(process: int) -> float:
    """Return the CPU seconds of a process and of all that it started."""
    try:
        # after the name: state, 10 others, user and system time, those of ended children
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = [
            int(child)
            for task in Path(f"/proc/{process}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return 0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(tree_seconds, children))


if __name__ == "__main__":
    task, name, argument, folder = sys.argv[1:]
    _, write, read = TOOLS[name]
    if task == "write":
        Path(folder).mkdir()
        if write:
            every = files(Path(argument))
            random.Random(0).shuffle(every)
            write(((path.read_bytes(), label) for path, label in every), len(every), Path(folder), SHARDS)
        print("[]")
    else:
        print(json.dumps(rates(read(Path(folder), int(argument)))))
    # workers without an end
    sys.stdout.flush()
    os._exit(0)
