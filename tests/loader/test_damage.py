"""Damage is refused, named or skipped by each reader; no record is lost or wrong without notice."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import re
import shutil
import struct
from collections import Counter
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from tests.campaigns import cases
from tests.errors import raises
from tests.prep.exported import write_manifest
from tests.tables import mostly_nightly
from tfshards import prep
from tfshards.loader import Position, Records, Shuffle, Worker, batches, load
from tfshards.schemas import FormatError, InputError, OptionsError, TfshardsError, Totals, read_manifest
from tfshards.schemas.frames import masked_crc32c_of
from tfshards.schemas.index import companion_path

from .conftest import TEXT_SIZES, flip_bit, frames_of, shard_of, shards_of, text_of

COUNT = sum(TEXT_SIZES)
# so many records are read without their numbers
MANY = [4000, 4000, 4000]


@pytest.fixture(params=["few"])
def copied(request, texts, numbered, tmp_path):
    """Return a copy of a dataset: of few records, of compressed ones, or of many."""
    source = (
        numbered(MANY) if request.param == "many" else texts["none" if request.param == "few" else "gzip"]
    )
    return shutil.copytree(source, tmp_path / "copy")


READERS = {
    "load": lambda path: list(load(path, batch_size=2)),
    "batches": lambda path: list(batches(path, batch_size=2)),
}


# What is refused before the first step


def replaced(root, /, **fields):
    """Write a manifest with a sound digest and other facts of the second shard."""
    manifest = read_manifest(root)
    split = manifest.splits["train"]
    shards = [*split.shards]
    shards[1] = dataclasses.replace(shards[1], **fields)
    total = sum(shard.num_examples for shard in shards)
    splits = {"train": dataclasses.replace(split, shards=tuple(shards))}
    write_manifest(root, dataclasses.replace(manifest, splits=splits, totals=Totals(total, total)))


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def edit(path):
    manifest = path / "dataset.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "name": "e"}))


def index_of(path):
    shard = shard_of(path, 1)
    return shard.parent / companion_path(shard.name, "idx")


def rewritten(path, change):
    path.write_bytes(change(path.read_bytes()))


def of_shard(change):
    """Return a function that changes the bytes of the second shard."""
    return lambda path: rewritten(shard_of(path, 1), change)


def of_index(change):
    return lambda path: rewritten(index_of(path), change)


MISSING, INDEX = r"00001-of.*{}cannot be read: No such", r"00001-of.*\.idx"
REFUSED = {
    "a shard is missing": (lambda path: shard_of(path, 1).unlink(), MISSING.format("")),
    "a shard is shorter": (
        of_shard(lambda data: data[:-1]),
        r"00001-of-\d+: has \d+ bytes instead of the \d+ ",
    ),
    "a shard is of another build": (
        of_shard(lambda data: data[:-1] + b"?"),
        "ends with the bytes .* it is a different file|record 24 at offset",
    ),
    "a shard is a pipe": (lambda path: pipe(shard_of(path, 1)), "is not a regular file"),
    "an index is missing": (lambda path: index_of(path).unlink(), MISSING.format(r"\.idx.*")),
    "an index is empty": (of_index(lambda _: b""), "its bytes have changed: the digest differs"),
    "an index is changed": (of_index(lambda data: data.replace(b"1", b"2", 1)), INDEX),
    "an index is a pipe": (lambda path: pipe(index_of(path)), "is not a regular file"),
    "the manifest is edited": (edit, "digest: does not match: the manifest was changed or damaged"),
}
# what the manifest states of the second shard
STATED = {
    "no file": ({"path": "x.tfrecord"}, r"x\.tfrecord(\.idx)?: cannot be"),
    "another count": ({"num_examples": 6}, "has 25 records of [0-9]+ bytes, but the manifest lists 6 of"),
    "another digest of an index": ({"index_digest": f"sha256:{'0' * 64}"}, "changed: the digest differs"),
}
REFUSED |= {name: (partial(replaced, **fields), message) for name, (fields, message) in STATED.items()}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize(("damage", "message"), REFUSED.values(), ids=REFUSED)
def test_damage_of_files_is_refused_by_name_before_the_first_step(copied, reader, damage, message):
    damage(copied)
    with pytest.raises(FormatError, match=message) as error:
        reader(copied)
    # a shard and its index, at most
    assert len(error.value.problems) <= 1 + ("x.tfrecord" in message.replace("\\", ""))


# What is found while reading

# offsets of the flipped bit in the frame of a record: in the length, its checksum, the data, their checksum
FLIPS = [0, 9, 12, -2]
ORDERS = {
    "stored": {},
    "runs": {"shuffle": Shuffle(seed=2)},
    "a full permutation": {"shuffle": Shuffle(2, "full")},
}


FLIPPED = [*itertools.product(FLIPS, ORDERS, ["few", "many"])]


@pytest.mark.parametrize(
    ("within", "order", "copied"),
    mostly_nightly(FLIPPED, [*FLIPPED[::4], FLIPPED[9]]),
    indirect=["copied"],
)
def test_a_flipped_bit_is_an_error_that_names_shard_record_and_offset(copied, within, order):
    shard = shard_of(copied, 1)
    frames = frames_of(shard)
    start, length = int(frames.offsets[11]), int(frames.lengths[11])
    flip_bit(shard, start + within % length)
    options = {"batch_size": 2, **ORDERS[order]}
    delivered, outcomes = iter(load(copied, **options)), []
    for _ in range(COUNT // 2 if len(frames.lengths) == 25 else sum(MANY) // 2):
        try:
            next(delivered)
            outcomes.append("delivered")
        except tf.errors.OpError as error:
            outcomes.append(str(error))
            if len([each for each in outcomes if each != "delivered"]) > 3:
                break
    first = outcomes.index(next(each for each in outcomes if each != "delivered"))
    assert f"{copied}: a damaged record (`tfshards verify DATASET --deep`" in outcomes[first]
    assert f"{shard.relative_to(copied)} record 11 at offset {start}: " in outcomes[first]
    for reader in (lambda: list(batches(copied, **options)), lambda: Records(copied)[:]):
        with pytest.raises(FormatError, match=rf"{shard.name}.* record 11 at offset {start}"):
            reader()


def cut(path, record, within):
    shard = shard_of(path, 1)
    shard.write_bytes(shard.read_bytes()[: int(frames_of(shard).offsets[record]) + within])


def exchange(path):
    shard = shard_of(path, 1)
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(shard))]
    with tf.io.TFRecordWriter(str(shard)) as writer:
        for record in reversed(records):
            writer.write(record)


CHANGES = {
    "cut between records": (lambda path: cut(path, 11, 0), "has .* bytes instead of|ends at byte"),
    "cut in a header": (lambda path: cut(path, 11, 5), "has .* bytes instead of|ends at byte"),
    "cut in a record": (lambda path: cut(path, 11, 15), "has .* bytes instead of|ends at byte"),
    "emptied": (of_shard(lambda _: b""), "has 0 bytes instead of|ends at byte"),
    "removed": (lambda path: shard_of(path, 1).unlink(), "cannot be read: No such file"),
    "given the longest length": (
        lambda path: lengthen(path),
        "record 11 at offset .*: states .* bytes of data, not",
    ),
}
AFTER = [*itertools.product(CHANGES, ["few", "many"], ["stored", "runs"])]
# sound records of other lengths
CHANGES["exchanged"] = (exchange, "record .* (not .* as the index|length does not match)")
AFTER.append(("exchanged", "few", "runs"))


@pytest.mark.parametrize(
    ("change", "copied", "order"),
    mostly_nightly(AFTER, [each for each in AFTER if (each[1] == "few") == (each[2] == "runs")]),
    indirect=["copied"],
)
def test_a_shard_that_changes_after_load_is_named(copied, change, order):
    damage, message = CHANGES[change]
    data = load(copied, batch_size=4, **ORDERS[order])
    damage(copied)
    where = rf"{re.escape(str(copied))}: .*verify DATASET --repair(.|\n)*00001-of-\d*:? ({message})"
    with pytest.raises(tf.errors.InvalidArgumentError, match=where):
        list(data)


# Any flipped bit, any end


def faults(data, chance, count):
    """Yield damaged bytes, by turns with a flipped bit and cut."""
    for _ in range(count):
        changed = bytearray(data)
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        yield bytes(changed)
        yield data[: chance.randrange(len(data))]


def outcome(read, path, name, expected):
    """Return how a damaged file was found: an error that names it, or nothing that is read was damaged."""
    found = []
    try:
        for batch in read(path):
            found += np.asarray(batch["number"]).tolist()
    except (TfshardsError, tf.errors.InvalidArgumentError) as error:
        return "refused" if name in str(error) and found == expected[: len(found)] else "missed"
    return "harmless" if found == expected else "missed"


def each_record(path):
    yield Records(path, select=("number",))[:]


def named_by_verify(path, deep):
    try:
        return [problem.place for problem in prep.verify(path, deep=deep).problems]
    except TfshardsError as error:
        return [str(error).partition(": ")[0].removeprefix(f"{path}/")]


@pytest.mark.parametrize("copied", ["few", "gzip"], indirect=True)
def test_any_flipped_bit_and_any_end_of_any_file_is_named_or_harmless(copied, request):
    is_plain, chance, count = "few" in request.node.name, random.Random(0), cases(8, nightly=200)
    paths = ["dataset.json", *(path for shard in read_manifest(copied).shards for path in shard.files)]
    files = sorted(file for file in map(copied.joinpath, paths) if file.stat().st_size)
    assert len(files) >= 7
    cache = None if is_plain else f"disk:{copied.parent / 'near'}"
    readers = [lambda path: batches(path, batch_size=5, remainder="keep"), each_record] if is_plain else []
    counts = Counter()
    for file in files:
        data = file.read_bytes()
        for tried, changed in enumerate(faults(data, chance, count)):
            file.write_bytes(changed)
            for deep in (False, True):
                assert file.relative_to(copied).as_posix() in named_by_verify(copied, deep)
            often = tried == 0 or (tried % 20 == 0 and file.suffix != ".json")
            of_load = [lambda path: load(path, batch_size=5, remainder="keep", cache=cache)] if often else []
            # nothing but verify reads the copy of the manifest in the folder of the build
            is_copy = file.name == "dataset.json" and file.parent != copied
            for read in () if is_copy else (*readers, *of_load):
                counts[outcome(read, copied, file.name, [*range(COUNT)])] += 1
            file.write_bytes(data)
    assert counts["missed"] == 0
    assert counts["refused"] > 0
    assert not (is_plain and counts["harmless"])


# Damage that is skipped


def flip_some(path):
    for index, record, within in [(0, 0, 14), (0, 1, 3), (1, 7, 14), (1, 8, 9), (1, 24, 20), (3, 3, 14)]:
        shard = shard_of(path, index)
        flip_bit(shard, int(frames_of(shard).offsets[record]) + within)


def lengthen(path):
    """Give a record a length that has its checksum, but would take all memory."""
    shard = shard_of(path, 1)
    data, length = bytearray(shard.read_bytes()), struct.pack("<Q", 1 << 40)
    start = int(frames_of(shard).offsets[11])
    data[start : start + 12] = length + struct.pack("<I", masked_crc32c_of([length])[0])
    shard.write_bytes(data)


# the damage, the dataset, and the damaged examples
SKIPPED = {
    "flipped bits": (flip_some, "few", [0, 1, 13, 14, 30, 34]),
    "an empty shard": (of_shard(lambda _: b""), "few", range(6, 31)),
    "a missing shard": (lambda path: shard_of(path, 0).unlink(), "few", range(6)),
    "a cut shard": (lambda path: cut(path, 11, 20), "few", range(17, 31)),
    "a length of 1 TiB": (lengthen, "few", [17]),
    "a cut header": (lambda path: cut(path, 11, 5), "few", range(17, 31)),
}
SKIP = {"batch_size": 4, "remainder": "pad", "on_damage": "skip"}
RESUMED = {"shuffle": Shuffle(3, lanes=2), "worker": Worker(1, 2), "epochs": 2, "start": Position(1, 1)}


@pytest.mark.filterwarnings("ignore:.*records of split 'train' (is|are) damaged")
@pytest.mark.parametrize(("damage", "copied", "lost"), SKIPPED.values(), ids=SKIPPED, indirect=["copied"])
def test_all_other_examples_keep_their_positions(texts, copied, damage, lost):
    sound = texts["none"]
    damage(copied)
    (everything,) = load(copied, **SKIP | {"batch_size": COUNT}).as_numpy_iterator()
    found = np.flatnonzero(everything["sample_weight"] == 0).tolist()
    assert found == [*lost]
    first = next(number for number in range(COUNT) if number not in found)
    wanted = list(load(sound, **{**SKIP, **RESUMED, "on_damage": "raise"}).as_numpy_iterator())
    for read in (load, batches):
        for batch, right in zip(read(copied, **SKIP | RESUMED), wanted, strict=True):
            bad, kept = np.isin(right["number"], found), right["sample_weight"] > 0
            assert np.asarray(batch["sample_weight"]).tolist() == np.where(bad, 0, kept).tolist()
            numbers = np.where(bad, first, right["number"])[kept]
            assert np.asarray(batch["number"])[kept].tolist() == numbers.tolist()
            assert np.asarray(batch["text"])[kept].tolist() == [text_of(number) for number in numbers]


def test_what_skipping_cannot_repair_is_an_error(copied, numbered, tmp_path):
    index_of(copied).unlink()
    with pytest.raises(FormatError, match=r"indexes of the shards .* 1 problem\n.*cannot be read: No such"):
        load(copied, **SKIP)
    path = shutil.copytree(numbered([5, 5]), tmp_path / "foreign")
    shard_of(path, 0).write_bytes(shard_of(path, 1).read_bytes())
    with pytest.raises(FormatError, match=r"00000-of-00002: ends with .* it is a different file"):
        load(path, **SKIP)
    for shard in shards_of(path):
        shard.unlink()
    with pytest.raises(tf.errors.InvalidArgumentError, match="all 10 records of the split are damaged"):
        list(load(path, **SKIP))
    with raises(InputError, "records of the split are damaged", "10 records", code="shard-damaged"):
        list(batches(path, **SKIP))
    with raises(OptionsError, ("on_damage='skip' gives", "remainder='drop'")):
        load(path, **SKIP | {"remainder": "drop"})
    with raises(OptionsError, "on_damage="):
        load(path, **SKIP | {"on_damage": "ignore"})
