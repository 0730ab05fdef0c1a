"""``prune`` removes files that no longer belong to a dataset, lists them, and touches nothing else."""

import re

import numpy as np
import pytest

from tests.errors import raises
from tfshards.prep import Arrays, ImageFolder, Options, build, prune, verify
from tfshards.prep.building.output import locked
from tfshards.prep.writing.area import AREA_NAME
from tfshards.schemas import BuildError, FormatError, InputError
from tfshards.schemas.build_area import create

from .commands import contents
from .inputs import write_inputs

NUMBERS = Arrays({"x": np.arange(30), "label": np.arange(30) % 3})
MINE = (
    "notes.txt",
    ".hidden",
    ".mine.tmp",
    # named like the shards of a build, but without an index
    "logs-20240101.tfrecord-00000-of-00001",
    "index/notes.idx",
    "data-train.tfrecord-00000-of-00001",
)


def built(source, out, **options):
    given = {"shards": 2, "options": Options(max_rejected=1), "engine": "local", "log": lambda _: None}
    return build(source, out, **{**given, **options})


@pytest.fixture
def two_generations(tmp_path):
    """A dataset and the one that it replaced, among files that no build made."""
    out = tmp_path / "data"
    old, new = built(NUMBERS, out), built(NUMBERS, out, seed=1, overwrite=True)
    for name in MINE:
        (out / name).write_text("mine")
    return out, old, new


def test_rejects_and_the_build_area_are_removed(tmp_path):
    write_inputs(tmp_path)
    out, source = tmp_path / "data", ImageFolder(tmp_path / "photos")
    old, new = built(source, out), built(source, out, seed=1, overwrite=True)
    after = contents(out)
    with raises(BuildError, "too-many-rejected"):
        build(source, out, shards=2, seed=2, overwrite=True, engine="local", log=lambda _: None)
    create(out / ".build" / "staged-abcabcab")
    (out / ".build" / "staged-abcabcab" / "copy").write_bytes(bytes(10))
    unfinished = {p: data for p, data in contents(out).items() if re.search(r"/shards/data-train-[^/]*$", p)}
    assert len(unfinished) == 2
    gone = {item.path: item.num_bytes for item in prune(out)}
    assert not unfinished.keys() & contents(out).keys()
    assert f"inputs-{old.build_id}.npz" not in contents(out)
    assert f"rejected-{old.build_id}.jsonl" not in contents(out)
    assert gone[f"{AREA_NAME}/"] > 10 + sum(map(len, unfinished.values()))
    assert verify(out, deep=True)
    assert contents(out) == {
        path: data for path, data in after.items() if old.build_id not in path and path != "generations"
    }
    assert {f"rejected-{new.build_id}.jsonl", f"inputs-{new.build_id}.npz"} <= contents(out).keys()


def test_a_build_that_ended_without_a_commit_is_removed_completely(tmp_path):
    write_inputs(tmp_path)
    out = tmp_path / "data"
    with raises(BuildError, "too-many-rejected"):
        built(ImageFolder(tmp_path / "photos"), out, options=Options())
    (out / "mine.txt").write_text("mine")
    found = prune(out)
    assert [item.path for item in found][-1] == f"{AREA_NAME}/"
    assert contents(out) == {"mine.txt": b"mine"}


def test_a_file_with_another_hard_link_frees_nothing(tmp_path):
    write_inputs(tmp_path)
    out, source = tmp_path / "data", ImageFolder(tmp_path / "photos")
    first = built(source, out, shards=3)
    linked, *others = (shard.path for shard in first.shards)
    (tmp_path / "other").hardlink_to(out / linked)
    before = contents(out)
    built(source, out, shards=3, seed=1, overwrite=True)
    sizes = {item.path: item.num_bytes for item in prune(out)}
    assert sizes[linked] == 0
    assert all(sizes[path] == len(before[path]) for path in others)


def test_a_manifest_that_cannot_be_read_is_reported_and_nothing_is_removed(two_generations):
    out, *_ = two_generations
    (out / "dataset.json").write_text("{}")
    before = contents(out)
    with pytest.raises(FormatError, match=r"dataset\.json"):
        prune(out)
    assert contents(out) == before


def test_nothing_is_removed_while_a_build_is_running(two_generations):
    out, *_ = two_generations
    before = contents(out)
    with locked(out), raises(InputError, "build-running"):
        prune(out)
    assert contents(out) == before
