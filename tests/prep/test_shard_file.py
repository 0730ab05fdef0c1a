"""The file of a shard, plain or compressed, and its description."""

import errno
import gzip
import hashlib
import os
import random
import zlib

import pytest
import tensorflow as tf

from tfshards.prep.records.example import example_encoder
from tfshards.prep.records.frames import RecordError, read_records
from tfshards.prep.records.shard_file import ShardFile, frames_of, scan_shard
from tfshards.schemas import Feature, Schema
from tfshards.schemas.frames import masked_crc32c
from tfshards.schemas.index import parse_index, parse_labels

# in parts, as the encoder returns large examples
RUNS = [
    [(b"first",), (b"", b"")],
    [(b"head", bytes(range(256)) * 400, b"tail")],
    [],
    [(b"x" * 5000,), (b"y",)] * 40,
    [(bytes(3 << 20),)],
]
RECORDS = [b"".join(parts) for run in RUNS for parts in run]


def write(root, compression, runs=RUNS, labels=()):
    """Write the shard, and its labels if there are any."""
    left = iter(labels)
    with ShardFile(root / "a.tfrecord", **({"has_labels": True} if labels else {})) as file:
        for run in runs:
            file.append(frames_of(run, compression), [next(left) for _ in run] if labels else ())
    return file


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_the_description_of_a_shard_matches_its_file(compression, tmp_path):
    file = write(tmp_path, compression)
    described = file.describe("a.tfrecord")
    assert described == scan_shard(tmp_path, "a.tfrecord", compression)
    index = described[1]["index/a.tfrecord.idx"]
    assert described[1].keys() == {"index/a.tfrecord.idx"}
    data = (tmp_path / "a.tfrecord").read_bytes()
    shard, _ = file.describe("b/c")
    assert (shard.path, shard.num_examples, shard.num_bytes) == ("b/c", len(RECORDS), len(data))
    assert shard.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert shard.index_digest == f"sha256:{hashlib.sha256(index).hexdigest()}"
    assert shard.last_bytes == data[-8:].hex()
    whole = gzip.decompress(data) if compression == "gzip" else data
    assert shard.record_bytes == len(whole) == parse_index(index.decode(), "index").num_bytes


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_tensorflow_reads_the_written_shard(compression, tmp_path):
    write(tmp_path, compression)
    path = tmp_path / "a.tfrecord"
    kind = {"none": "", "gzip": "GZIP"}[compression]
    assert [record.numpy() for record in tf.data.TFRecordDataset(str(path), kind)] == RECORDS
    assert [data for _, data in read_records(path, compression)] == RECORDS


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_shard_without_examples_is_an_empty_file(compression, tmp_path):
    file = write(tmp_path, compression, [[], []])
    assert (tmp_path / "a.tfrecord").read_bytes() == b""
    shard, companions = file.describe("a.tfrecord")
    assert (shard, companions) == scan_shard(tmp_path, "a.tfrecord", compression)
    assert (shard.last_bytes, companions) == ("", {"index/a.tfrecord.idx": b""})
    assert list(read_records(tmp_path / "a.tfrecord", compression)) == []


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_labels_are_stored_next_to_a_shard_and_match_its_records(compression, tmp_path):
    label = Feature("label", "label", "int64")
    encode = example_encoder(Schema((Feature("x", "bytes", "bytes"), label)))
    labels = [3, -1, 2**63 - 1, -(2**63), 0, 3]
    records = [encode([b"x" * 3000 * place, label]) for place, label in enumerate(labels)]
    file = write(tmp_path, compression, [records[:1], records[1:4], [], records[4:]], labels)
    described = file.describe("a.tfrecord")
    assert described == scan_shard(tmp_path, "a.tfrecord", compression, label=label)
    assert parse_labels(described[1]["index/a.tfrecord.labels"], 6, "labels").tolist() == labels
    assert described[0].companion_digests.keys() == described[1].keys()
    for name, found in {"x": 0, "none": 0}.items():
        message = rf"record 0 at byte 0: the feature '{name}' has {found} integers"
        with pytest.raises(RecordError, match=message):
            scan_shard(tmp_path, "a.tfrecord", compression, label=Feature(name, "label", "int64"))


def test_a_finished_file_stays_and_an_abandoned_one_does_not(tmp_path):
    path = tmp_path / "a.tfrecord"
    file = write(tmp_path, "none")
    file.finish()
    file.abandon()
    assert [data for _, data in read_records(path, "none")] == RECORDS
    path.unlink()
    unfinished = ShardFile(path)

    def fail():
        with unfinished:
            unfinished.append(frames_of(RUNS[0], "none"))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not path.exists()
    # the file of a second attempt
    path.touch()
    unfinished.abandon()
    assert path.exists()


def test_compressed_files_are_reproducible_and_hold_no_timestamp(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "gzip")
    data = (tmp_path / "one" / "a.tfrecord").read_bytes()
    assert data == (tmp_path / "other" / "a.tfrecord").read_bytes()
    # the time in the header of a member: RFC 1952, section 2.3
    assert data[4:8] == bytes(4)
    assert len(data) < sum(map(len, RECORDS)) / 10


def test_the_records_of_a_call_are_one_member_of_zlibs_default_level(tmp_path):
    # other levels find other matches in letters, and a smaller window none in repeated noise
    text = bytes(random.Random(0).choices(b"abcd", k=20_000)) + random.Random(0).randbytes(20_000) * 2
    write(tmp_path, "gzip", [[(text,), (b"short",)], [(b"next",)]])
    plain = [b"".join(frames_of(run, "none").buffers) for run in ([(text,), (b"short",)], [(b"next",)])]
    members = []
    for data in plain:
        # with the header of gzip
        compressor = zlib.compressobj(wbits=31)
        members.append(compressor.compress(data) + compressor.flush())
    assert (tmp_path / "a.tfrecord").read_bytes() == b"".join(members)


def test_a_file_that_cannot_be_finished_is_removed(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        write(tmp_path, "none")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_not_overwritten(tmp_path):
    write(tmp_path, "none")
    with pytest.raises(FileExistsError):
        write(tmp_path, "none")


COMPRESSED = gzip.compress(b"".join(b"".join(frames_of([(b"abc",)] * 9, "none").buffers) for _ in range(9)))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(COMPRESSED[:-1], id="without its last byte"),
        pytest.param(COMPRESSED[: len(COMPRESSED) // 2], id="half"),
        pytest.param(COMPRESSED[:-6] + b"\0" + COMPRESSED[-5:], id="another checksum"),
        pytest.param(COMPRESSED[:12] + b"\xff" + COMPRESSED[13:], id="another code"),
        pytest.param(COMPRESSED + b"x", id="a trailing byte"),
        pytest.param(b"abc", id="not a gzip file"),
    ],
)
def test_damaged_compressed_data_are_reported_with_the_record(data, tmp_path):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(RecordError, match=r"/a: record \d+ at byte \d+: the compressed data are damaged: "):
        list(read_records(tmp_path / "a", "gzip"))


def test_a_length_beyond_the_compressed_data_takes_no_memory(tmp_path):
    length = (1 << 40).to_bytes(8, "little")
    (tmp_path / "a").write_bytes(
        gzip.compress(length + masked_crc32c(length).to_bytes(4, "little") + bytes(1 << 21))
    )
    with pytest.raises(RecordError, match="states 1099511627776 bytes of data, more than a record can have"):
        list(read_records(tmp_path / "a", "gzip"))
