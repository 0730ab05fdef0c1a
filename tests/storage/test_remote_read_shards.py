"""A dataset in an object store is read in a pipeline of the user."""

from urllib.parse import unquote

import numpy as np

from tests.errors import raises
from tests.prep.derived import flip
from tests.prep.test_read_shards import FRAME, all_of, assert_same, read, write_numbers
from tfshards import prep
from tfshards.prep.engines import read_shards
from tfshards.prep.records import frames
from tfshards.prep.records.frames import RecordError
from tfshards.schemas import read_manifest

from .conftest import each_store


@each_store
def test_a_dataset_in_a_bucket_is_read_by_few_large_requests(tmp_path, upload, proxy, monkeypatch):
    root = write_numbers(tmp_path / "data", [300, 200])
    url = upload(root)
    expected = [(f"{number:03}", {"number": np.int64(number)}) for number in range(500)]
    read(prep.ReadShards(url), check=lambda found: assert_same(found, expected))
    monkeypatch.setattr(frames, "_REQUEST_BYTES", 100 * (FRAME + 1))
    read_shards._index.cache_clear()
    before = len(proxy.requests)
    assert_same(all_of(url, num_bytes=8_000), expected)
    gets = [each for each in proxy.requests[before:] if ".tfrecord-" in unquote(each.target)]
    in_shards = [each for each in gets if "/index/" not in unquote(each.target)]
    # two runs of 150 records and two of 100, in parts of about 100; each index once
    assert (len(in_shards), len(gets) - len(in_shards)) == (6, 2)
    assert sum(each.received for each in in_shards) == sum(
        shard.num_bytes for shard in read_manifest(root).shards
    )


@each_store
def test_damage_and_compressed_shards_in_a_bucket(tmp_path, upload):
    source, options = prep.Arrays({"x": np.arange(50)}), prep.Options(compression="gzip")
    prep.build(source, tmp_path / "small", shards=2, options=options)
    assert_same(all_of(upload(tmp_path / "small", "small")), all_of(tmp_path / "small"))
    root = write_numbers(tmp_path / "data", [40])
    (shard,) = read_manifest(root).shards
    flip(root / shard.path, 7 * FRAME + 15)
    url = upload(root)
    where = {"path": f"{url}/{shard.path}", "record": 7, "offset": 7 * FRAME}
    with raises(RecordError, "at byte", *map(str, where.values()), code="record-damaged"):
        all_of(url)
