"""merge and reshard: mixtures, numbers of shards, and what is refused; see tests/verbs for the examples."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tests.format_reader import read
from tests.prep import derived
from tests.prep.derived import first_labels, first_shard, flip, keys, write_images
from tfshards import prep
from tfshards.prep import (
    Arrays,
    ImageFolder,
    Options,
    ShardOptions,
    append,
    build,
    merge,
    remove,
    reshard,
    verify,
)
from tfshards.schemas import BuildError, InputError, OptionsError

ANY = Options(max_rejected=1)


def build_photos(folder, name: str, numbers: range, **options: object):
    """Build images of these numbers, and one that is rejected."""
    photos = write_images(folder / f"{name}-photos", numbers, [f"cat/{name}.png"])
    build(ImageFolder(photos), folder / name, shards=3, options=Options(max_rejected=1, **options))
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


def test_datasets_that_do_not_fit_are_refused(three, tmp_path):
    photos = write_images(tmp_path / "photos", range(90, 94), ["cat/two.png"])
    build(ImageFolder(photos), tmp_path / "same", shards=1, options=ANY)
    (photos / "dog").rename(photos / "owl")
    build(ImageFolder(photos), tmp_path / "owls", shards=1, options=ANY)
    # a key that is only rejected in both
    with pytest.raises(InputError, match=r"the key 'cat/two\.png'"):
        merge([three[1], tmp_path / "same"], tmp_path / "out")
    with raises(InputError, "class names of the other"):
        merge([three[0], tmp_path / "owls"], tmp_path / "out")
    with raises(InputError, "must have one split to become 'val'"):
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
    assert caught.value.code == "shard-damaged"
    assert not (tmp_path / "out" / "dataset.json").exists()


@pytest.mark.parametrize("asked", [{}, {"shards": 2}], ids=["as many", "two"])
def test_a_damaged_dataset_is_merged_again_with_overwrite(asked, three, tmp_path, contents):
    made = merge(three, tmp_path / "out", **asked)
    before = contents(tmp_path / "out")
    flip(first_shard(tmp_path / "out"))
    assert merge(three, tmp_path / "out", overwrite=True, **asked) == made
    assert contents(tmp_path / "out") == before


def test_datasets_of_one_split_become_splits(tmp_path):
    for split, numbers in (("train", range(8)), ("test", range(8, 12))):
        build(ImageFolder(write_images(tmp_path / "photos" / split, numbers)), tmp_path / split)
    sources = {split: tmp_path / split for split in ("test", "train")}
    merge(sources, tmp_path / "merged")
    examples = {split: read(tmp_path / split)["train"] for split in sources}
    assert {split: {*part} for split, part in read(tmp_path / "merged").items()} == {
        split: {*part} for split, part in examples.items()
    }
    # what was removed is not appended, and a folder of splits has other keys
    remove(tmp_path / "train", ["cat/000.png"])
    merge(sources, tmp_path / "merged", overwrite=True)
    remove(tmp_path / "merged", ["dog/001.png"])
    with raises(InputError, "nothing determines"):
        append(write_images(tmp_path / "more", [20]), tmp_path / "merged")
    line = append(tmp_path / "photos" / "train", tmp_path / "merged")
    assert {name: split.num_examples for name, split in line.splits.items()} == {"test": 4, "train": 6}


def test_rows_of_several_datasets_are_not_merged(tmp_path):
    for name in ("a", "b"):
        build(Arrays({"x": np.arange(4)}), tmp_path / name)
    with pytest.raises(InputError, match=r"rows without keys .* build them together"):
        merge({"train": tmp_path / "a", "test": tmp_path / "b"}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# reshard: numbers of shards, and what is refused; see tests/verbs for the examples


@pytest.fixture
def old(tmp_path) -> Path:
    """Arrays that a test may damage: 101 examples in 3 shards."""
    derived.build_arrays(tmp_path)
    return tmp_path / "old"


def test_records_that_are_not_those_of_the_dataset_are_not_resharded(old, tmp_path):
    derived.repeat_a_record(first_shard(old))
    with raises(BuildError, "with digest", "'train'"):
        reshard(old, tmp_path / "out", shards=7)
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_an_output_without_space_is_refused_before_anything_is_written(old, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    # a full disk cannot be arranged here
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with raises(InputError, "needs about", "the dataset", "1000 B", code="disk-full"):
        reshard(old, tmp_path / "plain", shards=2)
    # the size is not known
    reshard(old, tmp_path / "gzip", options=ShardOptions(compression="gzip"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with raises(InputError, "needs about", "the dataset", code="disk-full"):
        reshard(tmp_path / "gzip", tmp_path / "again", shards=2)


def test_a_dataset_with_these_shards_is_up_to_date(old):
    made = reshard(old, old, shards=4, overwrite=True)
    assert reshard(old, old, shards=4, overwrite=True) == made
