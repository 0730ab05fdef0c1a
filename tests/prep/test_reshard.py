"""reshard: the same examples in other shards, for datasets of every kind and compression."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.durability.commands import identity
from tests.errors import fault, raises
from tfshards.prep import ShardCounts, ShardOptions, prune, reshard, verify
from tfshards.prep.building.output_state import up_to_date
from tfshards.prep.progress.lines import Reporter
from tfshards.prep.records.shard_file import scan_shard
from tfshards.prep.rewriting import copying
from tfshards.prep.rewriting import write as rewrite
from tfshards.prep.rewriting.copying import CopyTask
from tfshards.prep.rewriting.layout import NewShards, Rewrite, interleave
from tfshards.prep.rewriting.origin import open_origin
from tfshards.prep.writing.area import AREA_NAME, BuildArea, ShardId
from tfshards.schemas import BuildError, InputError, Manifest, OptionsError, Split, read_manifest
from tfshards.schemas.manifest_file import write_manifest

from . import derived
from .derived import BUILDS, first_index, first_labels, first_shard, flip, in_no_order, quiet, records


@pytest.fixture(scope="module")
def origins(tmp_path_factory) -> dict[tuple[str, str], Path]:
    """A dataset of each kind and compression."""
    return {made: folder / "old" for made, folder in derived.build_each(tmp_path_factory).items()}


@pytest.fixture
def old(origins, tmp_path) -> Path:
    """A copy of the plain arrays that a test may damage: 101 examples in 3 shards."""
    return Path(shutil.copytree(origins["arrays", "none"], tmp_path / "old"))


def counts(manifest: Manifest, split: str) -> list[int]:
    return [shard.num_examples for shard in manifest.splits[split].shards]


@pytest.mark.parametrize("new", ["none", "gzip"])
@pytest.mark.parametrize("before", ["none", "gzip"])
@pytest.mark.parametrize("kind", BUILDS)
def test_each_split_keeps_its_examples_in_the_requested_number_of_shards(
    kind, before, new, origins, tmp_path, monkeypatch
):
    # so that the shards of one split are written in several passes
    monkeypatch.setattr(rewrite, "_SHARDS_PER_PASS", 2)
    root, out = origins[kind, before], tmp_path / "out"
    made = reshard(root, out, shards=5, options=ShardOptions(compression=new), log=quiet)
    assert read_manifest(out) == made
    assert verify(out, deep=True)
    assert made.compression == new
    assert in_no_order(records(out)) == in_no_order(records(root))
    for split in made.splits:
        assert len(counts(made, split)) == 5
        # the sequence is divided into contiguous parts, which keep the order of the build
        assert records(out)[split] == records(root)[split]
        assert max(counts(made, split)) - min(counts(made, split)) <= 1
    for shard in made.shards:
        found = {path: (out / path).read_bytes() for path in shard.companion_digests}
        assert scan_shard(out, shard.path, new, label=made.schema.label) == (shard, found)


def test_the_new_manifest_keeps_everything_except_the_shards(origins, tmp_path):
    root = origins["images", "none"]
    before = read_manifest(root)
    made = reshard(root, tmp_path / "out", shards=2, options=ShardOptions(name="pets"), log=quiet)
    kept = ("schema", "totals", "split_cuts", "rejects_digest", "compression")
    assert {name: getattr(made, name) for name in kept} == {name: getattr(before, name) for name in kept}
    assert list(made.splits) == list(before.splits)
    assert [s.label_counts for s in made.splits.values()] == [s.label_counts for s in before.splits.values()]
    assert before.totals.rejected == 2
    rejects = [path.glob("rejected-*.jsonl") for path in (root, tmp_path / "out")]
    assert len({next(found).read_bytes() for found in rejects}) == 1
    assert made.name == "pets"
    assert made.shards[0].path == f"pets-train-{made.build_id}.tfrecord-00000-of-00002"
    assert made.build_id != before.build_id
    assert made.options == {
        "source": "reshard",
        "shards": {"train": 2, "val": 2, "test": 2},
        "origin": {"name": "old", "build_id": before.build_id, "options": before.options},
    }
    assert (tmp_path / "out" / "labels.txt").read_text() == "cat\ndog\n"
    assert (tmp_path / "out" / "dataset_info.json").exists()


NUMBERS = {
    "as many as there were": ({}, [34, 34, 33]),
    "a number": ({"shards": 4}, [26, 25, 25, 25]),
    "of one split": ({"shards": ShardCounts(9, {"train": 2})}, [51, 50]),
    # a record has some 100 bytes
    "by size": ({"options": ShardOptions(shard_size=3000)}, [26, 25, 25, 25]),
    "by a size below a record's": ({"options": ShardOptions(shard_size=1)}, [1] * 101),
}


@pytest.mark.parametrize(("asked", "expected"), NUMBERS.values(), ids=NUMBERS)
def test_the_number_of_shards(asked, expected, old, tmp_path):
    made = reshard(old, tmp_path / "out", **asked, log=quiet)
    assert counts(made, "train") == expected


def test_the_same_input_and_options_make_the_same_bytes(origins, tmp_path, contents, monkeypatch):
    root = origins["images", "gzip"]
    asked = {"shards": 5}
    reshard(root, tmp_path / "a" / "out", **asked, log=quiet)
    monkeypatch.setattr(rewrite, "_SHARDS_PER_PASS", 1)
    monkeypatch.setattr(rewrite, "num_writers", lambda: 1)
    reshard(root, tmp_path / "b" / "out", **asked, log=quiet)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_split_without_examples_stays_empty(old, tmp_path):
    before = read_manifest(old)
    (old / "empty.tfrecord").touch()
    shard, _ = scan_shard(old, "empty.tfrecord", "none", label=before.schema.label)
    train = before.splits["train"]
    # also an empty shard within a split
    train = replace(train, shards=(train.shards[0], shard, *train.shards[1:]))
    (old / "other.tfrecord").touch()
    other = replace(shard, path="other.tfrecord")
    for path in (*shard.companion_digests, *other.companion_digests):
        (old / path).touch()
    splits = {"train": train, "val": Split((other,))}
    write_manifest(replace(before, splits=splits), old)
    made = reshard(old, tmp_path / "out", shards={"train": 2}, log=quiet)
    assert counts(made, "val") == [0]
    assert sum(counts(made, "train")) == 101
    assert verify(tmp_path / "out", deep=True)


def test_a_repeated_reshard_is_up_to_date(old, tmp_path, log):
    out = tmp_path / "out"
    made = reshard(old, out, shards=2, log=log.append)
    assert log == ["starting reshard: 101 examples, writing 2 shards"]
    before = {path: identity(path) for path in out.rglob("*") if path.is_file()}
    assert reshard(old, out, shards=2, log=log.append) == made
    assert log[1:] == [up_to_date(out, is_compared=False)]
    assert {path: identity(path) for path in out.rglob("*") if path.is_file()} == before


WRONG_OPTIONS = {
    "no shards": ({"shards": 0}, r"^shards=0 must be at least 1$"),
    "number and size": ({"shards": 2, "shard_size": 5}, "^shards= and shard_size= exclude each other"),
    "no size": ({"shard_size": 0}, "^shard_size=0 must be at least 1 byte$"),
    "another compression": ({"compression": "zip"}, "^compression='zip' must be one of none, gzip$"),
}


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS.values(), ids=WRONG_OPTIONS)
def test_invalid_options_are_refused(options, message):
    shards = options.get("shards")
    others = {name: value for name, value in options.items() if name != "shards"}
    with pytest.raises(OptionsError, match=message):
        reshard("old", "new", shards=shards, options=ShardOptions(**others))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"shards": 102}, fault("shards-too-many", asked="shards=102", examples=101)),
        ({"shards": {"val": 2}}, fault("split-unknown", asked='shards={"val": 2}')),
        ({"shards": {"train": 2}, "options": ShardOptions(shard_size=9)}, "shard-size-useless"),
    ],
)
def test_shards_that_the_dataset_does_not_allow_are_refused(asked, message, old, tmp_path):
    with raises(InputError, message):
        reshard(old, tmp_path / "out", **asked, log=quiet)
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_a_dataset_is_refused(old, tmp_path):
    with raises(OptionsError, "output-in-input"):
        reshard(old, old / "new", log=quiet)
    (tmp_path / "file").touch()
    with raises(InputError, "dataset-is-file"):
        reshard(old, tmp_path / "file", log=quiet)
    with raises(InputError, "folder-not-empty", a_file="file"):
        reshard(old, tmp_path, log=quiet)
    with pytest.raises(OptionsError, match="'a b' must be letters"):
        reshard(old, tmp_path / "a b", log=quiet)
    with raises(InputError, "dataset-missing", manifest="dataset.json"):
        reshard(tmp_path, tmp_path / "out", log=quiet)


DAMAGE = [
    (lambda root: flip(first_shard(root), 0), BuildError, "record 0 at byte 0: a checksum of its frame"),
    (lambda root: flip(first_shard(root), 200), BuildError, r"record 2 at byte \d+: a checksum of its frame"),
    (lambda root: flip(first_shard(root), -1), BuildError, r"record 33 at byte \d+: a checksum of its"),
    (
        lambda root: derived.repeat_a_record(first_shard(root)),
        BuildError,
        r"^split 'train': 101 examples with dig",
    ),
    (lambda root: os.truncate(first_shard(root), 100), InputError, r"old-train-\w{8}.*00003: has 100 bytes"),
    (lambda root: first_index(root).unlink(), InputError, r"index/old-.*\.idx: cannot be read: No such"),
    (lambda root: flip(first_index(root), 0), InputError, r"old is damaged: index/old-.*\.idx: line 1: is "),
    (lambda root: first_labels(root).unlink(), InputError, r"index/old-.*\.labels: cannot be read: No such"),
    (lambda root: flip(first_labels(root), 0), InputError, r"index/old-.*\.labels: its bytes have changed"),
]


@pytest.mark.parametrize(("damage", "error", "message"), DAMAGE)
def test_a_damaged_dataset_is_not_resharded(damage, error, message, old, tmp_path):
    damage(old)
    with pytest.raises(error, match=message):
        reshard(old, tmp_path / "out", shards=7, log=quiet)
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_damaged_compression_is_named(tmp_path):
    derived.build_arrays(tmp_path, "gzip")
    shard = first_shard(tmp_path / "old")
    content = shard.read_bytes()
    # after gzip's header of 10 bytes
    shard.write_bytes(content[:10] + b"\xff" * 50 + content[60:])
    with pytest.raises(BuildError, match=r"record \d+ at byte \d+: the compressed data are damaged"):
        reshard(tmp_path / "old", tmp_path / "out", log=quiet)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "rejected-.*jsonl: cannot be read: No such file"),
        ("", "is damaged: rejected-.*jsonl: its digest differs from the manifest's"),
    ],
)
def test_a_damaged_list_of_rejects_is_refused(text, message, origins, tmp_path):
    root = Path(shutil.copytree(origins["images", "none"], tmp_path / "old"))
    rejects = next(root.glob("rejected-*"))
    rejects.unlink() if text is None else rejects.write_text(text)
    with pytest.raises(InputError, match=message):
        reshard(root, tmp_path / "out", log=quiet)
    assert not (tmp_path / "out").exists()


def first_of_two(old: Path, out: Path) -> tuple[CopyTask, ShardId]:
    """Return the task of writing a dataset to two shards, and the first of these, whose plan is written."""
    area = BuildArea(out, "01234567")
    area.open()
    new = NewShards([open_origin(old)], {"train": 2}, "none")
    plan = Rewrite(area, replace(read_manifest(old), name="new"), new.origins, new.lay_out())
    shard = plan.shards[0]
    copying.write_plan(plan, shard)
    return CopyTask.of(plan, Reporter(), verifies=False), shard


def test_a_pass_ends_early_after_another_has_failed_and_is_not_repeated(old, tmp_path, monkeypatch):
    monkeypatch.setattr(copying, "_RUN_BYTES", 100)
    task, shard = first_of_two(old, tmp_path / "out")
    stopped = replace(task, area=replace(task.area, attempt="01234567"))
    stopped.area.unfinished_path("").mkdir()
    stopped.area.stop("why")
    with raises(BuildError, "build-stopped"):
        copying.write_group(stopped, [shard])
    assert task.area.read_finished("first", shard) is None
    copying.write_group(task, [shard])
    done = task.area.read_finished("first", shard)
    assert done.shard.num_examples == 51
    # an engine that starts its job again repeats the call
    before = identity(task.area.shards / done.shard.path)
    copying.write_group(task, [shard])
    assert identity(task.area.shards / done.shard.path) == before


def test_a_shard_that_disappears_is_named(old, tmp_path):
    task, shard = first_of_two(old, tmp_path / "out")
    first_shard(old).unlink()
    with raises(BuildError, "file-fault"):
        copying.write_group(task, [shard])
    assert str(first_shard(old)) in task.area.stop_reason()


@pytest.fixture
def stopped(old, tmp_path) -> Path:
    """An output in which three of four shards are finished, since a record of the last is damaged."""
    last = old / read_manifest(old).shards[-1].path
    sound = last.read_bytes()
    flip(last, -1)
    with pytest.raises(BuildError, match="checksum"):
        reshard(old, tmp_path / "out", shards=4, log=quiet)
    last.write_bytes(sound)
    # that another thread sees the failure before it has finished its own shard
    notes = sorted((tmp_path / "out").glob(f"{AREA_NAME}/*/first/*.done"))
    assert 1 <= len(notes) <= 3
    return tmp_path / "out"


def test_an_incomplete_finished_shard_is_written_again(stopped, old):
    done = next(stopped.glob(f"{AREA_NAME}/*/first/*.done"))
    flip(done.parents[1] / "shards" / json.loads(done.read_bytes())["shard"]["path"], 30)
    reshard(old, stopped, shards=4, log=quiet)
    assert verify(stopped, deep=True)


def test_an_output_without_space_is_refused_before_anything_is_written(old, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    for compression, has_room in (("none", False), ("gzip", True)):
        # a full disk cannot be arranged here
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
        out = tmp_path / compression
        if has_room:
            # the remaining size is not known
            reshard(old, out, options=ShardOptions(compression=compression), log=quiet)
        else:
            with raises(InputError, "disk-full", what="the dataset", free=1000):
                reshard(old, out, log=quiet)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with raises(InputError, "disk-full", what="the dataset"):
        reshard(tmp_path / "gzip", tmp_path / "again", log=quiet)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=6), st.integers(1, 20))
def test_interleaved_sequences_keep_their_order_and_are_spread_evenly(counts, num_parts):
    order = interleave(counts).tolist()
    assert sorted(order) == list(range(sum(counts)))
    starts = np.cumsum([0, *counts]).tolist()
    for count, start in zip(counts, starts, strict=False):
        own = [number for number in order if start <= number < start + count]
        assert own == sorted(own)
        # any interval has its share of each sequence, up to one at either end
        length = len(order) // num_parts
        for first in range(0, len(order) - length + 1, max(1, length)):
            part = order[first : first + length]
            share = count * len(part) / max(1, len(order))
            assert abs(sum(start <= number < start + count for number in part) - share) <= len(counts)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.data())
def test_a_part_of_an_interleaved_order_is_found_without_the_rest(counts, data):
    start = data.draw(st.integers(0, sum(counts)))
    end = data.draw(st.integers(start, sum(counts)))
    assert interleave(counts, start, end).tolist() == interleave(counts)[start:end].tolist()


def test_a_dataset_is_resharded_in_place(old, contents, log):
    before, held = read_manifest(old), in_no_order(records(old))
    assert sum(len(split.shards) for split in before.splits.values()) == 3
    with raises(OptionsError, "reshard-onto-itself"):
        reshard(old, old, shards=4, log=quiet)
    assert read_manifest(old) == before
    # by another name of the same folder
    link = old.parent / "link"
    link.symlink_to(old)
    made = reshard(old, link, shards=4, overwrite=True, log=quiet)
    assert read_manifest(old) == made
    assert (made.name, len(made.shards)) == ("old", 4)
    assert in_no_order(records(old)) == held
    assert verify(old, deep=True)
    # a reader of the old manifest still finds its shards, until they are pruned
    assert all((old / shard.path).exists() for shard in before.shards)
    prune(old)
    assert verify(old, deep=True)
    assert not any((old / shard.path).exists() for shard in before.shards)
    # the same call has nothing left to do, and completes what a killed one left
    state = contents(old)
    write_manifest(made, old)
    (old / "dataset_info.json").unlink()
    assert reshard(old, old, shards=4, overwrite=True, log=log.append) == made
    assert contents(old) == state
    assert log == [up_to_date(old, is_compared=False)]
    assert len(reshard(old, old, shards=2, overwrite=True, log=quiet).shards) == 2
    # the name stays, whatever the folder is called
    moved = old.rename(old.parent / "moved")
    assert reshard(moved, moved, shards=3, overwrite=True, log=quiet).name == "old"
