"""Compare reading without TensorFlow: ``loader.Records`` and ``batches`` with other formats and tools.

Examples are arrays of 784 bytes with a label, and photos as encoded bytes. Each contestant reads in a process
of its own, in turns; tools with other requirements have environments (benchmarks/peers/environments.py).
"random" reads batches of 1,024 at random places, "epoch" one epoch in the tool's own shuffled order, or in
stored order where it has no other. Rates are examples by second of wall time and of CPU time, after a first
batch. ``--cores 1`` runs all on one core.

Usage: python benchmarks/frameworks.py [--count 200000] [--photos FOLDER] [--rounds 3] [--cores 2]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

BATCH, SIDE, SHARDS = 1024, 28, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000, help="arrays (default: 200,000)")
    parser.add_argument("--photos", type=Path, help="folder of class folders")
    parser.add_argument("--rounds", type=int, default=3, help="measured runs of each (default: 3)")
    parser.add_argument("--cores", type=int, default=2, help="cores of each process (default: 2)")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "tfshards-peers")
    parser.add_argument("--only", help="names of contestants, separated by commas")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, task, folder = options.child
        (WRITERS if task == "write" else READERS)[name](Path(folder))
        return
    chosen = options.only.split(",") if options.only else [*READERS]
    with tempfile.TemporaryDirectory(prefix="tfshards-frameworks-") as work:
        folders = {"arrays": Path(work) / "arrays"}
        folders["arrays"].mkdir()
        random = np.random.default_rng(0)
        np.save(
            folders["arrays"] / "image.npy", random.integers(0, 256, (options.count, SIDE, SIDE), np.uint8)
        )
        np.save(folders["arrays"] / "label.npy", random.integers(0, 10, options.count))
        if options.photos:
            folders["photos"] = Path(work) / "photos"
            folders["photos"].mkdir()
            command = ["tfshards", "build", "images", options.photos, folders["photos"] / "tfshards"]
            command[0] = Path(sys.executable).with_name("tfshards")
            subprocess.run([*command, "--shards", str(SHARDS), "--quiet"], check=True)
        for kind, folder in folders.items():
            names = [name for name in chosen if kind == "arrays" or name in OF_PHOTOS]
            print(table(kind, measured(options, names, folder)), flush=True)


def measured(
    options: argparse.Namespace, names: list[str], folder: Path
) -> dict[str, list[dict[str, float]]]:
    """Return the results of each round by contestant."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for writer in dict.fromkeys(FORMAT[name] for name in names):
        if not (folder / writer).exists():
            run(options, writer, "write", folder)
    for _ in range(options.rounds):
        for name in names:
            found[name].append(json.loads(run(options, name, "read", folder).splitlines()[-1]))
    return found


def run(options: argparse.Namespace, name: str, task: str, folder: Path) -> str:
    from peers.environments import TOOLS, python_of

    tool = TOOLS.get(FORMAT.get(name, name))
    python = sys.executable if tool is None else python_of(tool, options.cache)
    command = [str(python), __file__, "--child", name, task, str(folder)]
    if task == "read":
        command = ["taskset", "--cpu-list", f"0-{options.cores - 1}", *command]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return done.stdout


def table(kind: str, found: dict[str, list[dict[str, float]]]) -> str:
    lines = [f"{kind}: examples a second (medians of {len(next(iter(found.values())))} runs)", ""]
    lines += ["| reader | wall | CPU | first batch, s |", "|---|---|---|---|"]
    for name, rounds in found.items():
        wall, cpu, first = (
            statistics.median(each[key] for each in rounds) for key in ("wall", "cpu", "first")
        )
        lines.append(f"| {name} | {wall:,.0f} | {cpu:,.0f} | {first:.2f} |")
    return "\n".join(lines) + "\n"


def report(start: Callable[[], Iterator[int]]) -> None:
    """Print the rates of an iterator of the sizes of batches, which ``start`` opens."""
    begin = time.perf_counter()
    batches = start()
    next(batches)
    first = time.perf_counter() - begin
    begin, cpu = time.perf_counter(), time.process_time()
    count = sum(batches)
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    print(json.dumps({"wall": count / wall, "cpu": count / cpu, "first": first}))


def places(count: int) -> Iterator[list[int]]:
    """Yield the numbers of all examples in random batches."""
    order = np.random.default_rng(1).permutation(count)
    for start in range(0, count, BATCH):
        yield order[start : start + BATCH].tolist()


# tfshards


def write_tfshards(folder: Path) -> None:
    from tfshards import prep

    arrays = prep.Arrays([f"{name}={folder}/{name}.npy" for name in ("image", "label")])
    prep.build(arrays, folder / "tfshards", shards=SHARDS)


def records(check: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        def start() -> Iterator[int]:
            from tfshards.loader import Records

            found = Records(folder / "tfshards", check=check)
            for numbers in places(len(found)):
                yield len(next(iter(found[numbers].values())))

        report(start)

    return read


def delivered(function: str, batch_size: int = BATCH) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        def start() -> Iterator[int]:
            from tfshards import loader

            shuffle = loader.Shuffle(seed=0)
            for batch in getattr(loader, function)(
                folder / "tfshards", batch_size=batch_size, shuffle=shuffle
            ):
                yield len(next(iter(batch.values())))

        report(start)

    return read


def read_mapped(folder: Path) -> None:
    """Read frames at random by slices of a map, and compare the checksum of each: the plainest loop."""

    def start() -> Iterator[int]:
        import mmap

        import google_crc32c

        from tfshards.schemas.index import parse_index

        maps, spots = [], []
        for path in sorted((folder / "tfshards").glob("*/*.tfrecord-*")):
            with open(path, "rb") as file:
                maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            index = parse_index((path.parent / "index" / f"{path.name}.idx").read_bytes(), "index")
            spots += [
                (len(maps) - 1, *spot)
                for spot in zip(index.offsets.tolist(), index.lengths.tolist(), strict=True)
            ]
        for numbers in places(len(spots)):
            for shard, offset, length in map(spots.__getitem__, numbers):
                data = maps[shard][offset + 12 : offset + length - 4]
                crc = google_crc32c.value(data)
                masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
                assert masked == int.from_bytes(maps[shard][offset + length - 4 : offset + length], "little")
            yield len(numbers)

    report(start)


def read_tfrecord(folder: Path) -> None:
    def start() -> Iterator[int]:
        from tfrecord.reader import tfrecord_loader

        for path in sorted((folder / "tfshards").glob("*/*.tfrecord-*")):
            count = 0
            for count, _ in enumerate(tfrecord_loader(str(path), None), 1):
                if count % BATCH == 0:
                    yield BATCH
            yield count % BATCH

    report(start)


# ArrayRecord and Grain: a record is the bytes of the image and of the label


def rows(folder: Path) -> Iterator[tuple[np.ndarray, int]]:
    images, labels = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("image", "label"))
    return zip(images, labels.tolist(), strict=True)


def write_grain(folder: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    (folder / "grain").mkdir()
    writers = [
        ArrayRecordWriter(f"{folder}/grain/{number:02}.array_record", "group_size:1,uncompressed")
        for number in range(SHARDS)
    ]
    for number, (image, label) in enumerate(rows(folder)):
        writers[number % SHARDS].write(image.tobytes() + bytes([label]))
    for writer in writers:
        writer.close()


def _array_record(folder: Path) -> object:
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    return ArrayRecordDataSource(sorted(map(str, (folder / "grain").iterdir())))


def read_array_record(folder: Path) -> None:
    def start() -> Iterator[int]:
        source = _array_record(folder)
        for numbers in places(len(source)):
            found = np.frombuffer(b"".join(source.__getitems__(numbers)), np.uint8).reshape(len(numbers), -1)
            yield len(found)

    report(start)


def read_grain(folder: Path) -> None:
    def start() -> Iterator[int]:
        import grain

        data = grain.MapDataset.source(_array_record(folder)).shuffle(seed=1)
        data = data.map(lambda record: np.frombuffer(record, np.uint8)).batch(BATCH)
        for batch in data.to_iter_dataset():
            yield len(batch)

    report(start)


# WebDataset, MDS, litData


def write_webdataset(folder: Path) -> None:
    import webdataset

    (folder / "webdataset").mkdir()
    pattern, count = f"{folder}/webdataset/%02d.tar", len(np.load(folder / "label.npy", mmap_mode="r"))
    with webdataset.ShardWriter(pattern, maxcount=-(-count // SHARDS), verbose=0) as writer:
        for number, (image, label) in enumerate(rows(folder)):
            writer.write({"__key__": str(number), "img": image.tobytes(), "cls": str(label).encode()})


def read_webdataset(folder: Path) -> None:
    def start() -> Iterator[int]:
        import webdataset

        paths = sorted(map(str, (folder / "webdataset").iterdir()))
        data = webdataset.WebDataset(paths, shardshuffle=False).to_tuple("img", "cls").batched(BATCH)
        for images, _ in data:
            yield len(images)

    report(start)


def write_mds(folder: Path) -> None:
    import streaming

    columns = {"image": "ndarray:uint8:28,28", "label": "int"}
    with streaming.MDSWriter(out=str(folder / "mds"), columns=columns) as writer:
        for image, label in rows(folder):
            writer.write({"image": np.array(image), "label": label})


def read_mds(folder: Path) -> None:
    def start() -> Iterator[int]:
        import streaming

        data = streaming.StreamingDataset(local=str(folder / "mds"), batch_size=BATCH, shuffle=True)
        for loaded in streaming.StreamingDataLoader(data, batch_size=BATCH, num_workers=0):
            yield len(loaded["label"])

    report(start)


def write_litdata(folder: Path) -> None:
    from litdata.streaming.writer import BinaryWriter

    (folder / "litdata").mkdir()
    writer = BinaryWriter(str(folder / "litdata"), chunk_bytes="16MB")
    for number, (image, label) in enumerate(rows(folder)):
        writer[number] = {"image": np.array(image), "label": label}
    writer.done()
    writer.merge()


def read_litdata(folder: Path) -> None:
    def start() -> Iterator[int]:
        import litdata

        data = litdata.StreamingDataset(str(folder / "litdata"), shuffle=True)
        for loaded in litdata.StreamingDataLoader(data, batch_size=BATCH, num_workers=0):
            yield len(loaded["label"])

    report(start)


WRITERS = {
    "tfshards": write_tfshards,
    "grain": write_grain,
    "webdataset": write_webdataset,
    "mds": write_mds,
    "litdata": write_litdata,
}
READERS = {
    "Records, random": records("crc"),
    "Records, random, without checksums": records("none"),
    "a loop over a map, random": read_mapped,
    "batches, epoch": delivered("batches"),
    "load, epoch": delivered("load"),
    "tfrecord, epoch": read_tfrecord,
    "ArrayRecord, random": read_array_record,
    "Grain on ArrayRecord, epoch": read_grain,
    "WebDataset, epoch": read_webdataset,
    "MDS, epoch": read_mds,
    "litData, epoch": read_litdata,
}
OF_PHOTOS = {
    name for name in READERS if name.split(",")[0] in ("Records", "batches", "load", "a loop over a map")
}
FORMAT = {
    **dict.fromkeys(READERS, "tfshards"),
    "ArrayRecord, random": "grain",
    "Grain on ArrayRecord, epoch": "grain",
    "WebDataset, epoch": "webdataset",
    "MDS, epoch": "mds",
    "litData, epoch": "litdata",
}

if __name__ == "__main__":
    main()
