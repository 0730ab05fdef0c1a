"""merge: mixtures, names of splits before keys, and what is refused; see tests/verbs for the examples."""

import errno
import os
import re

import numpy as np
import pytest

from tests.errors import raises
from tests.format_reader import read
from tfshards import prep
from tfshards.prep import Arrays, ImageFolder, Options, ShardOptions, append, merge, remove, reshard, verify
from tfshards.schemas import BuildError, InputError, OptionsError, read_manifest

from .derived import build_quietly, first_labels, first_shard, flip, keys, write_images

ANY = Options(max_rejected=1)


def build_photos(folder, name: str, numbers: range, **options: object):
    """Build images of these numbers, and one that is rejected."""
    photos = write_images(folder / f"{name}-photos", numbers, [f"cat/{name}.png"])
    build_quietly(ImageFolder(photos), folder / name, shards=3, options=Options(max_rejected=1, **options))
    return folder / name


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three datasets of different sizes: 61, 20 and 9 examples."""
    folder, splits = tmp_path_factory.mktemp("three"), {"train": "0.7", "val": "0.3"}
    return [
        build_photos(folder, "one", range(61), splits=splits),
        build_photos(folder, "two", range(61, 81), splits=splits),
        # without a split val
        build_photos(folder, "three", range(81, 90)),
    ]


def test_each_new_shard_holds_examples_of_each_dataset_in_proportion(three, tmp_path):
    made = merge(three, tmp_path / "out", shards=prep.ShardCounts(4, {"val": 2}))
    assert verify(tmp_path / "out", deep=True)
    assert [len(made.splits[split].shards) for split in ("train", "val")] == [4, 2]
    held, train, start = [set(keys(root)["train"]) for root in three], keys(tmp_path / "out")["train"], 0
    for shard in made.splits["train"].shards:
        part = train[start : start + shard.num_examples]
        start += shard.num_examples
        for dataset in held:
            assert abs(len(dataset & {*part}) - len(dataset) * len(part) / len(train)) <= 1


def test_compressed_and_plain_shards_are_merged_by_writing_new_ones(three, tmp_path):
    reshard(three[1], tmp_path / "two", options=ShardOptions(compression="gzip"))
    roots = [three[0], tmp_path / "two"]
    with raises(InputError, "merge-compressions-differ", compression="none", compression2="gzip"):
        merge(roots, tmp_path / "out")
    made = merge(roots, tmp_path / "out", options=ShardOptions(compression="none"))
    assert (made.compression, len(made.splits["train"].shards), made.num_examples) == ("none", 6, 81)


def test_without_hard_links_shards_are_copied(three, tmp_path, monkeypatch):
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    # a second file system is not available here
    monkeypatch.setattr(os, "link", refuse)
    made = merge(three, tmp_path / "out")
    assert verify(tmp_path / "out", deep=True)
    assert all((tmp_path / "out" / shard.path).stat().st_nlink == 1 for shard in made.shards)


def test_datasets_that_do_not_fit_are_refused(three, tmp_path):
    photos = write_images(tmp_path / "photos", range(90, 94), ["cat/two.png"])
    build_quietly(ImageFolder(photos), tmp_path / "same", shards=1, options=ANY)
    (photos / "dog").rename(photos / "owl")
    build_quietly(ImageFolder(photos), tmp_path / "owls", shards=1, options=ANY)
    # a key that is only rejected in both
    with raises(InputError, "keys-overlap", key="cat/two.png"):
        merge([three[1], tmp_path / "same"], tmp_path / "out")
    with raises(InputError, "schemas-differ"):
        merge([three[0], tmp_path / "owls"], tmp_path / "out")
    with raises(InputError, "as-splits-several", split="val"):
        merge({"train": three[2], "val": three[0]}, tmp_path / "out")
    for sources in ({"a b": "a", "test": "b"}, {5: "a", "test": "b"}, {"train": None, "test": "b"}, ["a", 3]):
        with pytest.raises(OptionsError):
            merge(sources, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("asked", [{}, {"shards": 2}])
@pytest.mark.parametrize("damaged", [first_shard, first_labels])
def test_a_damaged_file_is_named(damaged, asked, three, tmp_path):
    other = build_photos(tmp_path, "b", range(90, 100))
    path = flip(damaged(other), -1)
    with pytest.raises((BuildError, InputError), match=re.escape(path.name)) as caught:
        merge([three[2], other], tmp_path / "out", **asked)
    assert (caught.value.code == "shard-damaged") == (asked != {} and damaged is first_shard)
    assert not (tmp_path / "out" / "dataset.json").exists()


@pytest.mark.parametrize("asked", [{}, {"shards": 2}], ids=["linked", "written"])
def test_a_damaged_dataset_is_merged_again_with_overwrite(asked, three, tmp_path, contents):
    made = merge(three, tmp_path / "out", **asked)
    before = contents(tmp_path / "out")
    flip(first_shard(tmp_path / "out"))
    assert merge(three, tmp_path / "out", overwrite=True, **asked) == made
    assert contents(tmp_path / "out") == before


def test_merging_as_splits_equals_building_from_split_folders(tmp_path):
    roots = {split: write_images(tmp_path / "photos" / split, range(8)) for split in ("train", "test")}
    for split, root in roots.items():
        build_quietly(ImageFolder(root), tmp_path / split)
    merge({split: tmp_path / split for split in roots}, tmp_path / "merged")
    build_quietly(ImageFolder(tmp_path / "photos"), tmp_path / "built")
    images = [
        {(split, key): part[key]["image"] for split, part in read(tmp_path / name).items() for key in part}
        for name in ("merged", "built")
    ]
    assert images[0] == images[1]
    # so that the folder of both can be appended, without what was removed before
    remove(tmp_path / "train", ["cat/000.png"])
    merge({split: tmp_path / split for split in roots}, tmp_path / "merged", overwrite=True)
    remove(tmp_path / "merged", ["train/dog/001.png"])
    write_images(tmp_path / "photos" / "test", [8])
    grown = append(tmp_path / "photos", tmp_path / "merged", engine="local")
    assert {name: split.num_examples for name, split in grown.splits.items()} == {"train": 6, "test": 9}


def test_new_rows_of_merged_splits_are_refused(tmp_path):
    for name in ("a", "b"):
        build_quietly(Arrays({"x": np.arange(4)}), tmp_path / name)
    merge({"train": tmp_path / "a", "test": tmp_path / "b"}, tmp_path / "out")
    reshard(tmp_path / "out", tmp_path / "again", shards=2)
    for root in (tmp_path / "out", tmp_path / "again"):
        before = read_manifest(root)
        with raises(InputError, "rows-renumbered"):
            append(Arrays({"x": np.arange(5)}), root, engine="local")
        assert read_manifest(root) == before
