"""merge: several datasets as one, with their shards as they are or dealt anew; what it refuses."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tfshards.prep import (
    Arrays,
    Dealing,
    ImageFolder,
    ImageOptions,
    Options,
    build,
    merge,
    reshard,
    verify,
)
from tfshards.prep.area import AREA_NAME
from tfshards.prep.copies import keys
from tfshards.prep.copies.origin import Origin
from tfshards.prep.progress import Reporter
from tfshards.prep.shard_file import ShardFile, frames_of
from tfshards.schemas import (
    BuildError,
    Feature,
    InputError,
    Manifest,
    OptionsError,
    Schema,
    Split,
    Totals,
    index_path,
    labels_path,
    read_manifest,
    write_manifest,
)

from .copies import in_no_order, records, write_images

ANY = Options(max_rejected=1)
SPLIT = Options(splits={"train": "0.7", "val": "0.3"}, max_rejected=1)


def quiet(_: str) -> None:
    """Hear nothing."""


def build_photos(folder: Path, name: str, numbers: range, options: Options = SPLIT, **more: object) -> Path:
    """Build images of these numbers, and one that is rejected."""
    photos = write_images(folder / f"{name}-photos", numbers, [f"cat/{name}.png"])
    build(ImageFolder(photos, **more), folder / name, shards=3, options=options, talk=quiet)
    return folder / name


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> list[Path]:
    """Three datasets of which each split differs in size: 61, 20 and 9 examples."""
    folder = tmp_path_factory.mktemp("three")
    return [
        build_photos(folder, "one", range(61)),
        build_photos(folder, "two", range(61, 81)),
        # without a val
        build_photos(folder, "three", range(81, 90), ANY),
    ]


@pytest.fixture
def two(tmp_path) -> list[Path]:
    """Two datasets that a test may damage."""
    return [build_photos(tmp_path, "a", range(12)), build_photos(tmp_path, "b", range(12, 30))]


def together(roots: list[Path]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for root in roots:
        for split, held in records(root).items():
            found.setdefault(split, []).extend(held)
    return found


def test_shards_get_new_names_and_stay_as_they_are(three, tmp_path):
    said: list[str] = []
    made = merge(three, tmp_path / "out", talk=said.append)
    out = tmp_path / "out"
    assert read_manifest(out) == made
    assert verify(out, deep=True) == []
    assert records(out) == together(three)
    assert said == [f"starting build {made.build_id}: 90 examples, 15 shards, linked as they are"]
    old = [root / shard.path for root in three for shard in read_manifest(root).splits["train"].shards]
    new = [out / shard.path for shard in made.splits["train"].shards]
    assert [path.stat().st_ino for path in new] == [path.stat().st_ino for path in old]
    assert [path.name for path in new][-1] == f"out-train-{made.build_id}.tfrecord-00008-of-00009"
    assert len(made.splits["val"].shards) == 6


def test_the_manifest_adds_up(three, tmp_path):
    manifests = [read_manifest(root) for root in three]
    made = merge(three, tmp_path / "out", talk=quiet)
    assert made.totals == Totals(
        entries=93,
        accepted=90,
        rejected=3,
        reasons={"rejected": {"unreadable": 3}, "skipped": {}},
        conversions={},
    )
    for split in ("train", "val"):
        held = [manifest.splits[split].label_counts for manifest in manifests if split in manifest.splits]
        expected = {name: sum(counts[name] for counts in held) for name in ("cat", "dog")}
        assert made.splits[split].label_counts == expected
    lines = (tmp_path / "out" / f"rejected-{made.build_id}.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["cat/one.png", "cat/three.png", "cat/two.png"]
    assert made.options == {
        "source": "merge",
        "of": [{"name": m.name, "build_id": m.build_id, "options": dict(m.options)} for m in manifests],
    }
    # each cut its own examples
    assert made.split_cuts == {}
    assert (tmp_path / "out" / "dataset_info.json").exists()


@pytest.mark.parametrize("balance", ["count", "bytes"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_dealt_to_new_shards_the_datasets_are_mixed(balance, compression, three, tmp_path):
    dealing = Dealing(shards=4, shards_by_split={"val": 2}, balance=balance, compression=compression)
    made = merge(three, tmp_path / "out", dealing, talk=quiet)
    assert verify(tmp_path / "out", deep=True) == []
    assert in_no_order(records(tmp_path / "out")) == in_no_order(together(three))
    sizes = [shard.num_examples for shard in made.splits["train"].shards]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= (1 if balance == "count" else 4)
    assert made.options["shards"] == {"train": 4, "val": 2}
    assert made.compression == compression
    # each shard holds some of each dataset, as many as its share of them is
    held = [set(records(root)["train"]) for root in three]
    places = np.cumsum([0, *sizes]).tolist()
    train = records(tmp_path / "out")["train"]
    for start, end in pairwise(places):
        for dataset in held:
            share = len(dataset) * (end - start) / len(train)
            assert abs(sum(record in dataset for record in train[start:end]) - share) <= 3


def test_of_compressed_and_plain_shards_new_ones_are_dealt(three, tmp_path):
    reshard(three[1], tmp_path / "two", Dealing(compression="gzip"), talk=quiet)
    roots = [three[0], tmp_path / "two"]
    with pytest.raises(
        InputError, match=r"one is of compression none, .*two of gzip; give --compression to write the shards"
    ):
        merge(roots, tmp_path / "out", talk=quiet)
    made = merge(roots, tmp_path / "out", Dealing(), talk=quiet)
    assert made.compression == "none"
    # as many as there were
    assert len(made.splits["train"].shards) == 6
    assert in_no_order(records(tmp_path / "out")) == in_no_order(together(roots))


def test_what_was_merged_can_be_merged_and_resharded(three, tmp_path):
    merge(three[:2], tmp_path / "a", talk=quiet)
    merge([tmp_path / "a", three[2]], tmp_path / "b", talk=quiet)
    made = reshard(tmp_path / "b", tmp_path / "c", Dealing(shards=5, compression="gzip"), talk=quiet)
    assert verify(tmp_path / "c", deep=True) == []
    assert in_no_order(records(tmp_path / "c")) == in_no_order(together(three))
    assert made.totals.rejected == 3


def test_run_again_it_is_up_to_date_and_others_need_to_be_asked_for(three, tmp_path):
    said: list[str] = []
    out = tmp_path / "out"
    made = merge(three[:2], out, talk=quiet)
    assert merge(three[:2], out, talk=said.append) == made
    assert said == [f"{out} is up to date"]
    with pytest.raises(InputError, match=r"of other options \(of\) .*give --overwrite to replace it"):
        merge(three, out, talk=quiet)
    again = merge(three, out, overwrite=True, talk=quiet)
    assert again.num_examples == 90
    assert verify(out) == []


def test_where_there_are_no_links_shards_are_copied(three, tmp_path, monkeypatch):
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    # a second file system cannot be had here
    monkeypatch.setattr(os, "link", refuse)
    made = merge(three, tmp_path / "out", talk=quiet)
    assert verify(tmp_path / "out", deep=True) == []
    assert all((tmp_path / "out" / shard.path).stat().st_nlink == 1 for shard in made.shards)


def test_a_key_in_two_datasets_is_refused(three, tmp_path):
    same = build_photos(tmp_path, "same", range(59, 63), ANY)
    message = r"^the key '(dog/059|cat/060)\.png' stands in .*one and in .*same \(2 keys in all\); leave it"
    with pytest.raises(InputError, match=message):
        merge([three[0], same], tmp_path / "out", talk=quiet)
    assert not (tmp_path / "out").exists()


def test_a_rejected_key_in_two_datasets_is_refused(three, tmp_path):
    photos = write_images(tmp_path / "photos", range(90, 94), ["cat/two.png"])
    build(ImageFolder(photos), tmp_path / "same", shards=1, options=ANY, talk=quiet)
    with pytest.raises(InputError, match=r"^the key 'cat/two\.png' stands in .*two and in .*same; leave"):
        merge([three[1], tmp_path / "same"], tmp_path / "out", talk=quiet)


def test_rows_of_arrays_have_the_same_keys_always(tmp_path):
    for name in "ab":
        build(Arrays({"x": np.arange(4)}), tmp_path / name, shards=1, talk=quiet)
    with pytest.raises(InputError, match=r"the key '\d' stands in .* are known by their numbers: build them"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out", talk=quiet)


def test_other_classes_are_refused(two, tmp_path):
    photos = write_images(tmp_path / "photos", range(40, 44))
    (photos / "dog").rename(photos / "owl")
    build(ImageFolder(photos), tmp_path / "owls", shards=1, options=ANY, talk=quiet)
    message = r"^class 1 is 'dog' in .*/a, and 'owl' in .*/owls; .* again with --labels-from .*/a, or both"
    with pytest.raises(InputError, match=message):
        merge([*two, tmp_path / "owls"], tmp_path / "out", talk=quiet)
    (photos / "owl").rename(photos / "dog")
    (photos / "eel").mkdir()
    source = ImageFolder(photos, class_names=("cat", "dog", "eel"))
    build(source, tmp_path / "eels", shards=1, options=ANY, talk=quiet)
    with pytest.raises(InputError, match=r"^class 2 is missing in .*/a, and 'eel' in .*/eels"):
        merge([*two, tmp_path / "eels"], tmp_path / "out", talk=quiet)


def test_other_features_are_refused(two, tmp_path):
    grey = build_photos(tmp_path, "grey", range(50, 54), ANY, images=ImageOptions(channels=1))
    message = (
        r"^the feature 'image' is \(image, uint8, \[\?, \?, 3\]\) in .*/a, and "
        r"\(image, uint8, \[\?, \?, 1\]\) in .*/grey; datasets that become one need the same features"
    )
    with pytest.raises(InputError, match=message):
        merge([two[0], grey], tmp_path / "out", talk=quiet)
    build(Arrays({"x": np.arange(4)}), tmp_path / "x", shards=1, talk=quiet)
    with pytest.raises(
        InputError, match=r"^the feature 'image' is .* in .*/a, and missing in .*/x; datasets"
    ):
        merge([two[0], tmp_path / "x"], tmp_path / "out", talk=quiet)


@pytest.mark.parametrize(
    ("roots", "message"),
    [
        (["a"], r"^merge: \['a'\] must be two datasets or more$"),
        ("ab", "^merge: 'ab' must be two datasets or more$"),
        (["a", "b", "./a"], r"^merge: a is given twice; give each dataset once$"),
    ],
)
def test_what_is_no_list_of_datasets(roots, message, tmp_path):
    with pytest.raises(OptionsError, match=message):
        merge(roots, tmp_path / "out", talk=quiet)


def test_more_shards_than_examples_are_refused(two, tmp_path):
    with pytest.raises(InputError, match="num_shards=99 exceeds the 20 examples of split 'train'"):
        merge(two, tmp_path / "out", Dealing(shards=99), talk=quiet)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("dealing", [None, Dealing(shards=2)])
def test_a_damaged_shard_is_named(dealing, two, tmp_path):
    flip(two[1] / read_manifest(two[1]).shards[0].path)
    with pytest.raises(
        BuildError, match=r"b-train-\w+\.tfrecord-00000-of-00003: record \d+ at byte .*checksum"
    ):
        merge(two, tmp_path / "out", dealing, talk=quiet)
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_a_damaged_index_is_named(two, tmp_path):
    flip(two[1] / index_path(read_manifest(two[1]).shards[0].path))
    with pytest.raises(BuildError, match=r"/b is damaged: index/b-train-\w+.*; tfshards verify names all"):
        merge(two, tmp_path / "out", talk=quiet)
    assert not (tmp_path / "out" / "dataset.json").exists()
    (two[1] / index_path(read_manifest(two[1]).shards[0].path)).unlink()
    with pytest.raises(BuildError, match=r"/b/index/b-train-\w+.*: No such file"):
        merge(two, tmp_path / "out", talk=quiet)


def test_damaged_labels_are_named(two, tmp_path):
    flip(two[1] / labels_path(read_manifest(two[1]).shards[0].path))
    with pytest.raises(BuildError, match=r"/b is damaged: index/b-train-\w+.*\.labels: its bytes are not"):
        merge(two, tmp_path / "out", talk=quiet)
    with pytest.raises(InputError, match=r"/b is damaged: index/b-train-\w+.*\.labels: is not what was"):
        merge(two, tmp_path / "out", Dealing(shards=2), talk=quiet)


def test_datasets_whose_examples_another_feature_classes_are_not_merged(tmp_path):
    one, other = Feature("kind", "label", "int64"), Feature("label", "label", "int64")
    roots = [
        by_hand(tmp_path / "a", Schema((one, other)), []),
        by_hand(tmp_path / "b", Schema((other, one)), []),
    ]
    message = (
        r"^the first scalar feature of kind 'label' is 'kind' in .*/a, and 'label' in .*/b; datasets that"
    )
    with pytest.raises(InputError, match=message):
        merge(roots, tmp_path / "out", talk=quiet)


def by_hand(root: Path, schema: Schema, examples: list[bytes]) -> Path:
    """Write a dataset of records that need not be what the schema says."""
    (root / "index").mkdir(parents=True)
    with ShardFile(root / "x.tfrecord", schema.label is not None) as file:
        file.append(frames_of([(data,) for data in examples], "none"))
    for path, content in file.beside("x.tfrecord").items():
        (root / path).write_bytes(content)
    splits = {"train": Split((file.shard("x.tfrecord"),))}
    totals = Totals(len(examples), len(examples))
    write_manifest(Manifest("x", "00000000", schema, splits, totals), root)
    return root


def test_datasets_without_keys_are_merged_with_a_warning(tmp_path):
    schema = Schema((Feature("x", "bytes", "bytes"),))
    roots = [by_hand(tmp_path / name, schema, [name.encode() * 3]) for name in "ab"]
    said: list[str] = []
    merge(roots, tmp_path / "out", talk=said.append)
    assert said[0].startswith("warning: the examples have no keys, by which to tell")
    assert records(tmp_path / "out") == {"train": [b"aaa", b"bbb"]}


NO_KEYS = {
    "no example": (b"\xff", "record 0 at byte 0: is no tf.train.Example"),
    "no key": (b"", "record 0 at byte 0: has no key"),
}


@pytest.mark.parametrize(("data", "message"), NO_KEYS.values(), ids=NO_KEYS.keys())
def test_a_record_without_a_key_is_named(data, message, tmp_path):
    schema = Schema((Feature("key", "bytes", "bytes"),))
    roots = [by_hand(tmp_path / name, schema, [data]) for name in "ab"]
    with pytest.raises(BuildError, match=message):
        merge(roots, tmp_path / "out", talk=quiet)


def test_a_shard_that_lacks_records_at_its_end_is_named(two):
    manifest = read_manifest(two[0])
    path = two[0] / manifest.shards[0].path
    index = (two[0] / index_path(manifest.shards[0].path)).read_text().splitlines()
    os.truncate(path, int(index[-1].split()[0]))
    with pytest.raises(BuildError, match=r"holds 1 records, the manifest says 2"):
        keys.read_keys(Origin(two[0], manifest), "keys")


def test_keys_are_read_no_further_once_another_shard_has_failed(three, monkeypatch):
    monkeypatch.setattr(keys, "_RECORDS", 2)
    origin = Origin(three[0], read_manifest(three[0]))
    shard = origin.manifest.shards[0]
    stop = threading.Event()
    assert len(keys._shard_keys(origin, shard, Reporter(), stop)) == shard.num_examples
    stop.set()
    assert len(keys._shard_keys(origin, shard, Reporter(), stop)) == 2


def test_one_that_was_killed_can_be_run_again(three, tmp_path, contents):
    before = [contents(root) for root in three]
    code = (
        "import os, sys; from tfshards.prep import merge; from tfshards.prep.copies import linking\n"
        "def die(*_): os.kill(os.getpid(), 9)\n"
        # behind the first shards
        "linking.shard_problems = die\n"
        "merge(sys.argv[2:], sys.argv[1])"
    )
    command = [sys.executable, "-c", code, tmp_path / "out", *three]
    assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode == -9
    assert (tmp_path / "out" / AREA_NAME).exists()
    assert not (tmp_path / "out" / "dataset.json").exists()
    merge(three, tmp_path / "out", talk=quiet)
    merge(three, tmp_path / "whole" / "out", talk=quiet)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole" / "out")
    assert [contents(root) for root in three] == before


def test_the_command_prints_the_new_dataset(three, tmp_path, capsys):
    from tfshards.prep.cli import main

    roots = [str(root) for root in three]
    assert main(["merge", *roots, str(tmp_path / "out"), "--name", "pets"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"pets, build {read_manifest(tmp_path / 'out').build_id}"
    assert len(read_manifest(tmp_path / "out").shards) == 15
    assert main(["merge", *roots, str(tmp_path / "new"), "--shards", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["options"]["shards"] == {"train": 2, "val": 2}
    assert main(["merge", roots[0], str(tmp_path / "new")]) == 2
    assert "must be two datasets or more" in capsys.readouterr().err
