"""merge: several datasets as one, with linked or new shards, and what is refused."""

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

from tests.errors import fault, raises
from tfshards.prep import (
    Arrays,
    ImageFolder,
    ImageOptions,
    Options,
    ShardCounts,
    ShardOptions,
    merge,
    reshard,
    verify,
)
from tfshards.prep.building.output_state import up_to_date
from tfshards.prep.progress.lines import Reporter
from tfshards.prep.records.shard_file import ShardFile, frames_of
from tfshards.prep.rewriting import keys
from tfshards.prep.rewriting.origin import Origin
from tfshards.prep.writing.area import AREA_NAME
from tfshards.schemas import (
    BuildError,
    Feature,
    InputError,
    Manifest,
    OptionsError,
    Schema,
    Split,
    Totals,
    read_manifest,
)
from tfshards.schemas.index import index_path, labels_path
from tfshards.schemas.manifest_file import write_manifest

from .derived import build_quietly, in_no_order, records, write_images

ANY = Options(max_rejected=1)
SPLIT = Options(splits={"train": "0.7", "val": "0.3"}, max_rejected=1)


def quiet(_: str) -> None:
    """Drop a status line."""


def build_photos(folder: Path, name: str, numbers: range, options: Options = SPLIT, **more: object) -> Path:
    """Build images of these numbers, and one that is rejected."""
    photos = write_images(folder / f"{name}-photos", numbers, [f"cat/{name}.png"])
    build_quietly(ImageFolder(photos, **more), folder / name, shards=3, options=options)
    return folder / name


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> list[Path]:
    """Three datasets of which each split differs in size: 61, 20 and 9 examples."""
    folder = tmp_path_factory.mktemp("three")
    return [
        build_photos(folder, "one", range(61)),
        build_photos(folder, "two", range(61, 81)),
        # without a split val
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


def test_shards_are_linked_under_new_names(three, tmp_path):
    logged: list[str] = []
    made = merge(three, tmp_path / "out", log=logged.append)
    out = tmp_path / "out"
    assert read_manifest(out) == made
    assert verify(out, deep=True)
    assert records(out) == together(three)
    assert logged == ["starting merge: 90 examples, 15 shards, linked unchanged"]
    old = [root / shard.path for root in three for shard in read_manifest(root).splits["train"].shards]
    new = [out / shard.path for shard in made.splits["train"].shards]
    assert [path.stat().st_ino for path in new] == [path.stat().st_ino for path in old]
    assert [path.name for path in new][-1] == f"out-train-{made.build_id}.tfrecord-00008-of-00009"
    assert len(made.splits["val"].shards) == 6


def test_the_manifest_adds_up(three, tmp_path):
    manifests = [read_manifest(root) for root in three]
    made = merge(three, tmp_path / "out", log=quiet)
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
    # each dataset has its own cuts
    assert made.split_cuts == {}
    assert (tmp_path / "out" / "dataset_info.json").exists()


@pytest.mark.parametrize("balance", ["count", "bytes"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_new_shards_mix_the_datasets(balance, compression, three, tmp_path):
    asked = {
        "shards": ShardCounts(4, {"val": 2}),
        "options": ShardOptions(balance=balance, compression=compression),
    }
    made = merge(three, tmp_path / "out", **asked, log=quiet)
    assert verify(tmp_path / "out", deep=True)
    assert in_no_order(records(tmp_path / "out")) == in_no_order(together(three))
    sizes = [shard.num_examples for shard in made.splits["train"].shards]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= (1 if balance == "count" else 4)
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


def test_a_merged_dataset_can_be_merged_and_resharded(three, tmp_path):
    merge(three[:2], tmp_path / "a", log=quiet)
    merge([tmp_path / "a", three[2]], tmp_path / "b", log=quiet)
    made = reshard(
        tmp_path / "b", tmp_path / "c", shards=5, options=ShardOptions(compression="gzip"), log=quiet
    )
    assert verify(tmp_path / "c", deep=True)
    assert in_no_order(records(tmp_path / "c")) == in_no_order(together(three))
    assert made.totals.rejected == 3


def test_a_repeated_merge_is_up_to_date_and_another_needs_overwrite(three, tmp_path):
    logged: list[str] = []
    out = tmp_path / "out"
    made = merge(three[:2], out, log=quiet)
    assert merge(three[:2], out, log=logged.append) == made
    assert logged == [up_to_date(out, is_compared=False)]
    with raises(InputError, "dataset-differs", distinction="with other inputs"):
        merge(three, out, log=quiet)
    again = merge(three, out, overwrite=True, log=quiet)
    assert again.num_examples == 90
    assert verify(out)


def test_without_hard_links_shards_are_copied(three, tmp_path, monkeypatch):
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    # a second file system is not available here
    monkeypatch.setattr(os, "link", refuse)
    made = merge(three, tmp_path / "out", log=quiet)
    assert verify(tmp_path / "out", deep=True)
    assert all((tmp_path / "out" / shard.path).stat().st_nlink == 1 for shard in made.shards)


def test_a_key_in_two_datasets_is_refused(three, tmp_path):
    same = build_photos(tmp_path, "same", range(59, 63), ANY)
    message = r"^the key '(dog/059|cat/060)\.png' is in .*one and in .*same \(2 keys in total\); remove it "
    message += (
        r"from one of them with 'tfshards remove', or make .* \('tfshards merge --as-splits', or a dict"
    )
    with raises(InputError, "keys-overlap", in_all=" (2 keys in total)"):
        merge([three[0], same], tmp_path / "out", log=quiet)
    assert not (tmp_path / "out").exists()


def test_a_rejected_key_in_two_datasets_is_refused(three, tmp_path):
    photos = write_images(tmp_path / "photos", range(90, 94), ["cat/two.png"])
    build_quietly(ImageFolder(photos), tmp_path / "same", shards=1, options=ANY)
    with raises(InputError, "keys-overlap", key="cat/two.png"):
        merge([three[1], tmp_path / "same"], tmp_path / "out", log=quiet)


def test_datasets_of_arrays_have_the_same_keys_and_are_refused(tmp_path):
    for name in "ab":
        build_quietly(Arrays({"x": np.arange(4)}), tmp_path / name, shards=1)
    with raises(InputError, "keys-overlap"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out", log=quiet)


def test_other_classes_are_refused(two, tmp_path):
    photos = write_images(tmp_path / "photos", range(40, 44))
    (photos / "dog").rename(photos / "owl")
    build_quietly(ImageFolder(photos), tmp_path / "owls", shards=1, options=ANY)
    with raises(InputError, "merge-classes-differ"):
        merge([*two, tmp_path / "owls"], tmp_path / "out", log=quiet)
    (photos / "owl").rename(photos / "dog")
    (photos / "eel").mkdir()
    source = ImageFolder(photos, class_names=("cat", "dog", "eel"))
    build_quietly(source, tmp_path / "eels", shards=1, options=ANY)
    with raises(InputError, "merge-classes-differ"):
        merge([*two, tmp_path / "eels"], tmp_path / "out", log=quiet)


def test_other_features_are_refused(two, tmp_path):
    gray = build_photos(tmp_path, "grey", range(50, 54), ANY, images=ImageOptions(channels=1))
    with raises(InputError, "merge-features-differ"):
        merge([two[0], gray], tmp_path / "out", log=quiet)
    build_quietly(Arrays({"x": np.arange(4)}), tmp_path / "x", shards=1)
    with raises(InputError, "merge-features-differ"):
        merge([two[0], tmp_path / "x"], tmp_path / "out", log=quiet)


@pytest.mark.parametrize(
    ("roots", "message"),
    [
        (["a"], fault("merge-too-few", given="one was")),
        ("ab", fault("merge-too-few", given="one was")),
        (["a", "b", "./a"], fault("merge-repeated", twice="a")),
    ],
)
def test_anything_except_two_different_datasets_is_refused(roots, message, tmp_path):
    with raises(OptionsError, message):
        merge(roots, tmp_path / "out", log=quiet)


def test_more_shards_than_examples_are_refused(two, tmp_path):
    with raises(InputError, "shards-too-many-of-splits", asked="shards=99", examples=20):
        merge(two, tmp_path / "out", shards=99, log=quiet)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("asked", [{}, {"shards": 2}])
def test_a_damaged_shard_is_named(asked, two, tmp_path):
    flip(two[1] / read_manifest(two[1]).shards[0].path)
    with pytest.raises(
        BuildError, match=r"b-train-\w+\.tfrecord-00000-of-00003: record \d+ at byte .*checksum"
    ):
        merge(two, tmp_path / "out", **asked, log=quiet)
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_a_damaged_index_is_named(two, tmp_path):
    flip(two[1] / index_path(read_manifest(two[1]).shards[0].path))
    with pytest.raises(BuildError, match=r"/b is damaged: index/b-train-\w+.*; tfshards verify lists all"):
        merge(two, tmp_path / "out", log=quiet)
    assert not (tmp_path / "out" / "dataset.json").exists()
    (two[1] / index_path(read_manifest(two[1]).shards[0].path)).unlink()
    with raises(BuildError, "file-fault"):
        merge(two, tmp_path / "out", log=quiet)


def test_damaged_labels_are_named(two, tmp_path):
    flip(two[1] / labels_path(read_manifest(two[1]).shards[0].path))
    with pytest.raises(
        BuildError, match=r"/b is damaged: index/b-train-\w+.*\.labels: its bytes have changed"
    ):
        merge(two, tmp_path / "out", log=quiet)
    with pytest.raises(InputError, match=r"/b is damaged: index/b-train-.*\.labels: its bytes have changed"):
        merge(two, tmp_path / "out", shards=2, log=quiet)


def test_datasets_whose_labels_are_different_features_are_refused(tmp_path):
    one, other = Feature("kind", "label", "int64"), Feature("label", "label", "int64")
    roots = [
        by_hand(tmp_path / "a", Schema((one, other)), []),
        by_hand(tmp_path / "b", Schema((other, one)), []),
    ]
    with raises(InputError, "merge-features-differ"):
        merge(roots, tmp_path / "out", log=quiet)


def by_hand(root: Path, schema: Schema, examples: list[bytes]) -> Path:
    """Write a dataset of records that may violate the schema."""
    (root / "index").mkdir(parents=True)
    with ShardFile(root / "x.tfrecord", schema.label is not None) as file:
        file.append(frames_of([(data,) for data in examples], "none"))
    shard, companions = file.describe("x.tfrecord")
    for path, content in companions.items():
        (root / path).write_bytes(content)
    splits = {"train": Split((shard,))}
    totals = Totals(len(examples), len(examples))
    write_manifest(Manifest("x", "00000000", schema, splits, totals), root)
    return root


def test_datasets_without_keys_are_merged_with_a_warning(tmp_path):
    schema = Schema((Feature("x", "bytes", "bytes"),))
    roots = [by_hand(tmp_path / name, schema, [name.encode() * 3]) for name in "ab"]
    logged: list[str] = []
    merge(roots, tmp_path / "out", log=logged.append)
    assert logged[0].startswith("warning: the examples have no keys, so repeated")
    assert records(tmp_path / "out") == {"train": [b"aaa", b"bbb"]}


NO_KEYS = {
    "no example": (b"\xff", "record 0 at byte 0: is not a tf.train.Example"),
    "no key": (b"", "record 0 at byte 0: has no key"),
}


@pytest.mark.parametrize(("data", "message"), NO_KEYS.values(), ids=NO_KEYS.keys())
def test_a_record_without_a_key_is_named(data, message, tmp_path):
    schema = Schema((Feature("key", "bytes", "bytes"),))
    roots = [by_hand(tmp_path / name, schema, [data]) for name in "ab"]
    with pytest.raises(BuildError, match=message):
        merge(roots, tmp_path / "out", log=quiet)


def test_a_shard_that_lacks_records_at_its_end_is_named(two):
    manifest = read_manifest(two[0])
    path = two[0] / manifest.shards[0].path
    index = (two[0] / index_path(manifest.shards[0].path)).read_text().splitlines()
    os.truncate(path, int(index[-1].split()[0]))
    with raises(BuildError, "keys-miscounted", num_packed=1, num_examples=2):
        keys.read_keys(Origin(two[0], manifest), "keys")


def test_keys_are_read_no_further_once_another_shard_has_failed(three, monkeypatch):
    monkeypatch.setattr(keys, "_RECORDS", 2)
    origin = Origin(three[0], read_manifest(three[0]))
    shard = origin.manifest.shards[0]
    stop, read = threading.Event(), keys._read_shard
    assert len(read(origin, shard, keys._hashed_key, Reporter(), stop)) == 16 * shard.num_examples
    stop.set()
    assert len(read(origin, shard, keys._hashed_key, Reporter(), stop)) == 16 * 2


def test_a_killed_merge_can_be_repeated(three, tmp_path, contents):
    before = [contents(root) for root in three]
    code = (
        "import os, sys; from tfshards.prep import merge\n"
        "from tfshards.prep.rewriting import write as linking\n"
        "def die(*_): os.kill(os.getpid(), 9)\n"
        # after the first shards were linked
        "linking.shard_problems = die\n"
        "merge(sys.argv[2:], sys.argv[1])"
    )
    command = [sys.executable, "-c", code, tmp_path / "out", *three]
    assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode == -9
    assert (tmp_path / "out" / AREA_NAME).exists()
    assert not (tmp_path / "out" / "dataset.json").exists()
    merge(three, tmp_path / "out", log=quiet)
    merge(three, tmp_path / "whole" / "out", log=quiet)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole" / "out")
    assert [contents(root) for root in three] == before


def test_the_command_prints_the_new_dataset(three, tmp_path, capsys):
    from tfshards.prep.cli.main import main

    roots = [str(root) for root in three]
    assert main(["merge", *roots, str(tmp_path / "out"), "--name", "pets"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"pets, build {read_manifest(tmp_path / 'out').build_id}"
    assert len(read_manifest(tmp_path / "out").shards) == 15
    assert main(["merge", *roots, str(tmp_path / "new"), "--shards", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["options"]["shards"] == {"train": 2, "val": 2}
    assert main(["merge", roots[0], str(tmp_path / "new")]) == 2
    assert "merge needs two or more datasets in SOURCE; one was given" in capsys.readouterr().err
