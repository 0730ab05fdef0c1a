"""merge: mixtures, names of splits before keys, and what is refused; see tests/verbs for the examples."""

import errno
import os
from itertools import pairwise

import numpy as np
import pytest

from tests.errors import raises
from tfshards import prep
from tfshards.prep import Arrays, ImageFolder, Options, ShardOptions, append, merge, reshard, verify
from tfshards.prep.records.frames import read_records
from tfshards.schemas import BuildError, InputError, OptionsError, read_manifest
from tfshards.schemas.example import decode_example

from .derived import build_quietly, first_shard, flip, in_no_order, quiet, records, write_images

ANY = Options(max_rejected=1)
SPLIT = Options(splits={"train": "0.7", "val": "0.3"}, max_rejected=1)


def build_photos(folder, name: str, numbers: range, options: Options = SPLIT, **more: object):
    """Build images of these numbers, and one that is rejected."""
    photos = write_images(folder / f"{name}-photos", numbers, [f"cat/{name}.png"])
    build_quietly(ImageFolder(photos, **more), folder / name, shards=3, options=options)
    return folder / name


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three datasets of which each split differs in size: 61, 20 and 9 examples."""
    folder = tmp_path_factory.mktemp("three")
    return [
        build_photos(folder, "one", range(61)),
        build_photos(folder, "two", range(61, 81)),
        # without a split val
        build_photos(folder, "three", range(81, 90), ANY),
    ]


@pytest.fixture
def two(tmp_path):
    """Two datasets that a test may damage."""
    return [build_photos(tmp_path, "a", range(12)), build_photos(tmp_path, "b", range(12, 30))]


def together(roots) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for root in roots:
        for split, held in records(root).items():
            found.setdefault(split, []).extend(held)
    return found


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_new_shards_mix_the_datasets(compression, three, tmp_path):
    asked = {
        "shards": prep.ShardCounts(4, {"val": 2}),
        "options": ShardOptions(compression=compression),
    }
    made = merge(three, tmp_path / "out", **asked, log=quiet)
    assert verify(tmp_path / "out", deep=True)
    assert in_no_order(records(tmp_path / "out")) == in_no_order(together(three))
    sizes = [shard.num_examples for shard in made.splits["train"].shards]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 1
    assert made.options["shards"] == {"train": 4, "val": 2}
    assert made.compression == compression
    # each shard holds examples of each dataset, in proportion
    held = [set(records(root)["train"]) for root in three]
    bounds = np.cumsum([0, *sizes]).tolist()
    train = records(tmp_path / "out")["train"]
    for start, end in pairwise(bounds):
        for dataset in held:
            share = len(dataset) * (end - start) / len(train)
            assert abs(sum(record in dataset for record in train[start:end]) - share) <= 3


def test_compressed_and_plain_shards_are_merged_by_writing_new_ones(three, tmp_path):
    reshard(three[1], tmp_path / "two", options=ShardOptions(compression="gzip"), log=quiet)
    roots = [three[0], tmp_path / "two"]
    with raises(InputError, "merge-compressions-differ", compression="none", compression2="gzip"):
        merge(roots, tmp_path / "out", log=quiet)
    made = merge(roots, tmp_path / "out", options=ShardOptions(compression="none"), log=quiet)
    assert made.compression == "none"
    # as many shards as before
    assert len(made.splits["train"].shards) == 6
    assert in_no_order(records(tmp_path / "out")) == in_no_order(together(roots))


def test_without_hard_links_shards_are_copied(three, tmp_path, monkeypatch):
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    # a second file system is not available here
    monkeypatch.setattr(os, "link", refuse)
    made = merge(three, tmp_path / "out", log=quiet)
    assert verify(tmp_path / "out", deep=True)
    assert all((tmp_path / "out" / shard.path).stat().st_nlink == 1 for shard in made.shards)


def test_a_rejected_key_in_two_datasets_is_refused(three, tmp_path):
    photos = write_images(tmp_path / "photos", range(90, 94), ["cat/two.png"])
    build_quietly(ImageFolder(photos), tmp_path / "same", shards=1, options=ANY)
    with raises(InputError, "keys-overlap", key="cat/two.png"):
        merge([three[1], tmp_path / "same"], tmp_path / "out", log=quiet)


def test_other_classes_are_refused(two, tmp_path):
    photos = write_images(tmp_path / "photos", range(40, 44))
    (photos / "dog").rename(photos / "owl")
    build_quietly(ImageFolder(photos), tmp_path / "owls", shards=1, options=ANY)
    with raises(InputError, "merge-classes-differ"):
        merge([*two, tmp_path / "owls"], tmp_path / "out", log=quiet)


@pytest.mark.parametrize("asked", [{}, {"shards": 2}])
def test_a_damaged_shard_is_named(asked, two, tmp_path):
    flip(first_shard(two[1]), -1)
    message = r"b-train-\w+\.tfrecord-00000-of-00003: record \d+ at byte .*checksum"
    with pytest.raises(BuildError, match=message):
        merge(two, tmp_path / "out", **asked, log=quiet)
    assert not (tmp_path / "out" / "dataset.json").exists()


def examples(root):
    """The examples by split and key."""
    manifest = read_manifest(root)
    return {
        split: {
            example["key"][0]: {name: value for name, value in example.items() if name != "key"}
            for shard in held.shards
            for _, data in read_records(root / shard.path, manifest.compression)
            for example in [decode_example(data)]
        }
        for split, held in manifest.splits.items()
    }


@pytest.fixture
def photos(tmp_path):
    """Two datasets of images whose names are the same, each with a rejected file."""
    roots = []
    for name, start in (("a", 0), ("b", 100)):
        folder = write_images(tmp_path / f"{name}-photos", range(20), ["cat/x.png"])
        for number, path in enumerate(sorted(folder.glob("*/0*.png"))):
            path.write_bytes(path.read_bytes() + bytes([start + number]))
        options = Options(max_rejected=1)
        build_quietly(ImageFolder(folder), tmp_path / name, options=options, shards=3)
        roots.append(tmp_path / name)
    return roots


def test_merging_in_one_step_equals_building_from_split_folders(tmp_path):
    roots = {split: write_images(tmp_path / "photos" / split, range(8)) for split in ("train", "test")}
    for split, root in roots.items():
        build_quietly(ImageFolder(root), tmp_path / split)
    merge({split: tmp_path / split for split in roots}, tmp_path / "merged", log=quiet)
    build_quietly(ImageFolder(tmp_path / "photos"), tmp_path / "built")
    assert examples(tmp_path / "merged") == examples(tmp_path / "built")
    # so that the folder of both can be appended
    write_images(tmp_path / "photos" / "test", [8])
    grown = append(tmp_path / "photos", tmp_path / "merged", engine="local", log=quiet)
    assert {name: split.num_examples for name, split in grown.splits.items()} == {"train": 8, "test": 9}


def test_new_rows_of_merged_splits_are_refused(tmp_path):
    for name in ("a", "b"):
        build_quietly(Arrays({"x": np.arange(4)}), tmp_path / name)
    merge({"train": tmp_path / "a", "test": tmp_path / "b"}, tmp_path / "out", log=quiet)
    reshard(tmp_path / "out", tmp_path / "again", shards=2, log=quiet)
    for root in (tmp_path / "out", tmp_path / "again"):
        with raises(InputError, "rows-renumbered"):
            append(Arrays({"x": np.arange(5)}), root, engine="local", log=quiet)


def test_datasets_of_several_splits_are_refused(photos, tmp_path):
    merge({"train": photos[0], "test": photos[1]}, tmp_path / "two", log=quiet)
    with raises(InputError, "as-splits-several", split="val"):
        merge({"train": photos[0], "val": tmp_path / "two"}, tmp_path / "out", log=quiet)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"a b": "a", "test": "b"}, r"^the split name 'a b' must be letters"),
        ({5: "a", "test": "b"}, r"^sources=\[5, 'test'\] must be a list of strings$"),
        ({"train": None, "test": "b"}, r"^sources=None must be a path$"),
        (["a", 3], r"^sources=3 must be a path$"),
    ],
)
def test_sources_that_are_no_paths_by_name_are_refused(sources, message, tmp_path):
    with pytest.raises(OptionsError, match=message):
        merge(sources, tmp_path / "out")
