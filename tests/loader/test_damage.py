"""A damaged dataset is an error that names the file; nothing is lost in silence."""

import hashlib
import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import Feature, FormatError, InputError, RecordIndex, Schema, index_path

SIZES = [6, 5, 7]


@pytest.fixture
def copied(numbered, tmp_path):
    """A dataset of three shards to be damaged."""
    return shutil.copytree(numbered(SIZES), tmp_path / "copy")


def shard_of(path, index):
    (found,) = path.glob(f"*-{index:05d}-of-{len(SIZES):05d}")
    return found


def records(shard):
    return [record.numpy() for record in tf.data.TFRecordDataset(str(shard))]


def rewrite(shard, kept):
    with tf.io.TFRecordWriter(str(shard)) as writer:
        for record in kept:
            writer.write(record)


def edit_manifest(path, change):
    manifest = path / "dataset.json"
    document = json.loads(manifest.read_text())
    change(document)
    manifest.write_text(json.dumps(document))


def edit_size(path, shard):
    """Let the manifest say the size and digest that the file has now, and the old number of records."""

    def change(document):
        (entry,) = (e for e in document["splits"]["train"]["shards"] if e["path"] == shard.name)
        entry["num_bytes"] = shard.stat().st_size
        entry["digest"] = f"sha256:{hashlib.sha256(shard.read_bytes()).hexdigest()}"

    edit_manifest(path, change)


def test_a_missing_shard_is_named(copied):
    shard = shard_of(copied, 1)
    shard.unlink()
    with pytest.raises(
        FormatError, match=f"split 'train': 1 problem\n.*{shard.name}: cannot be read: No such"
    ):
        loader.load(copied, batch_size=2)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b""])
def test_a_shard_of_another_size_is_named_with_both_sizes(copied, change):
    shard = shard_of(copied, 2)
    data = shard.read_bytes()
    shard.write_bytes(change(data))
    message = f"{shard.name}: has {len(change(data))} bytes, the manifest says {len(data)}"
    with pytest.raises(FormatError, match=message):
        loader.load(copied, batch_size=2)


def test_all_faulty_shards_are_named_at_once(copied):
    for index in range(3):
        shard_of(copied, index).write_bytes(b"short")
    with pytest.raises(FormatError, match="3 problems") as caught:
        loader.load(copied, batch_size=2)
    assert len(caught.value.problems) == 3


def test_another_split_may_be_damaged(write_dataset, tmp_path):
    schema = Schema((Feature("number", "int", "int64"),))
    examples = [[{"number": 1}]]
    path = write_dataset(tmp_path / "two", schema, {"train": examples, "val": examples})
    next(path.glob("*-val-*")).unlink()
    (batch,) = loader.load(path, "train", batch_size=1).as_numpy_iterator()
    assert batch["number"].tolist() == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"0 16\nnothing\n", "line 2: is 'nothing', must be two integers and a newline"),
        (b"\xff\xfe", "is not ASCII text"),
        (b"", "describes 0 records in 0 bytes, the manifest says 5 records in"),
        (b"0 30\n31 30\n", "line 2: is 31 30, but the record starts at 30"),
        (b"0 30\n30 30\n", "describes 2 records in 60 bytes, the manifest says 5 records"),
    ],
)
def test_an_index_that_is_missing_or_wrong_is_named(copied, content, message):
    index = copied / index_path(shard_of(copied, 1).name)
    index.unlink() if content is None else index.write_bytes(content)
    with pytest.raises(FormatError, match=f"indexes of the shards: 1 problem\n.*{index.name}.*{message}"):
        loader.load(copied, batch_size=2)


@pytest.mark.parametrize("shuffle", [None, loader.Shuffle(2), loader.Shuffle(2, window=1)])
def test_a_shard_cut_between_records_is_named_although_manifest_and_index_say_its_size(copied, shuffle):
    shard = shard_of(copied, 1)
    kept = records(shard)[:-1]
    rewrite(shard, kept)
    edit_size(copied, shard)
    # as many entries as the manifest has records, in as many bytes: the sum is the only thing that is checked
    lengths = np.array([len(record) + 16 for record in kept], np.int64)
    lengths = np.append(lengths, 16)
    lengths[0] -= 16
    (copied / index_path(shard.name)).write_text(RecordIndex(lengths).to_text())
    dataset = loader.load(copied, batch_size=3, shuffle=shuffle, remainder="keep")
    with pytest.raises(tf.errors.OpError) as caught:
        list(dataset)
    assert shard.name in str(caught.value)


@pytest.mark.parametrize("shuffle", [None, loader.Shuffle(2)])
def test_a_shard_that_shrinks_while_it_is_open_is_named_with_what_it_holds(copied, shuffle):
    dataset = loader.load(copied, batch_size=3, shuffle=shuffle, remainder="keep")
    shard = shard_of(copied, 2)
    rewrite(shard, records(shard)[:4])
    message = (
        f"{re.escape(str(shard))} ends after 4 records, but the manifest says 7; .* restore or rebuild it"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(dataset)


@pytest.mark.parametrize("image", [False, True])
def test_a_shard_that_vanishes_while_it_is_open_is_named(copied, image):
    dataset = loader.load(copied, batch_size=3, shuffle=loader.Shuffle(1) if image else None)
    shard = shard_of(copied, 0)
    shard.unlink()
    with pytest.raises(tf.errors.NotFoundError, match=shard.name):
        list(dataset)


def flip(shard, place):
    data = bytearray(shard.read_bytes())
    data[place] ^= 1
    shard.write_bytes(data)


@pytest.mark.parametrize(
    ("place", "shuffle", "reason"),
    [
        (3, None, "in a length"),
        (14, loader.Shuffle(2), "in a value"),
        (-1, None, "in the last checksum"),
    ],
)
def test_a_flipped_bit_is_an_error(copied, place, shuffle, reason):
    flip(shard_of(copied, 1), place)
    dataset = loader.load(copied, batch_size=3, shuffle=shuffle, remainder="keep")
    with pytest.raises(tf.errors.DataLossError, match=r"corrupted record at [0-9]+"):
        list(dataset)


@pytest.mark.xfail(strict=True, reason="TensorFlow's error has the offset only, and nothing adds the file")
def test_a_flipped_bit_is_an_error_that_names_the_file(copied):
    shard = shard_of(copied, 1)
    flip(shard, 14)
    with pytest.raises(tf.errors.OpError, match=shard.name):
        list(loader.load(copied, batch_size=3, remainder="keep"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format_version=99), "format_version: is 99, this release reads up to 1"),
        (lambda d: d["splits"]["train"].update(num_examples=1), "num_examples: is 1, but the shards hold 18"),
        (
            lambda d: d["splits"]["train"]["shards"][0].update(path="../x"),
            r"splits\.train\.shards\[0\]\.path",
        ),
    ],
)
def test_a_manifest_that_breaks_the_format_is_refused(copied, change, message):
    edit_manifest(copied, change)
    with pytest.raises(FormatError, match=message):
        loader.load(copied, batch_size=2)


def test_a_manifest_that_is_no_json_is_refused(copied):
    (copied / "dataset.json").write_text("{")
    with pytest.raises(FormatError, match="not readable as JSON"):
        loader.load(copied, batch_size=2)


def test_a_file_is_no_dataset(copied):
    with pytest.raises(InputError, match=r"is a file; name the directory that holds dataset\.json"):
        loader.load(copied / "dataset.json", batch_size=2)
