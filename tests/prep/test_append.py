"""append: what is new goes into further shards; what is there keeps its split, its shard and its bytes."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfshards.prep import (
    Arrays,
    Dealing,
    ImageFolder,
    ImageOptions,
    Options,
    Table,
    append,
    build,
    merge,
    reshard,
    verify,
)
from tfshards.prep.area import AREA_NAME
from tfshards.prep.example import decode_key
from tfshards.prep.output import locked
from tfshards.prep.sources.listing import Source
from tfshards.prep.splits import split_by_cuts, split_by_ratio
from tfshards.schemas import BuildError, InputError, Manifest, OptionsError, read_manifest, write_manifest

from .copies import records, write, write_images

ANY = Options(max_rejected=1)
SPLIT = Options(splits={"train": "0.7", "val": "0.3"}, max_rejected=1)


def quiet(_: str) -> None:
    """Hear nothing."""


def files(root: Path, manifest: Manifest) -> dict[str, tuple[int, bytes]]:
    """Return inode and bytes of each shard that a manifest names."""
    paths = [shard.path for shard in manifest.shards]
    return {path: ((root / path).stat().st_ino, (root / path).read_bytes()) for path in paths}


def keys(root: Path) -> dict[str, set[bytes]]:
    return {split: {decode_key(data) or b"" for data in held} for split, held in records(root).items()}


@pytest.fixture
def grown(tmp_path) -> tuple[ImageFolder, Path, Manifest]:
    """A folder that has grown from 30 images to 50 since its dataset was built in two splits."""
    photos = write_images(tmp_path / "photos", range(30), ["cat/old.png"])
    old = build(ImageFolder(photos), tmp_path / "out", shards=2, options=SPLIT, talk=quiet)
    write_images(photos, range(30, 50), ["dog/new.png"])
    write(photos / ".hidden", b"")
    return ImageFolder(photos), tmp_path / "out", old


def test_new_examples_go_into_new_shards_and_old_ones_stay_as_they_are(grown):
    source, out, old = grown
    shards, where = files(out, old), keys(out)
    said: list[str] = []
    made = append(source, out, shards=3, options=ANY, talk=said.append)
    assert read_manifest(out) == made
    assert verify(out, deep=True) == []
    assert files(out, old) == shards
    assert [len(split.shards) for split in made.splits.values()] == [5, 5]
    assert made.num_examples == 50
    for split in ("train", "val"):
        assert made.splits[split].shards[:2] == old.splits[split].shards
        assert where[split] < keys(out)[split]
    assert said[:2] == [
        "21 new inputs, 31 known",
        f"starting build {made.build_id}: 21 examples, {said[1].split(', ')[1]}, 6 shards",
    ]
    assert made.build_id != old.build_id
    # all that a build leaves behind
    left = {path.name for path in out.iterdir()}
    assert left == {
        *(shard.path for shard in made.shards),
        "dataset.json",
        "index",
        "labels.txt",
        f"rejected-{made.build_id}.jsonl",
        # gone with the next build, as all of an earlier one that the manifest does not name
        f"rejected-{old.build_id}.jsonl",
    }


def test_the_manifest_adds_up(grown):
    source, out, old = grown
    made = append(source, out, shards=1, options=ANY, talk=quiet)
    assert (made.totals.accepted, made.totals.rejected, made.totals.skipped) == (50, 2, 1)
    assert made.totals.entries == 53
    assert made.totals.reasons == {"rejected": {"unreadable": 2}, "skipped": {"hidden": 1}}
    counted = [sum(split.label_counts[name] for split in made.splits.values()) for name in ("cat", "dog")]
    assert counted == [25, 25]
    lines = (out / f"rejected-{made.build_id}.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["cat/old.png", "dog/new.png"]
    assert made.split_cuts == old.split_cuts
    assert {name: made.options[name] for name in old.options} == old.options
    (entry,) = made.options["appended"]
    assert (entry["build_id"], entry["examples"]) == (made.build_id, 20)
    assert entry["options"]["shards"] == {"train": 1, "val": 1}


def test_examples_go_where_the_build_would_have_sent_them(grown, tmp_path):
    source, out, old = grown
    append(source, out, options=ANY, talk=quiet)
    listing = source.listing()
    membership = split_by_cuts(listing.keys, old.split_cuts, {})
    expected = {split: {listing.keys[n] for n in numbers} for split, numbers in membership.examples.items()}
    assert {split: held | {b"cat/old.png", b"dog/new.png"} for split, held in keys(out).items()} == {
        split: held | {b"cat/old.png", b"dog/new.png"} for split, held in expected.items()
    }


def test_only_what_is_new_may_be_given(tmp_path):
    first = write_images(tmp_path / "first", range(10))
    write(first / ".hidden", b"")
    build(ImageFolder(first), tmp_path / "out", shards=1, talk=quiet)
    # of one class alone, whose number is another in this folder
    more = write_images(tmp_path / "more", range(11, 16, 2))
    write(more / ".hidden", b"")
    made = append(ImageFolder(more), tmp_path / "out", talk=quiet)
    assert made.splits["train"].label_counts == {"cat": 5, "dog": 8}
    assert verify(tmp_path / "out", deep=True) == []
    assert made.totals.skipped == 2
    assert made.totals.entries == 15


def test_what_the_source_has_to_say_is_said(tmp_path):
    photos = write_images(tmp_path / "photos", range(4))
    build(ImageFolder(photos), tmp_path / "out", shards=1, talk=quiet)
    write_images(photos, range(4, 6))
    write(photos / "metadata.csv", b"file_name\n")
    said: list[str] = []
    append(ImageFolder(photos), tmp_path / "out", talk=said.append)
    assert said[0].startswith("warning: ")
    assert "metadata.csv" in said[0]


def test_nothing_new_changes_nothing(grown, contents):
    source, out, _ = grown
    append(source, out, options=ANY, talk=quiet)
    before = contents(out)
    (out / "labels.txt").unlink()
    said: list[str] = []
    assert append(source, out, talk=said.append) == read_manifest(out)
    # what a killed one had left to do was done
    assert contents(out) == before
    assert said[-1] == f"{out} is up to date: it knows all of the 52 inputs"


def test_it_can_be_appended_to_again_and_resharded_and_merged(grown, tmp_path):
    source, out, _ = grown
    append(source, out, options=ANY, talk=quiet)
    write_images(Path(source.root), range(50, 60))
    made = append(source, out, shards=1, options=ANY, talk=quiet)
    assert [entry["examples"] for entry in made.options["appended"]] == [20, 10]
    assert verify(out, deep=True) == []
    reshard(out, tmp_path / "four", Dealing(shards=4), talk=quiet)
    assert verify(tmp_path / "four", deep=True) == []
    # through what was resharded the options of the build are still known, and so are the splits
    write_images(Path(source.root), range(60, 70))
    again = append(source, tmp_path / "four", shards=1, options=ANY, talk=quiet)
    assert again.num_examples == 70
    other = write_images(tmp_path / "other", range(80, 90))
    build(ImageFolder(other), tmp_path / "more", shards=1, options=SPLIT, talk=quiet)
    merged = merge([tmp_path / "four", tmp_path / "more"], tmp_path / "all", talk=quiet)
    assert merged.num_examples == 80
    assert verify(tmp_path / "all", deep=True) == []
    with pytest.raises(InputError, match=r"nothing says in which of the splits train, val of .*all the new"):
        append(ImageFolder(write_images(tmp_path / "p", range(90, 92))), tmp_path / "all", talk=quiet)


def test_what_was_rejected_and_mended_is_taken_in(grown):
    source, out, _ = grown
    append(source, out, options=ANY, talk=quiet)
    good = (Path(source.root) / "cat" / "000.png").read_bytes()
    (Path(source.root) / "cat" / "old.png").write_bytes(good)
    (Path(source.root) / "dog" / "new.png").unlink()
    made = append(source, out, talk=quiet)
    assert made.num_examples == 51
    assert (made.totals.rejected, made.totals.entries) == (1, 53)
    assert b"cat/old.png" in set().union(*keys(out).values())


def test_new_ones_that_are_all_rejected_are_counted(tmp_path, contents):
    photos = write_images(tmp_path / "photos", range(10))
    build(ImageFolder(photos), tmp_path / "out", shards=1, talk=quiet)
    write_images(photos, (), ["cat/x.png"])
    with pytest.raises(BuildError, match="1 of 1 inputs are rejected"):
        append(ImageFolder(photos), tmp_path / "out", talk=quiet)
    assert read_manifest(tmp_path / "out").totals.rejected == 0
    made = append(ImageFolder(photos), tmp_path / "out", options=ANY, talk=quiet)
    assert (made.num_examples, made.totals.rejected) == (10, 1)
    assert verify(tmp_path / "out", deep=True) == []
    assert not any(made.build_id in path and "tfrecord" in path for path in contents(tmp_path / "out"))


def test_rows_behind_those_of_the_build_are_new(tmp_path):
    x = np.random.default_rng(0).integers(0, 99, (100, 3))
    build(Arrays({"x": x[:80], "label": x[:80, 0]}), tmp_path / "out", shards=3, talk=quiet)
    made = append(Arrays({"x": x, "label": x[:, 0]}), tmp_path / "out", shards=2, talk=quiet)
    assert [shard.num_examples for shard in made.shards] == [27, 27, 26, 10, 10]
    assert verify(tmp_path / "out", deep=True) == []
    assert keys(tmp_path / "out")["train"] == {str(row).encode() for row in range(100)}
    assert list(made.splits["train"].label_counts) == sorted(made.splits["train"].label_counts, key=int)
    with pytest.raises(
        InputError, match=r"^row 0 of the source is not row 0 of .*out: rows are known by their"
    ):
        append(Arrays({"x": x + 1, "label": x[:, 0]}), tmp_path / "out", talk=quiet)


def test_class_names_are_those_of_the_dataset(tmp_path):
    names = np.array(["owl", "cat", "dog", "cat"])
    build(Arrays({"x": np.arange(4), "label": names}), tmp_path / "out", shards=1, talk=quiet)
    more = np.append(names, ["dog", "dog"])
    made = append(Arrays({"x": np.arange(6), "label": more}), tmp_path / "out", talk=quiet)
    assert made.splits["train"].label_counts == {"cat": 2, "dog": 3, "owl": 1}
    assert verify(tmp_path / "out", deep=True) == []
    with pytest.raises(InputError, match="eel"):
        append(Arrays({"x": np.arange(7), "label": np.append(more, "eel")}), tmp_path / "out", talk=quiet)
    given = Arrays({"x": np.arange(7), "label": np.append(more, "cat")}, class_names=("owl", "dog", "cat"))
    with pytest.raises(InputError, match=r"^class 0 is 'cat' in .*out, and 'owl' in the source; what is"):
        append(given, tmp_path / "out", talk=quiet)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_table_names_its_splits(compression, tmp_path):
    def table(count: int, *more: str) -> Table:
        rows = [f"{'a' * number},{('train', 'val')[number % 4 == 0]}" for number in range(count)]
        write(tmp_path / "t.csv", "\n".join(["text,split", *rows, *more]).encode())
        return Table(tmp_path / "t.csv")

    build(table(20), tmp_path / "out", shards=2, options=Options(compression=compression), talk=quiet)
    before = files(tmp_path / "out", read_manifest(tmp_path / "out"))
    made = append(table(31), tmp_path / "out", talk=quiet)
    assert {split: len(held) for split, held in keys(tmp_path / "out").items()} == {"train": 23, "val": 8}
    assert made.compression == compression
    assert before.items() <= files(tmp_path / "out", made).items()
    assert verify(tmp_path / "out", deep=True) == []
    # a split without anything new stays as it is
    made = append(table(31, "b,train"), tmp_path / "out", shards=1, talk=quiet)
    assert {split: len(held) for split, held in keys(tmp_path / "out").items()} == {"train": 24, "val": 8}
    with pytest.raises(InputError, match=r"^the source has the split 'test', and .*out has only train, val$"):
        append(table(31, "b,train", "c,test"), tmp_path / "out", talk=quiet)


def test_groups_stay_together(tmp_path):
    def arrays(count: int) -> Arrays:
        return Arrays({"x": np.arange(count), "who": np.arange(count) % 12})

    options = Options(splits={"train": "0.5", "val": "0.5"}, group_by="who")
    build(arrays(48), tmp_path / "out", shards=1, options=options, talk=quiet)
    append(arrays(120), tmp_path / "out", shards=1, talk=quiet)
    groups = [{int(key) % 12 for key in held} for held in keys(tmp_path / "out").values()]
    assert groups[0].isdisjoint(groups[1])
    assert sum(map(len, keys(tmp_path / "out").values())) == 120


def test_a_class_that_had_no_examples_is_split_by_the_ratios(tmp_path):
    def arrays(count: int) -> Arrays:
        return Arrays({"x": np.arange(count), "label": (np.arange(count) >= 20).astype(int)}, (), ("a", "b"))

    options = Options(splits={"train": "0.5", "val": "0.5"}, stratify=True)
    build(arrays(20), tmp_path / "out", shards=1, options=options, talk=quiet)
    made = append(arrays(220), tmp_path / "out", shards=1, talk=quiet)
    assert set(made.split_cuts["cuts"]) == {"0", "1"}
    assert made.split_cuts["cuts"]["1"] == ["8" + "0" * 31]
    assert 70 <= made.splits["val"].label_counts["b"] <= 130
    assert made.splits["val"].label_counts["a"] == 10


def eels(photos: Path) -> Source:
    write(photos / "eel" / "1.png", (photos / "cat" / "000.png").read_bytes())
    return ImageFolder(photos)


NOT_ALLOWED: dict[str, tuple[Callable[[Path], Source], str]] = {
    "a new class": (eels, r"^the source has the class 'eel', and .*out has not; its classes stay what they"),
    "other options of images": (
        lambda photos: ImageFolder(photos, ImageOptions(jpeg_quality=50)),
        r"^.*out was built with jpeg_quality=None, and this is 50; what is appended needs the options of",
    ),
    "other features": (
        lambda _: Arrays({"x": np.arange(2), "label": np.array(["cat", "dog"])}),
        r"^the feature 'image' is \(image.* in .*out, and missing in the source; what is appended needs the",
    ),
    "too many shards": (
        lambda photos: ImageFolder(photos),
        r"^num_shards=99 exceeds the \d+ examples of split 'train'; use at most \d+$",
    ),
}


@pytest.mark.parametrize(("make", "message"), NOT_ALLOWED.values(), ids=NOT_ALLOWED.keys())
def test_what_does_not_fit_is_refused(make, message, grown, contents):
    source, out, _ = grown
    before = contents(out)
    with pytest.raises(InputError, match=message):
        append(make(Path(source.root)), out, shards=99, options=ANY, talk=quiet)
    assert contents(out) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SPLIT, "^append: splits=.* is the dataset's own affair; leave it"),
        (Options(compression="gzip"), "^append: compression='gzip' is the dataset's own affair"),
        (Options(name="x"), "^append: name='x' is the dataset's own affair"),
    ],
)
def test_what_is_the_datasets_own_is_refused(options, message, grown):
    source, out, _ = grown
    with pytest.raises(OptionsError, match=message):
        append(source, out, options=options, talk=quiet)


def test_a_dataset_without_keys_cannot_be_appended_to(tmp_path):
    old = build(Arrays({"x": np.arange(4)}), tmp_path / "out", shards=1, talk=quiet)
    features = tuple(replace(f, name="id") if f.name == "key" else f for f in old.schema.features)
    write_manifest(replace(old, schema=replace(old.schema, features=features)), tmp_path / "out")
    with pytest.raises(
        InputError, match="out: its examples have no keys, by which to tell which ones are new"
    ):
        append(Arrays({"x": np.arange(5)}), tmp_path / "out", talk=quiet)


def test_two_into_one_output_is_refused(grown):
    source, out, _ = grown
    with locked(out), pytest.raises(InputError, match="another build is writing into it"):
        append(source, out, talk=quiet)


def test_a_build_beside_it_needs_overwrite_and_keeps_the_shards_of_all(grown):
    source, out, _ = grown
    made = append(source, out, options=ANY, talk=quiet)
    with pytest.raises(InputError, match=r"of other options \(appended, shards\)"):
        build(source, out, shards=7, options=SPLIT, talk=quiet)
    with pytest.raises(InputError, match="give --overwrite to build it again"):
        build(source, out, shards=2, retry_rejected=True, options=SPLIT, talk=quiet)
    write(Path(source.root) / "cat" / "000.png", b"bad")
    with pytest.raises(BuildError, match="rejected"):
        build(source, out, shards=2, overwrite=True, options=replace(SPLIT, max_rejected=0), talk=quiet)
    assert read_manifest(out) == made
    assert verify(out, deep=True) == []


def test_one_that_was_killed_leaves_the_dataset_and_goes_on(tmp_path, slow_folder, contents):
    few = tmp_path / "few"
    few.mkdir()
    for number in range(4):
        os.link(slow_folder / f"{number:02d}.bmp", few / f"{number:02d}.bmp")
    build(ImageFolder(few), tmp_path / "out", shards=2, talk=quiet)
    build(ImageFolder(few), tmp_path / "whole" / "out", shards=2, talk=quiet)
    out, before = tmp_path / "out", contents(tmp_path / "out")
    command = [sys.executable, "-m", "tfshards.prep.cli", "append", "images", str(slow_folder), str(out)]
    process = subprocess.Popen(
        [*command, "--shards", "5", "--max-rejected", "100%"], stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 100
    while not list(out.glob(f"{AREA_NAME}/*/first/*.done")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert before.items() <= contents(out).items()
    assert verify(out, deep=True) == []
    said: list[str] = []
    append(ImageFolder(slow_folder), out, shards=5, options=ANY, talk=said.append)
    assert said[1].startswith("resuming build ")
    append(ImageFolder(slow_folder), tmp_path / "whole" / "out", shards=5, options=ANY, talk=quiet)
    assert contents(out) == contents(tmp_path / "whole" / "out")


def test_the_command_prints_the_dataset(grown, capsys):
    from tfshards.prep.cli import main

    source, out, _ = grown
    options = ["--max-rejected", "100%", "--shards", "1"]
    assert main(["append", "images", str(source.root), str(out), *options]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"out, build {read_manifest(out).build_id}"
    assert main(["append", "images", str(source.root), str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["accepted"] == 50
    assert main(["append", "images", str(source.root), str(out), "--split", "train=1"]) == 2
    assert main(["append", "images", str(source.root), str(out), "--", "--nonsense=1"]) == 2
    assert "Apache Beam has no such pipeline option" in capsys.readouterr().err


def test_the_loader_reads_what_was_copied_and_appended(grown, tmp_path):
    source, out, _ = grown
    append(source, out, shards=3, options=ANY, talk=quiet)
    reshard(out, tmp_path / "dealt", Dealing(shards=4, balance="bytes", compression="gzip"), talk=quiet)
    other = write_images(tmp_path / "other", range(80, 90))
    build(ImageFolder(other), tmp_path / "more", shards=1, options=SPLIT, talk=quiet)
    merge([out, tmp_path / "more"], tmp_path / "merged", talk=quiet)
    code = (
        "import json, sys\n"
        "from tfshards import loader\n"
        "def keys(root, split):\n"
        "    batches = loader.load(root, split, batch_size=1, select=('key',)).as_numpy_iterator()\n"
        "    return sorted(batch[0].item().decode() for batch in batches)\n"
        "splits = ('train', 'val')\n"
        "print(json.dumps({root: {split: keys(root, split) for split in splits} for root in sys.argv[1:]}))"
    )
    roots = [out, tmp_path / "dealt", tmp_path / "merged"]
    done = subprocess.run([sys.executable, "-c", code, *roots], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for root, held in json.loads(done.stdout).items():
        expected = {split: sorted(key.decode() for key in names) for split, names in keys(Path(root)).items()}
        assert held == expected


@given(
    st.sets(st.binary(min_size=1, max_size=4), min_size=12, max_size=60),
    st.sampled_from([("1/2", "1/2"), ("0.6", "0.2", "0.2"), ("0.9", "0.1")]),
    st.integers(0, 1 << 40),
    st.sampled_from(["all", "strata", "groups"]),
)
def test_no_key_leaves_its_split(found, parts, seed, by):
    held = sorted(found)
    ratios = {f"s{place}": Fraction(part) for place, part in enumerate(parts)}
    strata = np.arange(len(held)) % 2 if by == "strata" else None
    groups = [key[:1] for key in held] if by == "groups" else None
    try:
        made = split_by_ratio(held, ratios, seed, strata=strata, groups=groups)
    except InputError:
        # too few for so many splits
        return
    again = split_by_cuts(held, made.cuts, ratios, strata=strata, groups=groups)
    assert {name: members.tolist() for name, members in again.examples.items()} == {
        name: members.tolist() for name, members in made.examples.items()
    }
    assert again.cuts == made.cuts
    assert sorted(itertools.chain(*again.examples.values())) == list(range(len(held)))


def test_a_class_without_a_name_that_the_dataset_has_not_is_warned_about(tmp_path, quiet_build):
    out = tmp_path / "out"
    quiet_build(Arrays({"x": np.arange(20), "label": np.arange(20) % 5}), out, shards=2)
    labels = np.append(np.arange(20) % 5, [0, 4, 7, 6])
    grown = Arrays({"x": np.arange(24), "label": labels})
    lines: list[str] = []
    append(grown, out, talk=lines.append)
    assert any(line.startswith("warning: the class 6 had no examples in ") for line in lines)
    lines.clear()
    more = Arrays({"x": np.arange(25), "label": np.append(labels, 7)})
    append(more, out, talk=lines.append)
    assert not any("class" in line for line in lines)
