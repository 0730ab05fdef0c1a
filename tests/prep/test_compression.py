"""``--compression gzip``: the same examples in the same order, in smaller files, for every verb."""

import gzip
from dataclasses import replace

import pytest

from tfshards.prep import ImageFolder, Options, audit, verify
from tfshards.prep.verification.show import find
from tfshards.prep.views.tfds import tfds_problems
from tfshards.schemas import OptionsError, read_manifest
from tfshards.schemas.manifest import manifest_text as info_text

PLAIN = Options(max_rejected=1, splits={"train": "3/4", "val": "1/4"})
GZIP = replace(PLAIN, compression="gzip")


@pytest.fixture
def folder(image_folder):
    """Forty images of two classes and three files that are not images, so that two layouts are written."""
    files = {f"{('ant', 'bee')[n % 2]}/{n:02}.png": n for n in range(40)}
    return image_folder({**files, **{f"ant/bad-{n}.jpg": b"no image" for n in range(3)}})


def inflated(out):
    """Return the records of each shard in order, by split."""
    manifest = read_manifest(out)
    opened = gzip.open if manifest.compression == "gzip" else open
    found = {}
    for name, split in manifest.splits.items():
        for shard in split.shards:
            with opened(out / shard.path, "rb") as file:
                found.setdefault(name, []).append(file.read())
    return found


def test_compressed_shards_hold_the_records_of_plain_ones(folder, tmp_path, quiet_build):
    plain, small = tmp_path / "plain" / "out", tmp_path / "small" / "out"
    quiet_build(ImageFolder(folder), plain, shards=3, options=PLAIN)
    made = quiet_build(ImageFolder(folder), small, shards=3, options=GZIP)
    assert inflated(small) == inflated(plain)
    assert made.compression == "gzip"
    for name, split in read_manifest(plain).splits.items():
        assert made.splits[name].examples_digest == split.examples_digest
        assert made.splits[name].record_bytes == split.num_bytes
        for shard, other in zip(made.splits[name].shards, split.shards, strict=True):
            assert (shard.index_digest, shard.num_examples) == (other.index_digest, other.num_examples)
    assert verify(small, deep=True)


def test_the_bytes_do_not_depend_on_the_number_of_workers(folder, tmp_path, quiet_build, contents):
    outs = [tmp_path / name / "out" for name in ("one", "several")]
    quiet_build(ImageFolder(folder), outs[0], shards=3, options=GZIP)
    workers = ["--direct_num_workers=2", "--direct_running_mode=multi_threading"]
    quiet_build(ImageFolder(folder), outs[1], shards=3, options=GZIP, beam_args=workers)
    assert contents(outs[0]) == contents(outs[1])


def test_the_other_verbs_read_compressed_shards(folder, tmp_path, quiet_build):
    quiet_build(ImageFolder(folder), tmp_path / "out", shards=3, options=GZIP)
    assert find(tmp_path / "out", "ant/00.png").values["key"] == [b"ant/00.png"]
    assert sum(audit(tmp_path / "out").num_examples.values()) == 40
    assert info_text(read_manifest(tmp_path / "out")).splitlines()[0].endswith(", gzip")


def test_compressed_datasets_have_no_tfds_view(folder, tmp_path, quiet_build):
    made = quiet_build(ImageFolder(folder), tmp_path / "out", shards=3, options=GZIP)
    assert [str(problem) for problem in tfds_problems(made)] == [
        "compression: is gzip; TFDS reads only uncompressed shards"
    ]
    assert not (tmp_path / "out" / "dataset_info.json").exists()


@pytest.mark.parametrize("compression", ["GZIP", "zstd", "", None])
def test_another_compression_is_refused(compression):
    with pytest.raises(OptionsError, match=r"compression=.* must be one of none, gzip$"):
        Options(compression=compression)
