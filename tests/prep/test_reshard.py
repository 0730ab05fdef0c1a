"""reshard: numbers of shards, what is refused, and killed calls; see tests/verbs for the examples."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.durability.commands import identity
from tests.errors import fault, raises
from tfshards.prep import ShardCounts, ShardOptions, reshard, verify
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
from .derived import first_shard, flip, quiet


@pytest.fixture
def old(tmp_path) -> Path:
    """Arrays that a test may damage: 101 examples in 3 shards."""
    derived.build_arrays(tmp_path)
    return tmp_path / "old"


def counts(manifest: Manifest, split: str) -> list[int]:
    return [shard.num_examples for shard in manifest.splits[split].shards]


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


def test_the_same_input_and_options_make_the_same_bytes(tmp_path, contents, monkeypatch):
    derived.build_images(tmp_path, "gzip")
    root = tmp_path / "old"
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
    (lambda root: flip(first_shard(root), 200), r"record 2 at byte \d+: a checksum of its frame"),
    (lambda root: derived.repeat_a_record(first_shard(root)), r"^split 'train': 101 examples with dig"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_records_that_are_not_those_of_the_dataset_are_not_resharded(damage, message, old, tmp_path):
    damage(old)
    with pytest.raises(BuildError, match=message):
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
def test_a_damaged_list_of_rejects_is_refused(text, message, tmp_path):
    derived.build_images(tmp_path)
    root = tmp_path / "old"
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


def test_a_dataset_is_resharded_in_place_only_on_request_and_keeps_its_name(old):
    before = read_manifest(old)
    with raises(OptionsError, "reshard-onto-itself"):
        reshard(old, old, shards=4, log=quiet)
    assert read_manifest(old) == before
    moved = old.rename(old.parent / "moved")
    # by another name of the same folder
    link = old.parent / "link"
    link.symlink_to(moved)
    assert reshard(moved, link, shards=4, overwrite=True, log=quiet).name == "old"
    assert len(read_manifest(moved).shards) == 4
