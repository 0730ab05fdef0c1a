"""A damaged dataset raises an error that names the file; no data are lost silently."""

import dataclasses
import json
import os
import re
import shutil

import pytest
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import Feature, FormatError, Schema, Totals, read_manifest
from tfshards.schemas.index import index_path
from tfshards.schemas.manifest_file import write_manifest

from .conftest import shard_of

SIZES = [6, 5, 7]


@pytest.fixture
def copied(numbered, tmp_path):
    """Return a dataset of three shards that a test may damage."""
    return shutil.copytree(numbered(SIZES), tmp_path / "copy")


def records(shard):
    return [record.numpy() for record in tf.data.TFRecordDataset(str(shard))]


def rewrite(shard, kept):
    with tf.io.TFRecordWriter(str(shard)) as writer:
        for record in kept:
            writer.write(record)


def test_a_missing_shard_is_named(copied):
    shard = shard_of(copied, 1)
    shard.unlink()
    with pytest.raises(
        FormatError,
        match=r"split 'train' \(`tfshards verify DATASET` .* --repair SOURCE` .*\): "
        rf"1 problem\n.*{shard.name}: cannot be read: No",
    ):
        loader.load(copied, batch_size=2)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b""])
def test_error_for_a_shard_of_the_wrong_size_names_both_sizes(copied, change):
    shard = shard_of(copied, 2)
    data = shard.read_bytes()
    shard.write_bytes(change(data))
    message = f"{shard.name}: has {len(change(data))} bytes instead of the {len(data)} in the manifest"
    with pytest.raises(FormatError, match=message):
        loader.load(copied, batch_size=2)


def test_one_error_names_all_damaged_shards(copied):
    for index in range(3):
        shard_of(copied, index).write_bytes(b"short")
    with pytest.raises(FormatError, match="3 problems") as caught:
        loader.load(copied, batch_size=2)
    assert len(caught.value.problems) == 3


def test_damage_in_a_different_split_does_not_matter(write_dataset, tmp_path):
    schema = Schema((Feature("number", "int", "int64"),))
    examples = [[{"number": 1}]]
    path = write_dataset(tmp_path / "two", schema, {"train": examples, "val": examples})
    next(path.glob("*-val-*")).unlink()
    (batch,) = loader.load(path, "train", batch_size=1).as_numpy_iterator()
    assert batch["number"].tolist() == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read: No such file"), (b"", "has 0 records of 0 bytes, but the manifest lists 5 of")],
)
def test_error_names_a_missing_or_wrong_index(copied, content, message):
    index = copied / index_path(shard_of(copied, 1).name)
    index.unlink() if content is None else index.write_bytes(content)
    with pytest.raises(FormatError, match=f"1 problem\n.*{index.name}.*{message}"):
        loader.load(copied, batch_size=2)


@pytest.mark.parametrize("path_of", [lambda shard: shard.name, lambda shard: index_path(shard.name)])
def test_error_names_a_pipe_in_place_of_a_file_which_would_never_end(copied, path_of):
    path = copied / path_of(shard_of(copied, 1))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FormatError, match=f"1 problem\n.*{path.name}: cannot be read: is not a regular file"):
        loader.load(copied, batch_size=2)


@pytest.mark.parametrize("shuffle", [None, loader.Shuffle(seed=2)])
def test_error_for_a_shard_that_shrinks_while_it_is_open_names_its_number_of_records(copied, shuffle):
    dataset = loader.load(copied, batch_size=3, shuffle=shuffle, remainder="keep")
    shard = shard_of(copied, 2)
    rewrite(shard, records(shard)[:4])
    message = f"{re.escape(str(shard))} ends after 4 records instead of 7; .* DATASET --repair SOURCE`"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(dataset)


def test_an_edited_manifest_is_rejected(copied):
    document = json.loads((copied / "dataset.json").read_text())
    (copied / "dataset.json").write_text(json.dumps({**document, "name": "e"}))
    with pytest.raises(FormatError, match="digest: does not match: the manifest was changed or damaged"):
        loader.load(copied, batch_size=2)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("path", "x.tfrecord", "x.tfrecord: cannot be read: No such file"),
        ("num_examples", 6, "has 5 records of [0-9]+ bytes, but the manifest lists 6 of"),
        (
            "last_bytes",
            "00" * 8,
            "ends with the bytes [0-9a-f]{16} instead of 0{16} as in the manifest: it is a different file",
        ),
        ("index_digest", f"sha256:{'0' * 64}", "its bytes have changed: the digest differs"),
    ],
)
def test_an_edited_manifest_with_a_valid_digest_does_not_match_its_files(copied, field, value, message):
    manifest = read_manifest(copied)
    split = manifest.splits["train"]
    shards = list(split.shards)
    shards[1] = dataclasses.replace(shards[1], **{field: value})
    total = sum(shard.num_examples for shard in shards)
    splits = {"train": dataclasses.replace(split, shards=tuple(shards))}
    write_manifest(dataclasses.replace(manifest, splits=splits, totals=Totals(total, total)), copied)
    with pytest.raises(FormatError, match=message):
        loader.load(copied, batch_size=2)


def test_error_names_a_shard_of_a_different_build_with_the_same_size(copied, numbered, tmp_path):
    other = shutil.copytree(numbered([5, 6, 7]), tmp_path / "other")
    shards = [shard_of(copied, 0), shard_of(copied, 1)]
    one, two = (shard.read_bytes() for shard in shards)
    shards[0].write_bytes(shard_of(other, 1).read_bytes())
    assert shards[0].stat().st_size == len(one) != len(two)
    message = rf"{shards[0].name}: ends with the bytes .* it is a different file"
    with pytest.raises(FormatError, match=message):
        loader.load(copied, batch_size=2)
