"""Single faults in the files of a dataset: verify finds each one and names its location.

``make nightly`` prints how many were tried and found (see docs/reliability.md), in datasets that have more
records.
"""

import gzip
import random
from collections import Counter

import numpy as np
import pytest

from tests.campaigns import cases
from tests.format_reader import companion, masked_crc, read_frame
from tests.pictures import image_file
from tests.tables import mostly_nightly
from tfshards.prep import Arrays, ImageFolder, Options, build, verify
from tfshards.schemas import Problem, TfshardsError, read_manifest

pytestmark = pytest.mark.campaign

SEED = 4
# flipped bits, and truncated files, in each of three datasets
NUM_FLIPS = NUM_CUTS = cases(20, nightly=400)
NUM_IMAGES, NUM_ROWS = (30, 60) if NUM_FLIPS >= 400 else (20, 20)

Counts = Counter[tuple[str, str]]


@pytest.fixture(scope="module")
def counts():
    """Number of faults by kind and outcome, printed at the end."""
    found: Counts = Counter()
    yield found
    print("\n| fault | tried | found by verify | by verify --deep | of these, named with a record | missed |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for fault in dict.fromkeys(fault for fault, _ in found):
        tried, shallow, deep, named = (
            found[fault, outcome] for outcome in ("tried", "default", "deep", "record")
        )
        print(
            f"| {fault} | {tried:,} | {shallow:,} | {deep:,} | {named:,} | {tried - min(shallow, deep):,} |"
        )


def photos(folder) -> ImageFolder | Arrays:
    """Images of two classes, of different sizes, and files that are rejected."""
    for number in range(NUM_IMAGES):
        path = folder / "ab"[number % 2] / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        side = 4 + number % 5
        pixels = np.random.default_rng(number).integers(0, 256, (side, side, 3), dtype=np.uint8)
        path.write_bytes(b"no image" if number % 10 == 9 else image_file(pixels))
    return ImageFolder(folder)


def numbers(_) -> ImageFolder | Arrays:
    """Rows whose records all have the same length, so that exchanged records still match the index."""
    rows = np.random.default_rng(1).integers(0, 256, (NUM_ROWS, 40), dtype=np.uint8)
    return Arrays({"x": rows, "label": np.arange(NUM_ROWS) % 2})


DATASETS = {
    "images": (photos, Options(splits={"train": 0.7, "val": 0.3}, max_rejected="50%")),
    "arrays": (numbers, Options()),
    "gzip": (numbers, Options(compression="gzip")),
}


@pytest.fixture(scope="module", params=mostly_nightly(DATASETS, ["images"]))
def dataset(request, tmp_path_factory):
    folder, (source, options) = tmp_path_factory.mktemp("made"), DATASETS[request.param]
    out = folder / "data"
    build(source(folder / "in"), out, shards=2, options=options, log=lambda _: None)
    assert verify(out, decode=True)
    return out


def files_of(root):
    """The files of a dataset, by kind."""
    manifest = read_manifest(root)
    return {
        "shard": [root / shard.path for shard in manifest.shards],
        "index": [root / companion(shard.path, "idx") for shard in manifest.shards],
        "labels": [root / companion(shard.path, "labels") for shard in manifest.shards],
        "manifest": [root / "dataset.json"],
        "rejects": sorted(root.glob("rejected-*.jsonl")),
    }


def look(root, *, deep: bool) -> list[Problem]:
    """Return what verify finds; it may raise nothing except a TfshardsError."""
    try:
        return list(verify(root, deep=deep).problems)
    except TfshardsError as error:
        return [Problem("dataset.json", str(error))]


def attempt(root, path, data: bytes | None, fault: str, counts: Counts) -> None:
    """Replace a file with ``data``, or remove it, look for the fault, and restore the file."""
    sound = path.read_bytes()
    assert data != sound
    try:
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        judge(root, {path.relative_to(root).as_posix()}, fault, counts)
    finally:
        path.write_bytes(sound)


def judge(root, damaged: set[str], fault: str, counts: Counts) -> None:
    """Count a fault, and assert that both checks find it at its location and nothing elsewhere."""
    counts[fault, "tried"] += 1
    for mode, deep in (("default", False), ("deep", True)):
        problems = look(root, deep=deep)
        places = {problem.place for problem in problems}
        assert places, f"{fault} in {damaged} was not found by {mode}"
        # repeated keys are reported for the shard of the other record
        assert damaged <= places, (fault, damaged, list(map(str, problems)))
        counts[fault, mode] += 1
        counts[fault, "record"] += deep and any(hasattr(problem, "record") for problem in problems)


def records_of(path, compression: str) -> list[bytes]:
    """Return the records of a shard."""
    data, found, start = path.read_bytes(), [], 0
    data = data if compression == "none" else gzip.decompress(data)
    while start < len(data):
        found.append(read_frame(data, start, path))
        start += 16 + len(found[-1])
    return found


def shard_bytes(records: list[bytes], compression: str) -> bytes:
    frames = b"".join(
        length + masked_crc(length).to_bytes(4, "little") + data + masked_crc(data).to_bytes(4, "little")
        for data in records
        for length in [len(data).to_bytes(8, "little")]
    )
    return frames if compression == "none" else gzip.compress(frames, mtime=0)


def starts_of(records: list[bytes]) -> list[int]:
    return [sum(len(data) + 16 for data in records[:number]) for number in range(len(records))]


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_flipped_bit_is_found(dataset, counts):
    random_ = random.Random(SEED)
    kinds = {kind: files for kind, files in files_of(dataset).items() if files}
    # shards are most of a dataset
    shares = {"shard": 4, "index": 2, "labels": 1, "manifest": 2, "rejects": 1}
    whole = sum(shares[kind] for kind in kinds)
    num_flips = 0
    for kind, files in kinds.items():
        for _ in range(NUM_FLIPS * shares[kind] // whole):
            path = random_.choice(files)
            data = path.read_bytes()
            attempt(dataset, path, flipped(data, random_.randrange(8 * len(data))), f"bit of {kind}", counts)
            num_flips += 1
    assert num_flips >= NUM_FLIPS - len(kinds)


def test_every_truncation_is_found(dataset, counts):
    random_ = random.Random(SEED)
    compression = read_manifest(dataset).compression
    num_cuts = 0
    for kind, files in files_of(dataset).items():
        for path in files:
            data = path.read_bytes()
            # labels of any other size are not labels
            some = NUM_CUTS // (40 if kind == "labels" else 5)
            lengths = {0, len(data) - 1} | {random_.randrange(len(data)) for _ in range(some)}
            if kind == "shard":
                lengths |= {max(0, len(data) - number) for number in range(1, 20)}
            if kind == "index":
                lengths |= {place + 1 for place, byte in enumerate(data[:-1]) if byte == 10}
            if kind == "labels":
                lengths |= set(range(0, len(data), 32))
            for length in sorted(lengths):
                attempt(dataset, path, data[:length], f"cut of {kind}", counts)
            num_cuts += len(lengths)
            attempt(dataset, path, None, "missing file", counts)
    assert num_cuts >= NUM_CUTS
    if compression == "none":
        for path in files_of(dataset)["shard"]:
            data = path.read_bytes()
            for offset in starts_of(records_of(path, "none")):
                attempt(dataset, path, data[:offset], "cut of shard between records", counts)
                attempt(dataset, path, data[: offset + 11], "cut of shard inside a header", counts)


def test_removed_repeated_and_exchanged_records_are_found(dataset, counts):
    random_ = random.Random(SEED)
    compression = read_manifest(dataset).compression
    for path in files_of(dataset)["shard"]:
        records = records_of(path, compression)
        for number in range(len(records)):
            other = random_.choice([place for place in range(len(records)) if place != number])
            exchanged = list(records)
            exchanged[number], exchanged[other] = records[other], records[number]
            for fault, changed in (
                ("record removed", records[:number] + records[number + 1 :]),
                ("record repeated", [*records[:number], records[other], *records[number:]]),
                ("record replaced by another", [*records[:number], records[other], *records[number + 1 :]]),
                ("records exchanged", exchanged),
            ):
                attempt(dataset, path, shard_bytes(changed, compression), fault, counts)


def test_exchanged_files_are_found(dataset, counts):
    files = files_of(dataset)
    kinds = ("shard", "index", "labels")
    # all of them last, so that each index belongs to its shard
    for some in (*((kind,) for kind in kinds), kinds):
        pairs = [files[kind][:2] for kind in some]
        before = {path: path.read_bytes() for pair in pairs for path in pair}
        if len({*before.values()}) == 1:
            continue
        for one, two in pairs:
            one.write_bytes(before[two])
            two.write_bytes(before[one])
        damaged = {path.relative_to(dataset).as_posix() for path in pairs[0]}
        judge(dataset, damaged, f"{' and '.join(some)} exchanged", counts)
        for path, data in before.items():
            path.write_bytes(data)
    assert verify(dataset, deep=True)
