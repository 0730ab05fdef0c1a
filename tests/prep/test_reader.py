"""Damaged shards: each record that is lost is named, and those around it are read."""

import gzip

import numpy as np
import pytest

from tfshards.prep import Arrays, Options, limited_jobs, verify

TEXTS = np.array(["one", "two", "", "three", "x" * 40, "the last one"])


@pytest.fixture(params=["none", "gzip"])
def shard(request, tmp_path, quiet_build):
    """A shard, functions that read and write its frames, and the offsets of these."""
    with limited_jobs(1):
        quiet_build(Arrays({"t": TEXTS}), tmp_path / "out", options=Options(compression=request.param))
    (path,) = (tmp_path / "out").glob("*.tfrecord-*")
    pack, unpack = (gzip.compress, gzip.decompress) if request.param == "gzip" else (bytes, bytes)
    data = unpack(path.read_bytes())
    offsets = [0]
    while offsets[-1] < len(data):
        length = int.from_bytes(data[offsets[-1] : offsets[-1] + 8], "little")
        offsets.append(offsets[-1] + 16 + length)
    return path, data, offsets, lambda found: path.write_bytes(pack(found))


def lines(path):
    """Return what verify says of each record."""
    return [line for line in map(str, verify(path.parent, deep=True).problems) if "record " in line]


@pytest.mark.parametrize("number", [0, 3, 5])
@pytest.mark.parametrize("part", ["length", "checksum of the length", "data", "checksum of the data"])
def test_a_flipped_bit_costs_the_record_that_it_is_in(part, number, shard):
    path, data, offsets, write = shard
    places = {"length": 0, "checksum of the length": 8, "data": 12, "checksum of the data": -1}
    start, size = offsets[number], offsets[number + 1] - offsets[number]
    changed = bytearray(data)
    changed[start + places[part] % size] ^= 1
    write(bytes(changed))
    (line,) = lines(path)
    assert f"record {number} at byte {start}" in line
    # the index locates the records after it
    assert "cannot be located" not in line


@pytest.mark.parametrize("number", [0, 4, 5])
@pytest.mark.parametrize("length", [1, 11, 12, -1])
def test_a_shard_that_ends_within_a_record_has_those_before_it(length, number, shard):
    path, data, offsets, write = shard
    start, size = offsets[number], offsets[number + 1] - offsets[number]
    write(data[: start + length % size])
    line, *more = lines(path)
    assert f"record {number} at byte {start}" in line
    assert not more
