"""``check="headers"`` compares lengths and checksums before TensorFlow reads a shard."""

import shutil
import struct

import numpy as np
import pytest
import tensorflow as tf

from tfshards import loader
from tfshards.loader.integrity import files as headers
from tfshards.schemas import FormatError, read_manifest
from tfshards.schemas.digests import masked_crc32c_of_rows
from tfshards.schemas.index import index_path, parse_index

from .conftest import TEXTS, frames_of, shard_of

SIZES = [6, 25, 0]


@pytest.fixture(scope="module", params=["none", "gzip"])
def made(request, write_dataset, tmp_path_factory):
    shards = [[{"number": n, "text": b"x" * (n % 5 * 10)} for n in range(size)] for size in SIZES]
    path = tmp_path_factory.mktemp("made") / request.param
    return write_dataset(path, TEXTS, {"train": shards}, compression=request.param)


# Bytes read at a time, bytes per record above which only headers are read, and the reason.
LIMITS = [(4 << 20, 32 << 10, "all at once"), (200, 32 << 10, "in blocks"), (200, 0, "header by header")]


@pytest.mark.parametrize(("block", "sparse", "reason"), LIMITS)
def test_an_intact_dataset_passes(made, monkeypatch, block, sparse, reason):
    monkeypatch.setattr(headers, "_BLOCK_BYTES", block)
    monkeypatch.setattr(headers, "_SPARSE_BYTES", sparse)
    dataset = loader.load(made, batch_size=4, remainder="keep", check="headers")
    assert sum(len(batch["number"]) for batch in dataset) == sum(SIZES), reason


def second(path):
    return shard_of(path, 1)


def offsets(shard):
    return frames_of(shard).offsets


def write_at(record, within, content):
    def change(shard):
        data = bytearray(shard.read_bytes())
        start = offsets(shard)[record] + within
        data[start : start + len(content)] = content
        shard.write_bytes(data)

    return change


def huge_length():
    length = struct.pack("<Q", 1 << 40)
    rows = np.frombuffer(length, np.uint8)[np.newaxis]
    return length + struct.pack("<I", int(masked_crc32c_of_rows(rows)[0]))


def replace(shard):
    """Replace record 3 with record 8, which has the same length."""
    data = bytearray(shard.read_bytes())
    starts = offsets(shard)
    data[starts[3] : starts[4]] = data[starts[8] : starts[9]]
    shard.write_bytes(data)


def shift(shard):
    """Remove record 4, and repeat record 9, which has the same length, before the last record."""
    data = shard.read_bytes()
    starts = offsets(shard)
    removed = data[: starts[4]] + data[starts[5] : starts[24]] + data[starts[9] : starts[10]]
    shard.write_bytes(removed + data[starts[24] :])


FAULTS = [
    (write_at(11, 0, huge_length()), r"record 11 at offset {11}: its length differs from the index"),
    (write_at(11, 2, b"\xff"), r"record 11 at offset {11}: .* the checksum of its length is wrong"),
    (write_at(11, 9, b"\xff"), r"record 11 at offset {11}: .* the checksum of its length is wrong"),
    (replace, r"its records differ from the manifest: .* [0-9a-f]+ instead of"),
    (shift, r"record 4 at offset {4}: (.|\n)* and [0-9]+ more such records"),
]


@pytest.mark.parametrize("made", ["none"], indirect=True)
@pytest.mark.parametrize(("block", "sparse", "reason"), LIMITS)
@pytest.mark.parametrize(("change", "message"), FAULTS)
def test_error_names_the_faulty_record(made, tmp_path, monkeypatch, change, message, block, sparse, reason):
    monkeypatch.setattr(headers, "_BLOCK_BYTES", block)
    monkeypatch.setattr(headers, "_SPARSE_BYTES", sparse)
    path = shutil.copytree(made, tmp_path / "copy")
    shard = second(path)
    starts = offsets(shard)
    for record in (4, 11):
        message = message.replace(f"{{{record}}}", str(starts[record]))
    change(shard)
    with pytest.raises(FormatError, match=message) as caught:
        loader.load(path, batch_size=4, check="headers")
    assert all(problem.place == shard.name for problem in caught.value.problems)


@pytest.mark.parametrize("made", ["none"], indirect=True)
def test_a_record_with_a_huge_length_counts_as_damaged(made, tmp_path):
    path = shutil.copytree(made, tmp_path / "copy")
    write_at(11, 0, huge_length())(second(path))
    assert loader.damaged_records(path) == [(second(path).name, 11, offsets(second(path))[11])]


@pytest.mark.parametrize("made", ["gzip"], indirect=True)
def test_error_names_the_first_record_after_damage_in_compressed_data(made, tmp_path):
    path = shutil.copytree(made, tmp_path / "copy")
    shard = second(path)
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 4
    shard.write_bytes(data)
    with pytest.raises(FormatError, match=f"{shard.name}: record 1[0-9] at offset"):
        loader.load(path, batch_size=4, check="headers")


@pytest.mark.parametrize("change", ["after", "short"])
def test_extra_or_missing_bytes_make_the_last_record_wrong(made, tmp_path, change):
    path = shutil.copytree(made, tmp_path / "copy")
    shard, manifest = second(path), read_manifest(path)
    index = parse_index((path / index_path(shard.name)).read_text(), "index")
    data = shard.read_bytes()
    if manifest.compression == "gzip":
        # One gzip member too many, or one too few.
        data = data + data[:60] if change == "after" else data[: data.rindex(b"\x1f\x8b")]
    else:
        data = data + b"x" if change == "after" else data[: offsets(shard)[24]]
    shard.write_bytes(data)
    wrong, _ = headers.frame_faults(shard, index, manifest.compression)
    assert wrong.tolist() == [24]


def test_error_names_a_shard_removed_during_the_check(made, tmp_path):
    path = shutil.copytree(made, tmp_path / "copy")
    manifest = read_manifest(path)
    shards = manifest.splits["train"].shards
    indexes = [parse_index((path / index_path(shard.path)).read_text(), "index") for shard in shards]
    second(path).unlink()
    problems = headers.header_problems(path, shards, indexes, manifest.compression)
    assert [str(p) for p in problems] == [f"{second(made).name}: cannot be read: No such file or directory"]


def test_distribute_checks_and_skips_as_load_does(numbered, tmp_path):
    path = shutil.copytree(numbered([5, 6]), tmp_path / "copy")
    shard = next(path.glob("*-00001-of-00002"))
    write_at(2, 9, b"\xff")(shard)
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with pytest.raises(FormatError, match="record 2 at offset"):
        loader.distribute(strategy, path, global_batch_size=4, check="headers")
    with pytest.warns(UserWarning, match="1 of the 11 records"):
        data = loader.distribute(strategy, path, global_batch_size=4, remainder="pad", on_damage="skip")
    assert sum(float(tf.reduce_sum(batch["sample_weight"])) for batch in data) == 10
