"""Compare reading without TensorFlow: ``loader.Records`` and ``batches`` with other formats and tools.

    python benchmarks/frameworks.py --count 200000 [--photos FOLDER] [--rounds 3] [--cores 2]

Examples are arrays of 784 bytes with a label, and photos as encoded bytes. Each contestant reads in a
process of its own, in turns; tools with other requirements have environments (environments.py). "random"
reads batches of 1,024 at random places, "epoch" one epoch in the tool's own shuffled order, or in stored
order where it has no other. Rates are examples by second of wall time and of CPU time, after a first batch.
``--cores 1`` runs all on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import environments
import inputs
import measure
import numpy as np
import readers

BATCH = 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200_000, help="arrays (default: 200,000)")
    parser.add_argument("--photos", type=Path, help="folder of class folders")
    parser.add_argument("--rounds", type=int, default=3, help="measured runs of each (default: 3)")
    parser.add_argument("--cores", type=int, default=2, help="cores of each process (default: 2)")
    parser.add_argument("--only", nargs="+", help="beginnings of names of contestants (default: all)")
    environments.add_cache(parser)
    measure.add_json(parser)
    options = parser.parse_args()
    names = [name for name in READERS if not options.only or name.startswith(tuple(options.only))]
    with tempfile.TemporaryDirectory(prefix="tfshards-frameworks-") as folder:
        work = Path(folder)
        arrays = inputs.write_arrays(work / "arrays", options.count)
        inputs.build("arrays", *arrays, work / "arrays" / "tfshards")
        taken = {"arrays": measured(options, names, work / "arrays")}
        if options.photos:
            inputs.build("images", options.photos, work / "photos" / "tfshards")
            names = [name for name in names if READERS[name][0] == "tfshards"]
            taken["photos"] = measured(options, names, work / "photos")
    for kind, found in taken.items():
        print(table(kind, found))
    print(measure.footnote(PACKAGES))
    values = {
        f"{kind}, {shown}": {name: [each[field] for each in rounds] for name, rounds in found.items()}
        for kind, found in taken.items()
        for field, shown in zip(FIELDS, HEAD, strict=True)
    }
    measure.save(options.json, values, PACKAGES)


def measured(
    options: argparse.Namespace, names: list[str], folder: Path
) -> dict[str, list[dict[str, float]]]:
    """Return the results of each round by contestant."""

    def run(tool: str, task: str, name: str) -> dict:
        python = environments.python_of(tool, options.cache)
        cores = options.cores if task == "read" else None
        return environments.found([python, __file__, task, name, folder], cores)

    taken: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for tool in {READERS[name][0] for name in names} & {*WRITERS}:
        run(tool, "write", tool)
    for _ in range(options.rounds):
        for name in names:
            taken[name].append(run(READERS[name][0], "read", name))
    return taken


def table(kind: str, taken: dict[str, list[dict[str, float]]]) -> str:
    rows = [
        [name, *(measure.spread([each[key] for each in rounds], digits) for key, digits in FIELDS.items())]
        for name, rounds in taken.items()
    ]
    return f"\n{measure.table((kind, *HEAD), rows)}\n"


FIELDS = {"wall": 0, "cpu": 0, "first": 2}
HEAD = ("examples/s", "examples per CPU second", "first batch, s")
PACKAGES = ("tfshards", "tensorflow", "numpy", "google-crc32c")


def rates(batches: Iterator[int]) -> dict[str, float]:
    """Return the rates of an iterator of the sizes of batches, which begins with the imports."""
    begin = time.perf_counter()
    next(batches)
    first = time.perf_counter() - begin
    begin, cpu = time.perf_counter(), time.process_time()
    count = sum(batches)
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {"wall": count / wall, "cpu": count / cpu, "first": first}


def places(count: int) -> Iterator[list[int]]:
    """Yield the numbers of all examples in random batches."""
    order = np.random.default_rng(1).permutation(count)
    for start in range(0, count, BATCH):
        yield order[start : start + BATCH].tolist()


# Readers. Each yields the sizes of its batches; ``folder`` has the folders of all formats.


def read_records(folder: Path) -> Iterator[int]:
    from tfshards.loader import Records

    found = Records(folder / "tfshards")
    for numbers in places(len(found)):
        yield len(next(iter(found[numbers].values())))


def read_delivered(folder: Path, function: str) -> Iterator[int]:
    from tfshards import loader

    read = getattr(loader, function)
    for batch in read(folder / "tfshards", batch_size=BATCH, shuffle=loader.Shuffle(seed=0)):
        yield len(next(iter(batch.values())))


def read_mapped(folder: Path) -> Iterator[int]:
    """Read frames at random by slices of a map, and compare the checksum of each: the plainest loop."""
    import mmap

    import google_crc32c

    from tfshards.schemas.index import parse_index

    maps, spots = [], []
    for path in sorted((folder / "tfshards").glob("*/*.tfrecord-*")):
        with open(path, "rb") as file:
            maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        index = parse_index((path.parent / "index" / f"{path.name}.idx").read_bytes(), "index")
        shard = [len(maps) - 1] * len(index.offsets)
        spots += zip(shard, index.offsets.tolist(), index.lengths.tolist(), strict=True)
    for numbers in places(len(spots)):
        for shard, offset, length in map(spots.__getitem__, numbers):
            data = maps[shard][offset + 12 : offset + length - 4]
            crc = google_crc32c.value(data)
            masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
            assert masked == int.from_bytes(maps[shard][offset + length - 4 : offset + length], "little")
        yield len(numbers)


def read_tfrecord(folder: Path) -> Iterator[int]:
    from tfrecord.reader import tfrecord_loader

    for path in sorted((folder / "tfshards").glob("*/*.tfrecord-*")):
        count = 0
        for count, _ in enumerate(tfrecord_loader(str(path), None), 1):
            if count % BATCH == 0:
                yield BATCH
        yield count % BATCH


def _array_record(folder: Path) -> object:
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    return ArrayRecordDataSource(sorted(map(str, (folder / "grain").iterdir())))


def read_array_record(folder: Path) -> Iterator[int]:
    source = _array_record(folder)
    for numbers in places(len(source)):
        yield len(np.frombuffer(b"".join(source.__getitems__(numbers)), np.uint8).reshape(len(numbers), -1))


def read_grain(folder: Path) -> Iterator[int]:
    import grain

    data = grain.MapDataset.source(_array_record(folder)).shuffle(seed=1)
    data = data.map(lambda record: np.frombuffer(record, np.uint8)).batch(BATCH)
    for batch in data.to_iter_dataset():
        yield len(batch)


def read_webdataset(folder: Path) -> Iterator[int]:
    import webdataset

    paths = sorted(map(str, (folder / "webdataset").iterdir()))
    data = webdataset.WebDataset(paths, shardshuffle=False).to_tuple("bin", "cls").batched(BATCH)
    for images, _ in data:
        yield len(images)


def read_mds(folder: Path) -> Iterator[int]:
    import streaming

    class Arrays(streaming.StreamingDataset):
        def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
            return _row(super().__getitem__(index))

    data = Arrays(local=str(folder / "mds"), batch_size=BATCH, shuffle=True)
    for _, labels in streaming.StreamingDataLoader(data, batch_size=BATCH, num_workers=0):
        yield len(labels)


def read_litdata(folder: Path) -> Iterator[int]:
    import litdata

    class Arrays(litdata.StreamingDataset):
        def __getitem__(self, index: object) -> tuple[np.ndarray, int]:
            return _row(super().__getitem__(index))

    data = Arrays(str(folder / "litdata"), shuffle=True)
    for _, labels in litdata.StreamingDataLoader(data, batch_size=BATCH, num_workers=0):
        yield len(labels)


def _row(example: dict) -> tuple[np.ndarray, int]:
    return np.frombuffer(bytearray(example["data"]), np.uint8), example["label"]


def write(tool: str, folder: Path) -> None:
    """Write the arrays in the format of another tool."""
    images, labels = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("image", "label"))
    (folder / tool).mkdir()
    rows = ((image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True))
    WRITERS[tool](rows, len(labels), folder / tool, inputs.SHARDS)


WRITERS = {
    "grain": readers.write_grain,
    "webdataset": readers.write_webdataset,
    "mds": readers.write_mds,
    "litdata": readers.write_litdata,
}
# name -> environment, function
READERS: dict[str, tuple[str, Callable[[Path], Iterator[int]]]] = {
    "Records, random": ("tfshards", read_records),
    "a loop over a map, random": ("tfshards", read_mapped),
    "batches, epoch": ("tfshards", lambda folder: read_delivered(folder, "batches")),
    "load, epoch": ("tfshards", lambda folder: read_delivered(folder, "load")),
    "vahidk/tfrecord, epoch": ("tfrecord", read_tfrecord),
    "ArrayRecord, random": ("grain", read_array_record),
    "Grain on ArrayRecord, epoch": ("grain", read_grain),
    "WebDataset, epoch": ("webdataset", read_webdataset),
    "MDS, epoch": ("mds", read_mds),
    "litData, epoch": ("litdata", read_litdata),
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(sys.argv[2], Path(sys.argv[3]))
        print("{}")
    elif sys.argv[1:2] == ["read"]:
        print(json.dumps(rates(READERS[sys.argv[2]][1](Path(sys.argv[3])))))
    else:
        main()
