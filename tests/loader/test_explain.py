"""Damage that is met while reading is an error that names file, record and byte, and says what to do."""

import re
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import Feature, Schema, index_path, parse_index

SIZES = [6, 25, 7]
SCHEMA = Schema((Feature("number", "int", "int64"), Feature("text", "bytes", "bytes")))


@pytest.fixture(scope="module", params=["none", "gzip"])
def made(request, write_dataset, tmp_path_factory):
    """A dataset whose records differ in length."""
    bounds = np.cumsum([0, *SIZES])
    shards = [
        [{"number": n, "text": b"x" * (n * 7 % 40)} for n in range(bounds[i], bounds[i + 1])]
        for i in range(len(SIZES))
    ]
    path = tmp_path_factory.mktemp("made") / request.param
    return write_dataset(path, SCHEMA, {"train": shards}, compression=request.param)


@pytest.fixture
def copied(made, tmp_path):
    return shutil.copytree(made, tmp_path / "copy")


def second(path):
    (found,) = path.glob("*-00001-of-00003")
    return found


def offsets(shard):
    text = (shard.parent / index_path(shard.name)).read_text()
    index = parse_index(text, "index")
    return index.offsets, index.lengths


def flip(shard, place):
    data = bytearray(shard.read_bytes())
    data[place] ^= 16
    shard.write_bytes(data)


# The place of the fault relative to the frame of record 11, whether to its end, and where that is.
FLIPS = [
    (0, False, "in the length"),
    (9, False, "in the length's checksum"),
    (20, False, "in the data"),
    (-2, True, "in the data's checksum"),
]


@pytest.mark.parametrize("made", ["none"], indirect=True)
@pytest.mark.parametrize(("place", "behind", "reason"), FLIPS)
@pytest.mark.parametrize("shuffle", [None, loader.Shuffle(seed=2), loader.Shuffle(seed=2, run=2, lanes=1)])
def test_a_flipped_bit_is_named_with_file_record_and_byte(copied, place, behind, reason, shuffle):
    shard = second(copied)
    starts, lengths = offsets(shard)
    flip(shard, int(starts[11]) + place + (int(lengths[11]) if behind else 0))
    message = (
        f"shard {re.escape(str(shard))} is damaged at record 11, byte {starts[11]}; .*tfshards verify --deep"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(loader.load(copied, batch_size=3, remainder="keep", shuffle=shuffle))


@pytest.mark.parametrize("made", ["none"], indirect=True)
def test_nothing_is_delivered_behind_the_damage(copied):
    shard = second(copied)
    flip(shard, int(offsets(shard)[0][11]) + 20)
    batches = loader.load(copied, batch_size=1).as_numpy_iterator()
    seen = []
    with pytest.raises(tf.errors.InvalidArgumentError, match="damaged at record 11"):
        seen.extend(batch["number"].item() for batch in batches)
    assert seen == list(range(len(seen)))
    assert len(seen) <= SIZES[0] + 11


def cut(where):
    def change(shard):
        data = shard.read_bytes()
        starts, lengths = offsets(shard)
        shard.write_bytes(data[: int(starts[11]) + where(int(lengths[11]))])

    return change


# the change after load, what the error says
CHANGES = [
    (cut(lambda length: 0), r"ends after 11 records, but the manifest says 25", "cut between records"),
    (cut(lambda length: 5), r"ends after 11 records|is damaged at record 11", "cut in a header"),
    (cut(lambda length: length - 3), r"is damaged at record 11", "cut in a record"),
    (lambda shard: shard.write_bytes(b""), r"ends after 0 records, but the manifest says 25", "emptied"),
    (lambda shard: shard.unlink(), r"cannot be read: it was removed", "removed"),
]


@pytest.mark.parametrize("made", ["none"], indirect=True)
@pytest.mark.parametrize(("change", "message", "reason"), CHANGES)
@pytest.mark.parametrize("shuffle", [None, loader.Shuffle(seed=2)])
@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_a_change_after_load_is_named(copied, change, message, reason, shuffle, remainder):
    dataset = loader.load(copied, batch_size=4, remainder=remainder, shuffle=shuffle)
    shard = second(copied)
    change(shard)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{re.escape(str(shard))} ({message}).*restore"):
        list(dataset)


@pytest.mark.parametrize("made", ["gzip"], indirect=True)
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.99])
@pytest.mark.parametrize("change", ["flip", "cut"])
def test_damaged_compressed_data_are_named(copied, share, change):
    shard = second(copied)
    data = shard.read_bytes()
    place = int(len(data) * share)
    dataset = loader.load(copied, batch_size=4, remainder="keep")
    flip(shard, place) if change == "flip" else shard.write_bytes(data[:place])
    message = f"shard {re.escape(str(shard))} (is damaged at record|ends after|cannot be read)"
    numbers, error = read(dataset)
    # a bit of gzip's header that means nothing does no harm
    assert re.search(message, error) if error else numbers == list(range(sum(SIZES)))


def read(dataset):
    """Return the numbers that come, and the text of the error that ends them."""
    numbers = []
    try:
        for batch in dataset.as_numpy_iterator():
            numbers.extend(batch["number"].tolist())
    except tf.errors.InvalidArgumentError as error:
        return numbers, str(error)
    return numbers, ""


@pytest.mark.parametrize("made", ["none"], indirect=True)
def test_a_shard_exchanged_for_a_sound_one_of_other_records_is_named(copied):
    dataset = loader.load(copied, batch_size=4, remainder="keep", shuffle=loader.Shuffle(seed=1))
    shard = second(copied)
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(shard))]
    with tf.io.TFRecordWriter(str(shard)) as writer:
        for record in reversed(records):
            writer.write(record)
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"shard.* {re.escape(str(shard))}.*exchanged"):
        list(dataset)


REMOVED = """
    import os, sys
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    from pathlib import Path
    from tfshards import loader

    dataset = loader.load(sys.argv[1], batch_size=2, epochs=None, shuffle=loader.Shuffle(seed=0))
    iterator = iter(dataset)
    next(iterator)
    for shard in Path(sys.argv[1]).glob("*.tfrecord-*"):
        shard.unlink()
    try:
        while True:
            next(iterator)
    except tf.errors.InvalidArgumentError as error:
        print(error)
"""


def test_a_run_without_end_whose_dataset_is_removed_ends_and_names_a_shard(copied):
    command = [sys.executable, "-c", textwrap.dedent(REMOVED), str(copied)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"shard .*tfrecord-0000\d-of-00003 cannot be read: it was removed", done.stdout)
