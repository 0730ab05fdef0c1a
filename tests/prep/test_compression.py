"""``--compression gzip``: the records of plain shards in smaller files, which TFDS does not read."""

import gzip

from tfshards.prep import ImageFolder, Options, audit
from tfshards.schemas import read_manifest


def test_compressed_shards_hold_the_records_of_plain_ones(image_folder, tmp_path, quiet_build, contents):
    files = {f"{('ant', 'bee')[n % 2]}/{n:02}.png": n for n in range(40)}
    # so that two layouts are written
    root = image_folder({**files, **{f"ant/bad-{n}.jpg": b"no image" for n in range(3)}})
    given = {"max_rejected": 1, "splits": {"train": "3/4", "val": "1/4"}}
    outs = [tmp_path / name / "out" for name in ("plain", "one", "several")]
    workers = ["--direct_num_workers=2", "--direct_running_mode=multi_threading"]
    quiet_build(ImageFolder(root), outs[0], shards=3, options=Options(**given))
    packed = Options(**given, compression="gzip")
    quiet_build(ImageFolder(root), outs[1], shards=3, options=packed)
    quiet_build(ImageFolder(root), outs[2], shards=3, options=packed, beam_args=workers)
    assert contents(outs[1]) == contents(outs[2])
    plain, made = map(read_manifest, outs[:2])
    for name, split in plain.splits.items():
        assert made.splits[name].examples_digest == split.examples_digest
        assert made.splits[name].record_bytes == split.num_bytes
        for shard, other in zip(made.splits[name].shards, split.shards, strict=True):
            data = gzip.decompress((outs[1] / shard.path).read_bytes())
            assert data == (outs[0] / other.path).read_bytes()
            assert (shard.index_digest, shard.num_examples) == (other.index_digest, other.num_examples)
    assert sum(audit(outs[1]).num_examples.values()) == 40
    assert (outs[0] / "dataset_info.json").exists()
    assert not (outs[1] / "dataset_info.json").exists()
